import type { Socket } from "node:net";
import type { MonoMs } from "../../kernel/clock.ts";
import { type ConnectOptions, describeConnectError, formatAddress, lacksMeans, openSocket } from "./connect.ts";
import type { ExchangeCarrier, NetExchange } from "./net-exchange.ts";
import type { UpstreamFailure, UpstreamTarget } from "./port.ts";
import { HEADROOM, ReadBuffer } from "./read-buffer.ts";
import { ResponseReader } from "./response-reader.ts";
import type { SendBuffer } from "./send-buffer.ts";

/** Up to this size head and body go out as one buffer: copying them costs less than a second piece in the system call. */
const JOINED_BYTES_MAX = 16_384;

/** Bytes that were read but not used because the exchange was paused. Nothing else holds this memory. */
interface HeldBlock {
  readonly bytes: Buffer;
  start: number;
  readonly end: number;
}

export interface ConnectionOwner {
  readonly sendBuffer: SendBuffer;
  /** Connected: `send` may be called. */
  onReady(connection: Connection): void;
  /** The answer is complete and another request may follow. */
  onFree(connection: Connection): void;
  /** Closed for good. `unsent` is an exchange whose request never went out, to be carried by another connection. */
  onClosed(connection: Connection, unsent: NetExchange | undefined): void;
}

/**
 * One socket to an engine and the exchange it carries. Owns the socket's life.
 *
 * Invariants:
 *   C1. Bytes that come while no request is out, or behind the end of a response, destroy the connection: they can belong to no request.
 *   C2. After the socket was destroyed nothing is called but `onClosed`, once.
 *   C3. An 'error' listener stays for the life of the socket, so no order of events can end the process.
 */
export class Connection implements ExchangeCarrier {
  readonly target: UpstreamTarget;
  /** Not to be used again when the exchange ends. */
  retired = false;
  /** For the pool: until when it may wait for a request. */
  idleUntil = 0 as MonoMs;
  /** For the pool: a turn of the event loop has passed since the last response, so bytes behind it would have been seen. */
  settled = false;
  /** Addresses that were tried while connecting. */
  readonly attempts: string[] = [];

  readonly #owner: ConnectionOwner;
  readonly #socket: Socket;
  readonly #buffer = new ReadBuffer();
  readonly #reader = new ResponseReader();
  #exchange: NetExchange | undefined;
  #connected = false;
  #sent = false;
  #served = 0;
  #closed = false;
  #error: Error | undefined;
  #held: HeldBlock[] | undefined;
  #peerClosed = false;
  #resuming = false;

