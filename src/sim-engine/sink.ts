import type { IncomingMessage, ServerResponse } from "node:http";
import { resetSocket } from "../kernel/reset-socket.ts";

/** Header names and values, flat. */
export type HeaderList = readonly string[];

export type LostBy = "client" | "engine";

/** Where an answer goes: HTTP as it should be, or bytes written by hand when a script wants them wrong. */
export interface Sink {
  /** `length` undefined means chunked. */
  head(status: number, headers: HeaderList, length: number | undefined): void;
  /** False when the reader is slower than the writer. */
  write(data: string | Buffer): boolean;
  end(): void;
  /** Bytes in place of head and body, after which the connection is closed. */
  raw(bytes: Buffer): void;
  /** Calls back when more may be written after a false from `write`, or never when the client leaves. */
  drained(callback: () => void): void;
  /** Breaks the connection off. */
  cut(how: "fin" | "rst"): void;
  /** The answer is out to the last byte. */
  onFinish(callback: () => void): void;
  /** The connection ended before that. */
  onLost(callback: (by: LostBy) => void): void;
}

export class HttpSink implements Sink {
  readonly #response: ServerResponse;
  readonly #bare: boolean;
  #cut = false;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.#response = response;
    this.#bare = request.method === "HEAD";
    response.on("error", () => {}); // A write after the client left; the close event tells of it.
  }

  head(status: number, headers: HeaderList, length: number | undefined): void {
    // The engines name neither connection nor keep-alive of their own accord.
    if (!headers.some((name, index) => index % 2 === 0 && name.toLowerCase() === "connection"))
      this.#response.removeHeader("connection");
    const all = length === undefined ? [...headers] : [...headers, "content-length", String(length)];
    this.#response.writeHead(status, all);
    if (length === undefined) this.#response.flushHeaders();
  }

  write(data: string | Buffer): boolean {
    return this.#bare || this.#response.write(data);
  }

  end(): void {
    this.#response.end();
  }

  raw(bytes: Buffer): void {
    const socket = this.#response.socket;
    this.#cut = true;
    socket?.end(bytes, () => socket.destroySoon());
  }

  drained(callback: () => void): void {
    this.#response.once("drain", callback);
  }

  cut(how: "fin" | "rst"): void {
    const socket = this.#response.socket;
    if (socket === null || this.#cut) return;
    this.#cut = true;
    // What was written before goes out first, so that a test can count on it.
    if (how === "rst") socket.write("", () => resetSocket(socket));
    else socket.end(() => socket.destroy());
  }

  onFinish(callback: () => void): void {
    this.#response.on("finish", callback);
  }

  onLost(callback: (by: LostBy) => void): void {
    this.#response.on("close", () => {
      if (!this.#response.writableFinished) callback(this.#cut ? "engine" : "client");
    });
  }
}
