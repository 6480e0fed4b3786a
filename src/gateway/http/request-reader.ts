import { ChunkWalker } from "../upstream/chunk-walker.ts";
import { bodyBuffer } from "./body-memory.ts";
import { RequestHeadReader } from "./request-head-reader.ts";

/**
 * Turns the bytes of one connection into requests, one after another; knows no sockets.
 *
 * Invariants:
 *   R1. However the bytes are cut into reads, the sink is told the same heads, payload and ends.
 *   R2. Behind the end of a request nothing is read until `next`; behind a fault nothing ever.
 *   R3. What a body's pieces are made of is the sink's: no piece lies in memory that is read into again.
 */
export interface RequestSink {
  /** The head is in `reader.head`. */
  onHead(): void;
  onBody(piece: Buffer): void;
  onBodyEnd(): void;
}

const HEAD = 0;
const LENGTH = 1;
const CHUNKED = 2;
const TRAILERS = 3;
const ENDED = 4;
const FAILED = 5;

/** Trailers that would say something of the framing: a reader that believes them frames another request. */
const FRAMING_TRAILER = /^(?:content-length|transfer-encoding|host)$/i;

export class RequestReader {
  readonly head = new RequestHeadReader();
  readonly #sink: RequestSink;
  readonly #chunks = new ChunkWalker();
  #phase = HEAD;
  #remaining = 0;
  /** A byte of a head has come that is not whole yet. */
  begun = false;

  constructor(sink: RequestSink) {
    this.#sink = sink;
    this.head.beginHead();
  }

  get fault(): string | undefined {
    return this.#phase === FAILED ? (this.head.fault ?? this.#chunks.fault ?? "the trailers are malformed") : undefined;
  }

  /** The fault lies in a body whose head was told. */
  faultInBody = false;

  get ended(): boolean {
    return this.#phase === ENDED;
  }

  /** Bytes that a body with a length still lacks; 0 for all else. */
  get remaining(): number {
    return this.#phase === LENGTH ? this.#remaining : 0;
  }

  /** Goes on with the request behind the one that has ended. */
  next(): void {
    this.#phase = HEAD;
    this.begun = false;
    this.head.beginHead();
  }

  /** Returns the position behind the last byte used; fewer than all are used behind the end of a request and at a fault. */
  read(bytes: Buffer, start: number, end: number): number {
    let pos = start;
    while (pos < end && this.#phase < ENDED) {
      switch (this.#phase) {
        case HEAD:
          pos = this.#readHead(bytes, pos, end);
          break;
        case LENGTH:
          pos = this.#readPlain(bytes, pos, end);
          break;
        case CHUNKED:
          pos = this.#readChunks(bytes, pos, end);
          break;
        default:
          pos = this.#readTrailers(bytes, pos, end);
      }
    }
    return pos;
  }

  /** A piece of a body with a length, no longer than `remaining`, was read into the sink's own memory. */
  placed(piece: Buffer): void {
    this.#remaining -= piece.length;
    this.#sink.onBody(piece);
    if (this.#remaining === 0 && this.#phase === LENGTH) this.#end();
  }

  #readHead(bytes: Buffer, start: number, end: number): number {
    const { head } = this;
    const pos = head.read(bytes, start, end);
    this.begun = !head.untouched;
    if (head.fault !== undefined) this.#phase = FAILED;
    else if (head.done) this.#takeHead();
    return pos;
  }

  #takeHead(): void {
    const { head } = this;
    this.begun = false;
    if (head.chunked) {
      this.#phase = CHUNKED;
      this.#chunks.begin(false);
    } else {
      this.#phase = LENGTH;
      this.#remaining = Math.max(0, head.contentLength);
    }
    this.#sink.onHead();
    if (this.#phase === LENGTH && this.#remaining === 0) this.#end();
  }

  #end(): void {
    this.#phase = ENDED;
    this.#sink.onBodyEnd();
  }

  #readPlain(bytes: Buffer, start: number, end: number): number {
    const stop = Math.min(end, start + this.#remaining);
    this.#remaining -= stop - start;
    this.#sink.onBody(copyOf(bytes, start, stop));
    if (this.#remaining === 0) this.#end();
    return stop;
  }

  #readChunks(bytes: Buffer, start: number, end: number): number {
    const chunks = this.#chunks;
    const pos = chunks.walk(bytes, start, end, 0);
    if (chunks.count > 0) this.#sink.onBody(payloadOf(bytes, chunks));
    if (chunks.fault !== undefined) this.#failBody();
    else if (chunks.last) {
      this.#phase = TRAILERS;
      this.head.beginTrailers();
    }
    return pos;
  }

  #readTrailers(bytes: Buffer, start: number, end: number): number {
    const { head } = this;
    const pos = head.read(bytes, start, end);
    if (head.fault !== undefined) this.#failBody();
    else if (head.done) {
      if (head.fields.some((name, at) => at % 2 === 0 && FRAMING_TRAILER.test(name))) this.#failBody();
      else this.#end();
    }
    return pos;
  }

  #failBody(): void {
    this.#phase = FAILED;
    this.faultInBody = true;
  }
}

function copyOf(bytes: Buffer, start: number, end: number): Buffer {
  const piece = bodyBuffer(end - start);
  bytes.copy(piece, 0, start, end);
  return piece;
}

/** All payload of a walk in one piece: a client may send a byte a chunk, and each must not cost an object. */
function payloadOf(bytes: Buffer, { offsets, count }: ChunkWalker): Buffer {
  let length = 0;
  for (let i = 0; i < count; i += 2) length += (offsets[i + 1] as number) - (offsets[i] as number);
  const piece = bodyBuffer(length);
  let at = 0;
  for (let i = 0; i < count; i += 2) at += bytes.copy(piece, at, offsets[i], offsets[i + 1]);
  return piece;
}
