import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { asChunk } from "./as-chunk.ts";
import type { BodyReader, ClientReply, ClientRequest, WriteResult } from "./client-port.ts";
import { STATUS_CODES } from "../../kernel/node-builtins.ts";
import { resetSocket } from "../../kernel/reset-socket.ts";

/** Up to this size copying a body behind its head costs less than a second piece in the system call. */
const JOINED_BYTES_MAX = 16 * 1024;

/** A request that `node:http` has read. */
export class NodeClientRequest implements ClientRequest {
  readonly #req: IncomingMessage;
  readonly method: string;
  readonly target: string;
  readonly httpVersion: string;
  readonly rawHeaders: readonly string[];
  #reader: BodyReader | null = null;

  constructor(req: IncomingMessage) {
    this.#req = req;
    this.method = req.method ?? "";
    this.target = req.url ?? "";
    this.httpVersion = req.httpVersion;
    this.rawHeaders = req.rawHeaders;
  }

  get remoteAddress(): string | undefined {
    return this.#req.socket.remoteAddress;
  }

  get complete(): boolean {
    return this.#req.complete;
  }

  readBody(reader: BodyReader): void {
    const first = this.#reader === null;
    this.#reader = reader;
    if (!first) return;
    this.#req.on("data", (chunk: Buffer) => this.#reader?.onData(chunk));
    this.#req.on("end", () => this.#reader?.onEnd());
    this.#req.on("error", () => this.#reader?.onBroken());
    this.#req.on("close", () => this.#reader?.onBroken());
  }

  pauseBody(): void {
    this.#req.pause();
  }

  resumeBody(): void {
    this.#req.resume();
  }
}

/**
 * An answer given through `node:http`, which frames the head and the end; what lies between goes straight to the socket, one
 * write per upstream read.
 *
 * Invariants:
 *   N1. Nothing is written to the socket before the head, and nothing after the end or a break-off.
 */
export class NodeClientReply implements ClientReply {
  readonly #res: ServerResponse;
  readonly #endConnection: () => void;
  /** The connection, known to the end: `node:http` takes it from an answer that has ended. */
  readonly #connection: Socket;
  readonly takesFraming: boolean;
  /** Set once the head is out. */
  #socket: Socket | null = null;
  #chunked = false;
  #hasLength = false;
  #over = false;
  #draining = false;
  onGone: (() => void) | null = null;
  onDrain: (() => void) | null = null;

  constructor(res: ServerResponse, endConnection: () => void) {
    this.#res = res;
    this.#endConnection = endConnection;
    this.takesFraming = res.req.httpVersionMinor === 1 && res.req.method !== "HEAD";
    this.#connection = res.req.socket;
    res.once("close", () => {
      const told = this.#over ? null : this.onGone;
      this.#over = true;
      told?.();
    });
  }

  get takesInformational(): boolean {
    return this.#res.req.httpVersionMinor !== 0;
  }

  get begun(): boolean {
    return this.#res.headersSent;
  }

  get gone(): boolean {
    return this.#res.destroyed;
  }

  get untakenBytes(): number {
    const socket = this.#connection;
    return socket.destroyed || this.#res.writableFinished ? 0 : socket.writableLength;
  }

  sendContinue(): void {
    this.#res.writeContinue();
  }

  sendInformational(status: number, rawHeaders: readonly string[]): void {
    const { socket } = this.#res;
    if (this.begun || socket === null || socket.destroyed || !this.takesInformational) return;
    const fields: string[] = [];
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) fields.push(`${rawHeaders[i]}: ${rawHeaders[i + 1]}\r\n`);
    socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Information"}\r\n${fields.join("")}\r\n`, "latin1");
  }

  sendWhole(status: number, headers: string[], body: Buffer | string): void {
    if (this.#over || this.begun) return;
    this.#over = true;
    headers.push("content-length", String(Buffer.byteLength(body)));
    this.#res.writeHead(status, headers);
    if (typeof body === "string" || body.length > JOINED_BYTES_MAX || !sendJoined(this.#res, body)) this.#res.end(body);
  }

  begin(status: number, headers: string[], contentLength: number | undefined): boolean {
    const { socket } = this.#res;
    if (this.#over || this.begun || socket === null || socket.destroyed) return false;
    if (contentLength !== undefined) headers.push("content-length", String(contentLength));
    this.#res.writeHead(status, headers);
    // The head waits in the cork for the first bytes of the body: one packet, one system call.
    socket.cork();
    this.#res.flushHeaders();
    process.nextTick(() => socket.uncork());
    this.#socket = socket;
    this.#hasLength = contentLength !== undefined;
    this.#chunked = contentLength === undefined && this.takesFraming;
    return true;
  }

  writeFramed(bytes: Buffer): WriteResult {
    const socket = this.#socket;
    if (socket === null || this.#over) return "taken";
    const goesOn = socket.write(bytes);
    if (socket.writableLength === 0) return "taken";
    if (goesOn) return "retained";
    this.#awaitDrain(socket);
    return "blocked";
  }

  writePayload(payload: Buffer): WriteResult {
    if (payload.length === 0 || this.#socket === null || this.#over) return "taken";
    if (!this.#chunked) return this.writeFramed(Buffer.from(payload));
    return this.writeFramed(asChunk(payload));
  }

  end(trailers: readonly string[]): void {
    if (this.#over || this.#socket === null) return;
    this.#over = true;
    if (trailers.length > 0 && this.#chunked) this.#res.addTrailers(pairs(trailers));
    this.#res.end();
  }

  breakOff(): void {
    const socket = this.#socket ?? this.#res.socket;
    if (this.#over || socket === null) return;
    this.#over = true;
    if (this.#socket === null) {
      socket.destroy();
      return;
    }
    if (this.#chunked || this.#hasLength) {
      socket.destroySoon();
      return;
    }
    // Without framing the end of the connection is the regular end of the body, so only a reset tells of the break.
    while (socket.writableCorked > 0) socket.uncork();
    resetSocket(socket);
  }

  destroy(): void {
    this.#over = true;
    this.#connection.destroy();
  }

  endConnection(): void {
    this.#endConnection();
  }

  #awaitDrain(socket: Socket): void {
    if (this.#draining) return;
    this.#draining = true;
    socket.once("drain", () => {
      this.#draining = false;
      this.onDrain?.();
    });
  }
}

function pairs(flat: readonly string[]): [string, string][] {
  const list: [string, string][] = [];
  for (let i = 0; i + 1 < flat.length; i += 2) list.push([flat[i] ?? "", flat[i + 1] ?? ""]);
  return list;
}

/**
 * Head and body as one string in one plain write. `res.end(body)` corks and writes an empty last piece behind them, so that
 * every answer would go out by `writev`, at twice the cost. The two fields are node:http's own; where they are not what
 * they were, the caller falls back to `end`.
 */
function sendJoined(res: ServerResponse, body: Buffer): boolean {
  const own = res as unknown as { readonly _header: unknown; _headerSent: unknown };
  const { socket } = res;
  if (
    typeof own._header !== "string" ||
    own._headerSent !== false ||
    socket === null ||
    socket.destroyed ||
    res.req.method === "HEAD"
  )
    return false;
  socket.write(own._header + body.toString("latin1"), "latin1");
  own._headerSent = true;
  res.end();
  return true;
}
