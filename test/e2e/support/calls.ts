import { request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { systemClock } from "../../../src/kernel/clock.ts";
import { Watched, within } from "../../../src/testing/wait-for.ts";
import type { TestGateway } from "./test-gateway.ts";

export interface CallOptions {
  readonly method?: string;
  readonly path?: string;
  readonly body?: Readonly<Record<string, unknown>> | Buffer;
  /** Plain key; without one the client's. */
  readonly key?: string;
  readonly class?: "interactive" | "system" | "batch";
  readonly headers?: Readonly<Record<string, string>>;
  /** For the answer; the default is for a loaded machine. */
  readonly patienceMs?: number;
}

export interface CallAnswer {
  /** 0 when the connection ended before a head came. */
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The body came to its regular end. */
  readonly whole: boolean;
  /** As the gateway told it; undefined when it did not. */
  readonly queueMs: number | undefined;
  /** By the caller's clock. */
  readonly tookMs: number;
}

/** A call under way, each on a connection of its own. Nothing of it rejects for being broken off: `answer` says how it ended. */
export class LiveCall {
  readonly answer: Promise<CallAnswer>;
  readonly #state = new Watched();
  readonly #sent: Promise<unknown>;
  readonly #leave: () => void;
  #status = 0;
  #text = "";

  constructor(gateway: Pick<TestGateway, "port" | "keys">, options: CallOptions = {}) {
    const {
      method = "POST",
      path = "/v1/chat/completions",
      body = aTask(),
      key = gateway.keys.client,
      patienceMs = 60_000,
    } = options;
    const bytes = method === "GET" ? Buffer.alloc(0) : Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    const startedAt = systemClock.mono();
    const { promise, resolve } = Promise.withResolvers<CallAnswer>();
    const end = (headers: IncomingHttpHeaders, whole: boolean): void => {
      const told = headers["x-yardmaster-queue-ms"];
      const queueMs = told === undefined ? undefined : Number(told);
      resolve({
        status: this.#status,
        headers,
        text: this.#text,
        whole,
        queueMs,
        tookMs: systemClock.mono() - startedAt,
      });
    };
    const req = httpRequest({
      host: "127.0.0.1",
      port: gateway.port,
      method,
      path,
      agent: false,
      headers: {
        authorization: `Bearer ${key}`,
        "content-type": "application/json",
        "content-length": String(bytes.length),
        ...(options.class === undefined ? {} : { "x-yardmaster-class": options.class }),
        ...options.headers,
      },
    });
    req.on("error", () => end({}, false));
    req.on("response", (res) => {
      this.#status = res.statusCode ?? 0;
      res.setEncoding("utf8");
      res.on("data", (part: string) => {
        this.#text += part;
        this.#state.changed();
      });
      res.on("error", () => {}); // The close that follows tells.
      res.on("close", () => end(res.headers, res.complete));
      this.#state.changed();
    });
    this.#sent = new Promise((sent) => req.once("finish", sent).once("close", sent));
    req.end(bytes);
    this.#leave = () => req.destroy();
    this.answer = within(`answer of ${method} ${path}`, promise, patienceMs);
    this.answer.catch(() => {}); // A caller that left need not look.
  }

  /** Of the head; 0 before it. */
  get status(): number {
    return this.#status;
  }

  /** What came so far. */
  get text(): string {
    return this.#text;
  }

  /** Resolves when the system has taken the request, or the connection has ended. */
  sent(): Promise<unknown> {
    return within("a request to be sent", this.#sent);
  }

  headed(): Promise<void> {
    return this.#state.until("the head of an answer", () => this.#status !== 0, 30_000);
  }

  received(part: string): Promise<void> {
    return this.until(`${JSON.stringify(part)} in an answer`, (text) => text.includes(part));
  }

  until(what: string, holds: (text: string) => boolean): Promise<void> {
    return this.#state.until(what, () => holds(this.#text), 30_000);
  }

  /** Closes the connection as a client does that is stopped. */
  leave(): void {
    this.#leave();
  }
}

export const startCall = (gateway: Pick<TestGateway, "port" | "keys">, options: CallOptions = {}): LiveCall =>
  new LiveCall(gateway, options);
export const call = (gateway: Pick<TestGateway, "port" | "keys">, options: CallOptions = {}): Promise<CallAnswer> =>
  startCall(gateway, options).answer;

/** A chat for the simulated engine: `tag` names it in the ledger, `sim` scripts it. */
export const aTask = (
  sim: Readonly<Record<string, unknown>> = {},
  more: Readonly<Record<string, unknown>> = {},
  tag = "",
): Readonly<Record<string, unknown>> => ({
  model: "m",
  stream: true,
  messages: [{ role: "user", content: "hi" }],
  metadata: { class: tag },
  sim: { tokens: 2, ...sim },
  ...more,
});

export const errorCodeOf = (text: string): string | undefined => /"code":\s*"([A-Z_]+)"/.exec(text)?.[1];
