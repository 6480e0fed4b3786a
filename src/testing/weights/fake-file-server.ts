import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { Watched } from "../wait-for.ts";

/** What reached the server, in the order in which it came. */
export interface Asked {
  readonly path: string;
  readonly query: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

export interface FakeFile {
  bytes: Buffer;
  /** Strong unless it begins with W/; null: none is told. */
  etag?: string | null;
  /** After so many bytes of each answer's body the connection is broken off; one number for each answer, then none. */
  breaks?: number[];
  /** As `breaks`, but nothing more comes and the connection stays until `release`. */
  stalls?: number[];
  /** Answered instead, one for each request, then the file. */
  statuses?: number[];
  /** Ranges are not known here. */
  ignoresRange?: boolean;
  /** Wherever a range begins, the answer claims another part. */
  wrongRange?: boolean;
  /** Told in place of the true `content-range`; "" tells none. */
  range?: string;
  noLength?: boolean;
  redirect?: string;
  /** The `authorization` that is wanted; else 401. */
  needs?: string;
  /** Further headers of the answer. */
  headers?: Record<string, string>;
}

/** A server of files for tests of downloads: it keeps the rules of ranges, or breaks them as it is told, and a ledger. */
export class FakeFileServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #scheme: string;
  readonly #state = new Watched();
  readonly files = new Map<string, FakeFile>();
  /** Asked before the files; true when it has answered. */
  readonly handlers: ((request: IncomingMessage, url: URL, response: ServerResponse) => boolean)[] = [];
  readonly ledger: Asked[] = [];
  #stalled: { readonly go: () => void; readonly cut: () => void }[] = [];
  /** Answers that are under way. */
  serving = 0;
  /** The most answers that were under way at once. */
  mostAtOnce = 0;

  private constructor(server: Server, scheme: string) {
    this.#server = server;
    this.#scheme = scheme;
    server.on("request", (request: IncomingMessage, response: ServerResponse) => this.#take(request, response));
  }

  static async start(tls?: { readonly key: string; readonly cert: string }): Promise<FakeFileServer> {
    const server = tls === undefined ? createServer() : createTlsServer(tls);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new FakeFileServer(server, tls === undefined ? "http" : "https");
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }
  get origin(): string {
    return `${this.#scheme}://127.0.0.1:${this.port}`;
  }
  /** Waits until what reached the server is as it should be. */
  until(what: string, condition: () => boolean): Promise<void> {
    return this.#state.until(what, condition);
  }
  askedFor(path: string): Asked[] {
    return this.ledger.filter((asked) => asked.path === path);
  }

  /** Answers that were held go on to their end. */
  release(): void {
    const stalled = this.#stalled;
    this.#stalled = [];
    for (const { go } of stalled) go();
  }
  /** Answers that were held are broken off. */
  breakOff(): void {
    const stalled = this.#stalled;
    this.#stalled = [];
    for (const { cut } of stalled) cut();
  }
  get stalled(): number {
    return this.#stalled.length;
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? "/", this.origin);
    this.ledger.push({ path: decodeURIComponent(url.pathname), query: url.search, headers: request.headers });
    this.serving += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.serving);
    response.on("close", () => {
      this.serving -= 1;
      this.#state.changed();
    });
    response.on("error", () => {});
    if (!this.handlers.some((handle) => handle(request, url, response))) this.#answer(request, response, url);
    this.#state.changed();
  }

  #answer(request: IncomingMessage, response: ServerResponse, url: URL): void {
    const file = this.files.get(decodeURIComponent(url.pathname));
    if (file === undefined) return void response.writeHead(404).end();
    const status = file.statuses?.shift();
    if (status !== undefined) return void response.writeHead(status, { "retry-after": "0" }).end();
    if (file.needs !== undefined && request.headers.authorization !== file.needs)
      return void response.writeHead(401).end();
    if (file.redirect !== undefined) return void response.writeHead(302, { location: file.redirect }).end();
    const { etag = '"v1"', bytes } = file;
    const tag = etag === null ? {} : { etag };
    const first = rangeOf(request, etag, file);
    if (first !== null && first >= bytes.length)
      return void response.writeHead(416, { "content-range": `bytes */${bytes.length}` }).end();
    const body = bytes.subarray(first ?? 0);
    const length = file.noLength === true ? {} : { "content-length": String(body.length) };
    const told = file.wrongRange === true ? (first ?? 0) + 1 : first;
    const part = file.range ?? `bytes ${told}-${bytes.length - 1}/${bytes.length}`;
    const range = first === null || part === "" ? {} : { "content-range": part };
    response.writeHead(first === null ? 200 : 206, { ...tag, ...length, ...range, ...file.headers });
    this.#send(response, body, file);
    return undefined;
  }

  #send(response: ServerResponse, body: Buffer, file: FakeFile): void {
    const broken = file.breaks?.shift();
    const stalled = file.stalls?.shift();
    if (broken !== undefined) {
      response.write(body.subarray(0, broken), () => response.destroy());
    } else if (stalled !== undefined) {
      response.write(body.subarray(0, stalled));
      this.#stalled.push({ go: () => response.end(body.subarray(stalled)), cut: () => response.destroy() });
    } else response.end(body);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

function rangeOf(request: IncomingMessage, etag: string | null, file: FakeFile): number | null {
  const match = /^bytes=(\d+)-$/.exec(request.headers.range ?? "");
  const condition = request.headers["if-range"];
  if (match === null || file.ignoresRange === true || (condition !== undefined && condition !== etag)) return null;
  return Number(match[1]);
}
