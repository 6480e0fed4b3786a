import { STATUS_CODES, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { forwardTrailers } from "../../decide/http/forward-headers.ts";
import { asMono, type Clock, type MonoMs } from "../../kernel/clock.ts";
import type { TimerWheel } from "../../kernel/timer-wheel.ts";

/** Up to this size copying a body behind its head costs less than a second piece in the system call. */
const JOINED_BYTES_MAX = 16 * 1024;

/**
 * Writes one answer to a client. `node:http` frames the head and the end; what lies between goes straight to the socket,
 * one write per upstream read, with the engine's chunk framing passed through where both sides are chunked.
 *
 * Invariants:
 *   W1. Nothing is written to the socket before the head, and nothing after the end or a break-off.
 *   W2. A buffer that the socket still needs after a write is reported as "retained": the caller gives it away.
 *   W3. The chunk framing on the wire is whole whenever an own chunk is written: callers complete it first.
 */
export class ClientWriter {
  readonly #res: ServerResponse;
  readonly #onBlocked: () => void;
  readonly #onDrain: () => void;
  #socket: Socket | null = null;
  #chunked = false;
  #hasLength = false;
  #ended = false;
  #blocked = false;
  bytesOut = 0;

  constructor(res: ServerResponse, onBlocked: () => void, onDrain: () => void) {
    this.#res = res;
    this.#onBlocked = onBlocked;
    this.#onDrain = onDrain;
  }

  get committed(): boolean {
    return this.#socket !== null || this.#ended;
  }

  /** True while the client takes nothing: more bytes would only fill memory. */
  get blocked(): boolean {
    return this.#blocked;
  }

  /** Whether a chunked answer to this client can carry another server's framing. */
  get takesFraming(): boolean {
    return this.#res.req.httpVersionMinor === 1 && this.#res.req.method !== "HEAD";
  }

  /** A whole answer in one write. */
  sendWhole(status: number, headers: string[], body: Buffer | string): void {
    if (this.#ended || this.committed) return;
    this.#ended = true;
    this.bytesOut += typeof body === "string" ? Buffer.byteLength(body) : body.length;
    this.#res.writeHead(status, headers);
    if (typeof body === "string" || body.length > JOINED_BYTES_MAX || !sendJoined(this.#res, body)) this.#res.end(body);
  }

  /** Sends the head. A body without `content-length` is chunked (HTTP/1.1) or ends with the connection (1.0). */
  commit(status: number, headers: string[], contentLength: number | undefined): boolean {
    if (this.committed) return false;
    const socket = this.#res.socket;
    if (socket === null || socket.destroyed) return false;
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

  /** A 1xx answer of the engine, for clients that can take one, before the head. The headers are those that may go on. */
  sendInformational(status: number, rawHeaders: readonly string[]): void {
    const socket = this.#res.socket;
    if (this.committed || socket === null || socket.destroyed || this.#res.req.httpVersionMinor === 0) return;
    const fields: string[] = [];
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) fields.push(`${rawHeaders[i]}: ${rawHeaders[i + 1]}\r\n`);
    socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Information"}\r\n${fields.join("")}\r\n`, "latin1");
  }

  /** Bytes that are framed already (or belong to a body with a length). */
  writeFramed(bytes: Buffer): "done" | "retained" {
    const socket = this.#socket;
    if (socket === null || this.#ended) return "done";
    this.bytesOut += bytes.length;
    if (!socket.write(bytes)) this.#block(socket);
    return socket.writableLength > 0 ? "retained" : "done";
  }

  /** Payload: framed here when the answer is chunked. The bytes are copied or written before this returns. */
  writePayload(payload: Buffer): void {
    if (payload.length === 0 || this.#socket === null) return;
    if (!this.#chunked) {
      this.writeFramed(Buffer.from(payload));
      return;
    }
    const size = payload.length.toString(16);
    const framed = Buffer.allocUnsafe(size.length + 4 + payload.length);
    framed.write(`${size}\r\n`, 0, "latin1");
    payload.copy(framed, size.length + 2);
    framed.write("\r\n", size.length + 2 + payload.length, "latin1");
    this.writeFramed(framed);
  }

  /** `trailers` as the engine sent them. */
  end(trailers: readonly string[]): void {
    if (this.#ended || this.#socket === null) return;
    this.#ended = true;
    if (trailers.length > 0 && this.#chunked) this.#res.addTrailers(pairs(forwardTrailers(trailers)));
    this.#res.end();
  }

  /**
   * Ends in a way that no client can take for a regular end: what is given is sent, then the connection is closed inside
   * the body.
   */
  breakOff(last: Buffer | null): void {
    const socket = this.#socket ?? this.#res.socket;
    if (this.#ended || socket === null) return;
    this.#ended = true;
    if (this.#socket === null) {
      socket.destroy();
      return;
    }
    if (last !== null && !this.#hasLength) {
      this.#ended = false;
      this.writePayload(last);
      this.#ended = true;
    }
    if (this.#chunked || this.#hasLength) {
      socket.destroySoon();
      return;
    }
    // Without framing the end of the connection is the regular end of the body, so only a reset tells of the break.
    while (socket.writableCorked > 0) socket.uncork();
    socket.resetAndDestroy();
  }

  /** Closes at once, with what is not yet sent thrown away. */
  destroy(): void {
    this.#ended = true;
    (this.#socket ?? this.#res.socket)?.destroy();
  }

  #block(socket: Socket): void {
    if (this.#blocked) return;
    this.#blocked = true;
    this.#onBlocked();
    socket.once("drain", () => {
      this.#blocked = false;
      this.#onDrain();
    });
  }
}

function pairs(flat: readonly string[]): [string, string][] {
  const list: [string, string][] = [];
  for (let i = 0; i + 1 < flat.length; i += 2) list.push([flat[i] ?? "", flat[i + 1] ?? ""]);
  return list;
}

/**
 * The engine is done and the answer waits in the socket: a client that takes nothing of it for `stallMs` is cut, so that it
 * holds memory and a connection no longer than that.
 */
export function cutIfNotTaken(
  res: ServerResponse,
  { clock, wheel }: { readonly clock: Clock; readonly wheel: TimerWheel },
  stallMs: number,
  cuts: { inc(): void },
): void {
  const socket = res.socket;
  if (socket === null || socket.writableLength === 0) return;
  let sent = socket.bytesWritten - socket.writableLength;
  const look = (now: MonoMs): void => {
    if (res.writableFinished || socket.destroyed) return;
    const sentNow = socket.bytesWritten - socket.writableLength;
    if (sentNow === sent) {
      cuts.inc();
      socket.destroy();
      return;
    }
    sent = sentNow;
    wheel.add(asMono(now + stallMs), look);
  };
  wheel.add(asMono(clock.mono() + stallMs), look);
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
