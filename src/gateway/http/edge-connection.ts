import type { Socket } from "node:net";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { EdgeExchange, type AnswerLines, type ExchangeConnection } from "./edge-exchange.ts";
import {
  DISCARDED_BYTES_MAX,
  expectsContinue,
  refuseExpectation,
  renderRawRefusal,
  type EdgeHandlers,
} from "./edge-port.ts";
import { RequestReader, type RequestSink } from "./request-reader.ts";
import { adoptSocket } from "./adopt-socket.ts";
import { bodyBlocks } from "./body-blocks.ts";

/** Of requests that wait behind a running answer. */
const HELD_BYTES_MAX = 64 * 1024;
/** From this length on a body whose length is known is read into memory of its own, in one piece. */
const PLACED_BYTES_MIN = 16 * 1024;
/** A connection that has sent so much lets the others come first: the system would hand out megabytes of an upload in one go. */
const TURN_BYTES_MAX = 256 * 1024;

/** What all connections of a server have in common. */
export interface EdgeOwner {
  readonly clock: Clock;
  readonly handlers: EdgeHandlers;
  readonly headersTimeoutMs: number;
  readonly keepAliveMs: number;
  /** The server stops: no connection takes another request. */
  readonly closing: boolean;
  /**
   * Where heads and small bodies are read to, for all connections: nothing of it is kept behind a read, whatever is kept is
   * copied.
   */
  readonly readInto: Buffer;
  readonly lines: AnswerLines;
  onClosed(connection: EdgeConnection): void;
}

/**
 * One client connection: reads requests one after another, and carries the exchange that runs.
 *
 * Invariants (those of `EdgeServer`, and):
 *   K1. There is one exchange at most. The next request is read when its answer was taken whole and its body has come whole.
 *   K2. After `over` nothing that comes is looked at; it is counted, and too much of it ends the connection.
 *   K3. When the socket is gone, the exchange hears of it in the same turn, once.
 */
export class EdgeConnection implements ExchangeConnection, RequestSink {
  readonly socket: Socket;
  /** The owner's place for it. */
  index = -1;
  readonly #owner: EdgeOwner;
  readonly #reader = new RequestReader(this);
  #current: EdgeExchange | null = null;
  /** Bytes of the requests that wait. */
  #held: Buffer | null = null;
  #over = false;
  #discarded = 0;
  #feeding = false;
  /** When the connection began to wait for a request, or for the rest of a head. */
  #since: MonoMs;
  #served = false;
  /** Memory for the rest of a body whose length is known. */
  #place: Buffer | null = null;
  #placed = 0;
  /** Since the others last came first. */
  #readBytes = 0;

