import { BOARD_ROUTES, type SignIn } from "../../../src/contract/board.ts";
import { Watched } from "../../../src/testing/wait-for.ts";

/** A browser as far as cookies and the headers that no page can set go. */
export interface SignedIn {
  readonly cookie: string;
  readonly setCookie: string;
  /** As its own page. */
  fetch(path: string, init?: { method?: string; body?: string; headers?: Record<string, string> }): Promise<Response>;
  /** With the cookie and these headers alone, as another page would make it send. */
  raw(path: string, init?: { method?: string; body?: string; headers?: Record<string, string> }): Promise<Response>;
  stream(since?: string, encoding?: "gzip" | "identity"): Promise<BoardStream>;
}

/** Rejects with the status where nobody is let in. */
export async function signIn(url: string, who: SignIn): Promise<SignedIn> {
  const own = { "sec-fetch-site": "same-origin", origin: url };
  const answer = await fetch(url + BOARD_ROUTES.session, {
    method: "POST",
    body: JSON.stringify(who),
    headers: { "content-type": "application/json", ...own },
  });
  if (answer.status !== 200) throw new Error(`signing in was answered ${answer.status}: ${await answer.text()}`);
  await answer.arrayBuffer();
  const setCookie = answer.headers.get("set-cookie") ?? "";
  const cookie = setCookie.split(";")[0] ?? "";
  const raw: SignedIn["raw"] = (path, { method = "GET", body, headers = {} } = {}) =>
    fetch(url + path, { method, headers: { cookie, ...headers }, ...(body === undefined ? {} : { body }) });
  return {
    cookie,
    setCookie,
    raw,
    fetch: (path, init = {}) => raw(path, { ...init, headers: { ...own, ...init.headers } }),
    stream: (since, encoding) => BoardStream.open(url, cookie, since, encoding),
  };
}

export interface BoardEvent {
  readonly id: string | null;
  readonly event: string;
  readonly data: unknown;
}

/** Reads a board's stream by the book. */
export class BoardStream implements Disposable {
  readonly events: BoardEvent[] = [];
  isOver = false;
  readonly #state = new Watched();
  readonly #off = new AbortController();

  static async open(url: string, cookie: string, since?: string, encoding = "gzip"): Promise<BoardStream> {
    const stream = new BoardStream();
    const answer = await fetch(url + BOARD_ROUTES.stream, {
      headers: { cookie, "accept-encoding": encoding, ...(since === undefined ? {} : { "last-event-id": since }) },
      signal: stream.#off.signal,
    });
    if (answer.status !== 200 || answer.body === null) throw new Error(`the stream was answered ${answer.status}`);
    void stream.#read(answer.body);
    return stream;
  }

  until(what: string, condition: () => boolean, ms?: number): Promise<void> {
    return this.#state.until(what, condition, ms);
  }

  count(event: string): number {
    return this.events.filter((each) => each.event === event).length;
  }

  get lastId(): string | undefined {
    return this.events.findLast(({ id }) => id !== null)?.id ?? undefined;
  }

  [Symbol.dispose](): void {
    this.#off.abort();
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    let rest = "";
    try {
      for await (const chunk of body) {
        const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
        rest = parts.pop() ?? "";
        for (const part of parts) this.#take(part);
        this.#state.changed();
      }
    } catch {
      // The test left, or the server did.
    }
    this.isOver = true;
    this.#state.changed();
  }

  #take(part: string): void {
    const fields = new Map(
      part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
    );
    const data = fields.get("data");
    if (data !== undefined)
      this.events.push({
        id: fields.get("id") ?? null,
        event: fields.get("event") ?? "message",
        data: JSON.parse(data),
      });
  }
}