  constructor(target: UpstreamTarget, owner: ConnectionOwner, exchange: NetExchange, options: ConnectOptions) {
    this.target = target;
    this.#owner = owner;
    this.#exchange = exchange;
    exchange.carrier = this;
    const onread = { buffer: () => this.#buffer.window, callback: (length: number) => this.#onRead(length) };
    const socket = openSocket(target, options, onread);
    this.#socket = socket;
    socket.on("connectionAttempt", (ip: string, port: number) => this.attempts.push(formatAddress(ip, port)));
    socket.once(target.protocol === "https:" ? "secureConnect" : "connect", () => this.#onConnect());
    socket.on("error", (error) => (this.#error ??= error));
    socket.on("end", () => this.#onPeerClosed());
    socket.on("close", () => this.#onSocketClosed());
  }

  /** Engine's own limit of an idle connection in seconds, -1 when it did not say. */
  get keepAliveS(): number {
    return this.#reader.keepAliveS;
  }

  get requestTaken(): boolean {
    return this.#sent && this.#socket.writableLength === 0;
  }

  /** Takes the next exchange; its request goes out with `send`. */
  attach(exchange: NetExchange): void {
    this.#exchange = exchange;
    exchange.carrier = this;
  }

  send(): void {
    const exchange = this.#exchange;
    if (this.#closed || exchange === undefined) return;
    const { head, body, bodyBytes } = exchange;
    exchange.body = [];
    this.#sent = true;
    this.#reader.begin(exchange.handler, exchange.method);
    this.#reader.paused = exchange.paused;
    if (bodyBytes === 0) {
      this.#socket.write(head, "latin1");
    } else if (bodyBytes <= JOINED_BYTES_MAX) {
      const { sendBuffer } = this.#owner;
      this.#socket.write(sendBuffer.join(head, body, bodyBytes));
      if (this.#socket.writableLength > 0) sendBuffer.giveAway();
    } else {
      this.#socket.cork();
      this.#socket.write(head, "latin1");
      for (const part of body) this.#socket.write(part);
      this.#socket.uncork();
    }
    if (exchange.paused) this.#socket.pause();
  }

  abandon(): void {
    this.#exchange = undefined;
    this.close();
  }

  pause(): void {
    if (!this.#sent) return; // `send` looks at the exchange.
    this.#reader.paused = true;
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#sent || this.#closed) return;
    if (this.#held === undefined && this.#reader.state === "open" && !this.#peerClosed) {
      this.#reader.paused = false;
      this.#socket.resume();
      return;
    }
    // The handler is called later, not inside its own call of resume().
    if (this.#resuming) return;
    this.#resuming = true;
    process.nextTick(() => this.#drainHeld());
  }

  completeFraming(): Buffer {
    return this.#sent ? this.#reader.completeFraming() : Buffer.alloc(0);
  }

  /** Gives up the connection at once; an exchange on it hears nothing. */
  close(): void {
    if (this.#closed) return;
    const unsent = this.#sent ? undefined : this.#exchange;
    this.#closed = true;
    this.#exchange = undefined;
    this.#held = undefined;
    this.#reader.stop();
    this.#socket.destroy();
    this.#owner.onClosed(this, unsent);
  }

  /** Ends the exchange with "connect" when the connection did not come about in time. */
  expireConnect(): void {
    this.#fail(
      "connect",
      describeConnectError(
        new Error(`no connection within ${this.target.connectTimeoutMs} ms`),
        this.target,
        this.attempts,
      ),
    );
  }

  get connected(): boolean {
    return this.#connected;
  }

  #onConnect(): void {
    if (this.#closed) return;
    this.#connected = true;
    this.#owner.onReady(this);
  }

  #onRead(length: number): boolean {
    if (this.#closed) return false;
    const exchange = this.#exchange;
    if (exchange === undefined || !this.#sent) {
      this.close();
      return false;
    }
    const buffer = this.#buffer;
    const start = buffer.base;
    const end = start + length;
    const bytes = buffer.bytes;
    if (this.#reader.paused || this.#held !== undefined) {
      // Only TLS still delivers after a pause: what it had decrypted already.
      const copy = Buffer.allocUnsafeSlow(HEADROOM + length);
      bytes.copy(copy, HEADROOM, start, end);
      this.#hold(copy, HEADROOM, copy.length);
      return true;
    }
    const used = this.#reader.read(bytes, start, end);
    if (this.#closed) return false;
    const open = this.#reader.state === "open";
    const holds = open && used < end;
    buffer.afterRead(length, holds || this.#reader.retained);
    if (holds) this.#hold(bytes, used, end);
    this.#noticePause(exchange);
    if (!open) this.#afterBlock(used < end);
    return !this.#closed;
  }

  #noticePause(exchange: NetExchange): void {
    if (!this.#reader.pausedByReturn) return;
    this.#reader.pausedByReturn = false;
    exchange.paused = true;
    this.#socket.pause();
  }

  #hold(bytes: Buffer, start: number, end: number): void {
    (this.#held ??= []).push({ bytes, start, end });
  }

  /** The response has ended or failed. */
  #afterBlock(hasLeftover: boolean): void {
    const exchange = this.#exchange as NetExchange;
    const reader = this.#reader;
    if (reader.state === "failed") {
      this.#fail("protocol", `the engine's answer is not valid HTTP/1.1: ${reader.fault}`);
      return;
    }
    if (hasLeftover) this.retired = true;
    if (!reader.paused) this.#finish(exchange);
  }

  #finish(exchange: NetExchange): void {
    const { trailers, reusable } = this.#reader;
    this.#exchange = undefined;
    this.#sent = false;
    this.#served += 1;
    // An engine that answered before it took the whole request would read the rest of it as the next one.
    const taken = this.#socket.writableLength === 0;
    if (reusable && !this.retired && !this.#peerClosed && taken) {
      if (this.#socket.isPaused()) this.#socket.resume();
      this.#owner.onFree(this);
    } else this.close();
    exchange.end(trailers, taken);
  }

  #drainHeld(): void {
    this.#resuming = false;
    const exchange = this.#exchange;
    if (this.#closed || exchange === undefined || exchange.paused) return;
    const reader = this.#reader;
    reader.paused = false;
    while (this.#held !== undefined && reader.state === "open") {
      const block = this.#held[0] as HeldBlock;
      block.start = reader.read(block.bytes, block.start, block.end);
      if (this.#closed) return;
      this.#noticePause(exchange);
      if (block.start < block.end) break;
      this.#held.shift();
      if (this.#held.length === 0) this.#held = undefined;
    }
    if (reader.state !== "open") this.#afterBlock(this.#held !== undefined);
    else if (reader.paused) return;
    else if (this.#peerClosed) this.#endByPeer();
    else this.#socket.resume();
  }

  #onPeerClosed(): void {
    if (this.#closed) return;
    this.#peerClosed = true;
    if (this.#exchange === undefined || !this.#sent) {
      if (this.#connected) this.close();
      return;
    }
    // What was read before the end comes first.
    if (this.#held === undefined && this.#reader.state === "open") this.#endByPeer();
  }

  #endByPeer(): void {
    const exchange = this.#exchange as NetExchange;
    if (this.#error === undefined && this.#reader.endByClose()) {
      if (this.#reader.paused) return;
      this.#finish(exchange);
      return;
    }
    const cause = this.#error === undefined ? "closed the connection" : `broke the connection (${codeOf(this.#error)})`;
    if (this.#reader.started) this.#fail("truncated", `the engine ${cause} inside its answer`);
    else this.#fail("reset", `the engine ${cause} before it answered`);
  }

  #onSocketClosed(): void {
    if (this.#closed) return;
    if (!this.#connected) {
      this.#fail("connect", describeConnectError(this.#error, this.target, this.attempts), lacksMeans(this.#error));
      return;
    }
    this.#onPeerClosed();
  }

  #fail(kind: UpstreamFailure, message: string, ours = false): void {
    const exchange = this.#exchange;
    const reused = kind === "reset" && this.#served > 0;
    const completeFraming = this.#reader.completeFraming();
    this.#exchange = undefined; // Failed here, so not to be carried by another connection.
    this.close();
    exchange?.fail(kind, message, reused, completeFraming, ours);
  }
}

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : error.name;
}