  constructor(accepted: Socket, owner: EdgeOwner) {
    this.#owner = owner;
    this.#since = owner.clock.mono();
    this.socket = adoptSocket(accepted, {
      buffer: () => this.#window(),
      callback: (length) => this.#onRead(length),
    });
    this.socket.on("error", () => {}); // Its client may leave in any way; "close" follows.
    this.socket.on("drain", () => this.#current?.drained());
    this.socket.on("end", () => this.#onEnd());
    this.socket.on("close", () => this.#onClose());
  }

  /** Waits for a request, of which nothing has come. */
  get idle(): boolean {
    return this.#current === null && !this.#reader.begun;
  }

  get lines(): AnswerLines {
    return this.#owner.lines;
  }

  giveUp(): void {
    this.#over = true;
    this.#held = null;
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** Looks at the clock: heads that come too slowly and connections that nobody uses end. */
  check(now: MonoMs): void {
    const { headersTimeoutMs, keepAliveMs } = this.#owner;
    if (this.#over || this.#current?.taken === false) return;
    const waits = now - this.#since;
    if (this.#reader.begun) {
      if (waits > headersTimeoutMs) this.#refuse("REQUEST_TIMEOUT");
    } else if (waits > (this.#served ? keepAliveMs : headersTimeoutMs)) this.socket.destroy();
  }

  // What the exchange says

  onReader(): void {
    const { reader, complete } = this.#current ?? {};
    if (complete === true) queueMicrotask(() => reader?.onEnd());
  }

  onAnswered(exchange: EdgeExchange): void {
    if (exchange !== this.#current) return;
    this.#since = this.#owner.clock.mono();
    if (this.#feeding) return; // Whoever feeds goes on with it.
    if (this.#held === null) this.#advance();
    else process.nextTick(() => this.#advance());
  }

  // What the reader says

  onHead(): void {
    const { head } = this.#reader;
    this.#served = true;
    if (head.method === "CONNECT") return this.#refuse("METHOD_NOT_ALLOWED");
    const persists = head.minor === 1 ? !head.closes : head.keepsAlive && !head.closes;
    const exchange = new EdgeExchange(this, head, persists && !head.asksToUpgrade && !this.#owner.closing);
    this.#current = exchange;
    const expect = head.minor === 1 ? head.expect : undefined;
    if (expect !== undefined && !expectsContinue(expect)) refuseExpectation(exchange, this.#owner.handlers);
    else this.#owner.handlers.onRequest(exchange, exchange, expect !== undefined);
  }

  onBody(piece: Buffer): void {
    this.#current?.reader?.onData(piece);
  }

  onBodyEnd(): void {
    this.#place = null;
    const exchange = this.#current;
    if (exchange === null || exchange.gone) return;
    exchange.complete = true;
    exchange.reader?.onEnd();
  }

  // What the socket says

  #window(): Uint8Array {
    const { remaining } = this.#reader;
    if (remaining === 0 || this.#over) return this.#owner.readInto;
    if (this.#place === null) {
      if (remaining < PLACED_BYTES_MIN || this.#current?.reader?.holdsAll !== true) return this.#owner.readInto;
      this.#place = bodyBlocks.take(remaining);
      this.#placed = 0;
    }
    return this.#place.subarray(this.#placed, this.#placed + TURN_BYTES_MAX);
  }

  #onRead(length: number): boolean {
    const place = this.#place;
    if (this.#over) {
      this.#place = null;
      this.#discard(length);
    } else if (place !== null) {
      const from = this.#placed;
      this.#placed += length;
      this.#feeding = true;
      this.#reader.placed(place.subarray(from, from + length));
      this.#feeding = false;
      this.#advance();
    } else if (this.#current !== null && this.#reader.ended)
      this.#hold(Buffer.from(this.#owner.readInto.subarray(0, length)));
    else {
      this.#feed(this.#owner.readInto, length, false);
      this.#advance();
    }
    return !this.socket.destroyed && this.#mayReadOn(length);
  }

  /** False: reading goes on in the next turn of the event loop. */
  #mayReadOn(length: number): boolean {
    this.#readBytes += length;
    if (this.#readBytes < TURN_BYTES_MAX) return true;
    this.#readBytes = 0;
    setImmediate(this.#readOn);
    return false;
  }

  readonly #readOn = (): void => {
    if (!this.socket.destroyed && !this.socket.isPaused()) this.socket.resume();
  };

  #discard(length: number): void {
    this.#discarded += length;
    if (this.#discarded > DISCARDED_BYTES_MAX) this.socket.destroy();
  }

  #hold(bytes: Buffer): void {
    const exchange = this.#current;
    if (exchange?.keepsAlive === false) return this.#discard(bytes.length); // Behind the last request nothing is anybody's.
    this.#held = this.#held === null ? bytes : Buffer.concat([this.#held, bytes]);
    if (this.#held.length <= HELD_BYTES_MAX) return;
    this.giveUp();
    if (exchange !== null) exchange.keepsAlive = false;
  }

  #feed(bytes: Buffer, end: number, owned: boolean): void {
    const reader = this.#reader;
    const wasBegun = reader.begun;
    this.#feeding = true;
    const used = reader.read(bytes, 0, end);
    this.#feeding = false;
    if (this.socket.destroyed || this.#over) return;
    if (reader.fault !== undefined) return this.#onFault(reader.fault);
    if (used < end) this.#hold(owned ? bytes.subarray(used, end) : Buffer.from(bytes.subarray(used, end)));
    if (reader.begun && !wasBegun) this.#since = this.#owner.clock.mono();
  }

  /** Goes on behind exchanges that are through: with the requests that wait, or by closing. */
  #advance(): void {
    while (this.#isThrough()) {
      const held = this.#held;
      if (held === null) return;
      this.#held = null;
      this.#feed(held, held.length, true);
    }
  }

  /** Whether the next request may be read now. */
  #isThrough(): boolean {
    const exchange = this.#current;
    if (exchange === null || !exchange.taken || this.socket.destroyed) return false;
    const failed = exchange.status >= 400 && this.#held !== null;
    if (this.#over || !exchange.keepsAlive || this.#owner.closing || failed) {
      this.giveUp();
      this.#current = null;
      this.socket.destroySoon();
      return false;
    }
    if (!this.#reader.ended) return false; // The rest of its body comes first, in the time that an idle connection has.
    this.#since = this.#owner.clock.mono();
    this.#current = null;
    this.#reader.next();
    return true;
  }

  #onFault(fault: string): void {
    const { head, faultInBody } = this.#reader;
    const code = head.tooLarge ? "HEADERS_TOO_LARGE" : head.unknownMethod ? "METHOD_NOT_ALLOWED" : "BAD_REQUEST";
    this.#refuse(code, faultInBody ? undefined : fault);
  }

  /** Bytes that are no request: one answer where its place is free, and the end. */
  #refuse(code: ErrorCode, fault?: string): void {
    this.giveUp();
    const requestId = this.#owner.handlers.onRefused(code);
    const exchange = this.#current;
    if (exchange?.begun === true) {
      this.socket.destroy();
      return;
    }
    exchange?.drop();
    this.#current = null;
    this.socket.end(renderRawRefusal(requestId, code, fault), () => this.socket.destroy());
  }

  /** A client that has ended its side is taken for one that has left; what it was given whole still goes out. */
  #onEnd(): void {
    const exchange = this.#current;
    if (exchange === null || exchange.over) return;
    exchange.drop();
    this.socket.destroy();
  }

  #onClose(): void {
    this.#current?.drop();
    this.#current = null;
    this.giveUp();
    this.#owner.onClosed(this);
  }
}
