import type { Socket } from "node:net";
import { renderAnswerHead, saysClose, type AnswerFraming } from "../../decide/http/answer-head.ts";
import { asChunk } from "./as-chunk.ts";
import type { BodyReader, ClientReply, ClientRequest, WriteResult } from "./client-port.ts";
import type { RequestHeadReader } from "./request-head-reader.ts";
import { STATUS_CODES } from "../../kernel/node-builtins.ts";
import { resetSocket } from "../../kernel/reset-socket.ts";

/** Up to this size copying a body behind its head costs less than a second piece in the system call. */
const JOINED_BYTES_MAX = 16 * 1024;
const NONE: AnswerFraming = { kind: "none" };
const CHUNKED: AnswerFraming = { kind: "chunked" };
const CLOSE: AnswerFraming = { kind: "close" };
const LAST_CHUNK = "0\r\n\r\n";
const CONNECTION_CLOSE = "Connection: close\r\n";
const CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";

/** What an exchange needs of the connection that carries it. */
export interface ExchangeConnection {
  readonly socket: Socket;
  /** Lines that answers end with. */
  readonly lines: AnswerLines;
  /** All of the answer was taken. */
  onAnswered(exchange: EdgeExchange): void;
  /** Nothing that comes on this connection is looked at any more. */
  giveUp(): void;
  /** The body has a reader, to which bytes may go. */
  onReader(): void;
}

export interface AnswerLines {
  date(): string;
  readonly keepAlive: string;
}

/**
 * One request of a connection and its answer: both sides of the port.
 *
 * Invariants:
 *   X1. Nothing is written before the head but 1xx answers, and nothing after the end or a break-off.
 *   X2. The head waits for the first bytes of the body, at most until the end of the turn: one write for both.
 *   X3. An answer whose body only the connection's end delimits, and one with a word of `close`, is the connection's last.
 */
export class EdgeExchange implements ClientRequest, ClientReply {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  readonly takesInformational: boolean;
  onGone: (() => void) | null = null;
  onDrain: (() => void) | null = null;
  /** The request asked for another one behind its answer, or did not say otherwise. */
  keepsAlive: boolean;
  complete = false;
  begun = false;
  /** The connection is gone, or no longer this exchange's to write to. */
  gone = false;
  reader: BodyReader | null = null;
  /** Of the answer; 0 before. */
  status = 0;
  /** All of the answer was taken. */
  taken = false;

  readonly #connection: ExchangeConnection;
  #framing: AnswerFraming = NONE;
  #bodiless = false;
  #pendingHead: string | null = null;
  #over = false;
  #awaitsDrain = false;

  constructor(connection: ExchangeConnection, head: RequestHeadReader, keepsAlive: boolean) {
    this.#connection = connection;
    this.method = head.method;
    this.target = head.target;
    this.rawHeaders = head.fields;
    this.takesInformational = head.minor === 1;
    this.keepsAlive = keepsAlive;
  }

  get httpVersion(): string {
    return this.takesInformational ? "1.1" : "1.0";
  }

  get remoteAddress(): string | undefined {
    return this.#connection.socket.remoteAddress;
  }

  get takesFraming(): boolean {
    return this.takesInformational && this.method !== "HEAD";
  }

  /** The answer has ended, well or not. */
  get over(): boolean {
    return this.#over;
  }

  get untakenBytes(): number {
    return this.taken || this.gone ? 0 : this.#connection.socket.writableLength;
  }

  readBody(reader: BodyReader): void {
    this.reader = reader;
    this.#connection.onReader();
  }

  pauseBody(): void {
    if (!this.complete && !this.gone) this.#connection.socket.pause();
  }

  resumeBody(): void {
    if (!this.gone) this.#connection.socket.resume();
  }

  sendContinue(): void {
    if (!this.begun && !this.gone && this.takesInformational) this.#connection.socket.write(CONTINUE, "latin1");
  }

  sendInformational(status: number, rawHeaders: readonly string[]): void {
    if (this.begun || this.gone || !this.takesInformational) return;
    this.#connection.socket.write(renderAnswerHead(statusLine(status), rawHeaders, NONE, ""), "latin1");
  }

  sendWhole(status: number, headers: string[], body: Buffer | string): void {
    if (this.begun || this.gone || this.#over) return;
    const bytes = typeof body === "string" ? Buffer.byteLength(body) : body.length;
    const head = this.#begin(status, headers, bytes);
    const { socket } = this.#connection;
    if (bytes === 0 || this.#bodiless) socket.write(head, "latin1");
    else if (bytes > JOINED_BYTES_MAX) {
      socket.cork();
      socket.write(head, "latin1");
      socket.write(body);
      socket.uncork();
    } else socket.write(head + (typeof body === "string" ? asLatin1(body, bytes) : body.toString("latin1")), "latin1");
    this.#end();
  }

  begin(status: number, headers: string[], contentLength: number | undefined): boolean {
    if (this.begun || this.gone || this.#over) return false;
    this.#pendingHead = this.#begin(status, headers, contentLength);
    process.nextTick(flushHead, this);
    return true;
  }

  writeFramed(bytes: Buffer): WriteResult {
    if (this.#over || this.gone || !this.begun || this.#bodiless) return "taken";
    const { socket } = this.#connection;
    const goesOn = this.#pendingHead === null ? socket.write(bytes) : this.#writeWithHead(bytes);
    if (socket.writableLength === 0) return "taken";
    if (goesOn) return "retained";
    this.#awaitsDrain = true;
    return "blocked";
  }

  writePayload(payload: Buffer): WriteResult {
    if (payload.length === 0) return "taken";
    if (this.#framing.kind !== "chunked") return this.writeFramed(Buffer.from(payload));
    return this.writeFramed(asChunk(payload));
  }

  end(trailers: readonly string[]): void {
    if (this.#over || this.gone || !this.begun) return;
    const head = this.#pendingHead ?? "";
    this.#pendingHead = null;
    const chunked = this.#framing.kind === "chunked";
    const last = !chunked ? "" : trailers.length === 0 ? LAST_CHUNK : renderAnswerHead("0\r\n", trailers, NONE, "");
    if (head !== "" || last !== "") this.#connection.socket.write(head + last, "latin1");
    this.#end();
  }

  breakOff(): void {
    if (this.#over) return;
    const { socket } = this.#connection;
    this.flushHead();
    this.#over = true;
    this.#connection.giveUp();
    if (!this.begun) socket.destroy();
    else if (this.#framing.kind === "chunked" || this.#framing.kind === "length") socket.destroySoon();
    // Without framing the end of the connection is the regular end of the body, so only a reset tells of the break.
    else resetSocket(socket);
  }

  destroy(): void {
    this.#over = true;
    this.#connection.socket.destroy();
  }

  endConnection(): void {
    this.keepsAlive = false;
    this.#connection.giveUp();
  }

  /** The connection is gone: whoever has not ended hears of it. */
  drop(): void {
    if (this.gone) return;
    this.gone = true;
    const told = this.#over ? null : this.onGone;
    this.#over = true;
    if (!this.complete) this.reader?.onBroken();
    told?.();
  }

  /** The socket's own word that it takes again. */
  drained(): void {
    if (!this.#awaitsDrain) return;
    this.#awaitsDrain = false;
    this.onDrain?.();
  }

  flushHead(): void {
    const head = this.#pendingHead;
    if (head === null) return;
    this.#pendingHead = null;
    if (!this.gone) this.#connection.socket.write(head, "latin1");
  }

  #begin(status: number, headers: readonly string[], contentLength: number | undefined): string {
    this.begun = true;
    this.status = status;
    this.#bodiless = this.method === "HEAD" || status === 204 || status === 304;
    if (contentLength !== undefined) this.#framing = { kind: "length", bytes: contentLength };
    else this.#framing = this.#bodiless ? NONE : this.takesInformational ? CHUNKED : CLOSE;
    const closes = saysClose(headers);
    if (closes || this.#framing.kind === "close") this.keepsAlive = false;
    const { lines } = this.#connection;
    const connection = closes ? "" : this.keepsAlive ? lines.keepAlive : CONNECTION_CLOSE;
    return renderAnswerHead(statusLine(status), headers, this.#framing, lines.date() + connection);
  }

  #writeWithHead(bytes: Buffer): boolean {
    const { socket } = this.#connection;
    const head = this.#pendingHead as string;
    this.#pendingHead = null;
    if (bytes.length > JOINED_BYTES_MAX) {
      socket.write(head, "latin1");
      return socket.write(bytes);
    }
    const joined = Buffer.allocUnsafe(head.length + bytes.length);
    joined.write(head, 0, "latin1");
    bytes.copy(joined, head.length);
    return socket.write(joined);
  }

  #end(): void {
    this.#over = true;
    const { socket } = this.#connection;
    if (socket.writableLength === 0) this.#finish();
    // Called when all before it was taken.
    else socket.write("", "latin1", () => this.#finish());
  }

  #finish(): void {
    if (this.gone) return;
    this.taken = true;
    this.#connection.onAnswered(this);
  }
}

function flushHead(exchange: EdgeExchange): void {
  exchange.flushHead();
}

/** Bytes of UTF-8, one character each, so that head and body are one string. */
const asLatin1 = (text: string, bytes: number): string =>
  text.length === bytes ? text : Buffer.from(text).toString("latin1");

const statusLines = new Map<number, string>();
function statusLine(status: number): string {
  let line = statusLines.get(status);
  if (line === undefined)
    statusLines.set(status, (line = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\n`));
  return line;
}
