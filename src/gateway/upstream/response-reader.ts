import { ChunkWalker } from "./chunk-walker.ts";
import type { BodyFraming, UpstreamHandler } from "./port.ts";
import { HEADROOM } from "./read-buffer.ts";
import { ResponseHeadReader } from "./response-head-reader.ts";

/**
 * Turns the bytes of one response after another into the calls of a handler; knows no sockets. It makes every call but
 * `onEnd` and `onError`, which belong to the owner of the connection.
 *
 * Invariants:
 *   R1. However the bytes are cut into reads, the handler sees the same head, payload, trailers and end.
 *   R2. After `stop()`, a fault or the end no call is made.
 *   R3. While `paused` no call is made.
 */
export const INFORMATIONAL_MAX = 16;

export type ReaderState = "open" | "ended" | "failed" | "stopped";

const HEAD = 0;
const LENGTH = 1;
const CLOSE = 2;
const CHUNKED = 3;
const TRAILERS = 4;

const NO_TRAILERS: readonly string[] = [];
const NO_BYTES = Buffer.alloc(0);
const LINE_END = Buffer.from("\r\n");

export class ResponseReader {
  state: ReaderState = "stopped";
  paused = false;
  /** `paused` was set because `onData` returned false. Cleared by the owner. */
  pausedByReturn = false;
  /** A byte of the response has come. */
  started = false;
  fault = "";
  trailers: readonly string[] = NO_TRAILERS;
  /** The handler still holds bytes of the block last read. */
  retained = false;
  /** Once ended: nothing speaks against another request on the connection. */
  reusable = false;

  readonly #fields = new ResponseHeadReader();
  readonly #chunks = new ChunkWalker();
  #handler: UpstreamHandler | undefined;
  #phase = HEAD;
  #isHead = false;
  #informational = 0;
  #remaining = 0;
  #passThrough = false;
  /** The framing element begun at the end of the last block, to stand in front of the next one. Most connections never need it. */
  #carry: Buffer = NO_BYTES;
  #carried = 0;
  // Token streams bring reads of equal length into the same place, so the last view often fits again.
  #view: Buffer = NO_BYTES;
  #viewOf: Buffer = NO_BYTES;
  #viewStart = 0;

  begin(handler: UpstreamHandler, method: string): void {
    this.state = "open";
    this.paused = false;
    this.pausedByReturn = false;
    this.started = false;
    this.fault = "";
    this.trailers = NO_TRAILERS;
    this.reusable = false;
    this.#handler = handler;
    this.#phase = HEAD;
    this.#isHead = method === "HEAD";
    this.#informational = 0;
    this.#passThrough = false;
    this.#carried = 0;
    this.#fields.beginHead();
  }

  stop(): void {
    this.state = "stopped";
    this.#handler = undefined;
  }

  /** Seconds the engine says it keeps an idle connection, -1 when it does not say. */
  get keepAliveS(): number {
    return this.#fields.keepAliveS;
  }

  /**
   * Reads a block. The `HEADROOM` bytes in front of `start` may be overwritten when a chunk-size line was cut, so they must be nobody's.
   * Returns the position behind the last byte used; fewer than all are used when the response ended, failed, was stopped or paused.
   */
  read(bytes: Buffer, start: number, end: number): number {
    this.retained = false;
    this.started = true;
    let pos = start;
    while (pos < end && this.state === "open" && !this.paused) {
      switch (this.#phase) {
        case HEAD:
          pos = this.#readHead(bytes, pos, end);
          break;
        case CHUNKED:
          pos = this.#passThrough ? this.#passChunks(bytes, pos, end) : this.#unframe(bytes, pos, end);
          break;
        case TRAILERS:
          pos = this.#readTrailers(bytes, pos, end);
          break;
        default:
          pos = this.#readPlain(bytes, pos, end);
      }
    }
    return pos;
  }

  /** The sender has closed its side: true when that ends the body, as it does without any length. */
  endByClose(): boolean {
    if (this.state !== "open" || this.#phase !== CLOSE) return false;
    this.#finish();
    this.reusable = false;
    return true;
  }

  /** What must follow the bytes passed on by `onChunks` before another chunk can. */
  completeFraming(): Buffer {
    const missing = this.#phase === CHUNKED && this.#passThrough ? this.#chunks.missing : -1;
    if (missing === -1) return NO_BYTES;
    return missing === 0 ? LINE_END : Buffer.concat([Buffer.alloc(missing, "\n"), LINE_END]);
  }

  #fail(fault: string): void {
    this.state = "failed";
    this.fault = fault;
  }

  #finish(): void {
    this.state = "ended";
    this.reusable = this.#fields.minor === 1 && !this.#fields.closes && this.#isFramedPlainly();
    this.#viewOf = NO_BYTES;
    this.#view = NO_BYTES;
  }

  /**
   * A sender that announces a body where none may follow might send it all the same, which would be taken for the next response. Such
   * answers are rare enough (HEAD, 304) to pay for each with its connection.
   */
  #isFramedPlainly(): boolean {
    const { status, chunked, contentLength } = this.#fields;
    return !(chunked || contentLength > 0) || !(this.#isHead || status === 204 || status === 304);
  }

  #readHead(bytes: Buffer, start: number, end: number): number {
    const fields = this.#fields;
    const pos = fields.read(bytes, start, end);
    if (fields.fault !== undefined) this.#fail(fields.fault);
    else if (fields.done && fields.status < 200) this.#takeInformational();
    else if (fields.done) this.#takeHead();
    return pos;
  }

  #takeInformational(): void {
    const { status, fields } = this.#fields;
    this.#informational += 1;
    if (status === 101) this.#fail("the engine switched protocols unasked");
    else if (this.#informational > INFORMATIONAL_MAX) this.#fail("too many informational answers");
    else {
      this.#fields.beginHead();
      if (status !== 100) this.#handler?.onInformational(status, fields);
    }
  }

  #takeHead(): void {
    const { status, fields, contentLength } = this.#fields;
    const framing = this.#framing();
    this.#remaining = framing === "length" ? contentLength : 0;
    this.#phase = framing === "chunked" ? CHUNKED : framing === "close" ? CLOSE : LENGTH;
    const head = {
      status,
      rawHeaders: fields,
      framing,
      contentLength: framing === "length" ? contentLength : undefined,
    };
    const wantsChunks = this.#handler?.onHead(head) === true;
    if (this.state !== "open") return;
    if (framing === "chunked") {
      this.#passThrough = wantsChunks;
      this.#chunks.begin(wantsChunks);
    } else if (framing !== "close" && this.#remaining === 0) {
      this.#finish();
    }
  }

  #framing(): BodyFraming {
    const { status, chunked, contentLength } = this.#fields;
    if (this.#isHead || status === 204 || status === 304) return "none";
    if (chunked) return "chunked";
    return contentLength >= 0 ? "length" : "close";
  }

  #readPlain(bytes: Buffer, start: number, end: number): number {
    const stop = this.#phase === LENGTH ? Math.min(end, start + this.#remaining) : end;
    if (this.#phase === LENGTH) this.#remaining -= stop - start;
    this.#deliver(bytes, start, stop);
    if (this.#phase === LENGTH && this.#remaining === 0 && this.state === "open") this.#finish();
    return stop;
  }

  #deliver(bytes: Buffer, start: number, end: number): void {
    if (this.#handler?.onData(this.#viewed(bytes, start, end)) === false && this.state === "open") {
      this.paused = true;
      this.pausedByReturn = true;
    }
  }

  /** Payload of a read in one piece: the chunks' framing is closed up inside the read's own memory. */
  #unframe(bytes: Buffer, start: number, end: number): number {
    const chunks = this.#chunks;
    const pos = chunks.walk(bytes, start, end, 0);
    const offsets = chunks.offsets;
    if (chunks.count > 0) {
      const first = offsets[0] as number;
      let last = offsets[1] as number;
      for (let i = 2; i < chunks.count; i += 2) {
        const from = offsets[i] as number;
        const to = offsets[i + 1] as number;
        bytes.copyWithin(last, from, to);
        last += to - from;
      }
      this.#deliver(bytes, first, last);
    }
    this.#afterWalk();
    return pos;
  }

  #passChunks(bytes: Buffer, start: number, end: number): number {
    const chunks = this.#chunks;
    const carried = this.#carried;
    if (carried > 0) this.#carry.copy(bytes, start - carried, 0, carried);
    this.#carried = 0;
    const wasLarge = chunks.large;
    const pos = chunks.walk(bytes, start, end, carried);
    if (wasLarge) {
      if (chunks.count > 0) this.#passLarge(bytes);
    } else {
      if (pos === end && !chunks.last && !chunks.large && chunks.fault === undefined) this.#carryFrom(bytes, pos);
      this.#passWhole(bytes, start - carried);
    }
    this.#afterWalk();
    return pos;
  }

  #afterWalk(): void {
    if (this.state !== "open") return;
    if (this.#chunks.fault !== undefined) this.#fail(this.#chunks.fault);
    else if (this.#chunks.last) {
      this.#phase = TRAILERS;
      this.#fields.beginTrailers();
    }
  }

  /** Keeps the element that is not whole yet: at most 16 digits and CR, since extensions are cut out. */
  #carryFrom(bytes: Buffer, end: number): void {
    const { cuts, cutCount, heldFrom } = this.#chunks;
    if (heldFrom === end) return;
    if (this.#carry === NO_BYTES) this.#carry = Buffer.allocUnsafeSlow(HEADROOM);
    let from = heldFrom;
    for (let i = 0; i < cutCount; i += 2) {
      const cutFrom = cuts[i] as number;
      const cutTo = cuts[i + 1] as number;
      if (cutTo <= from) continue;
      this.#carried += bytes.copy(this.#carry, this.#carried, from, cutFrom);
      from = cutTo;
    }
    this.#carried += bytes.copy(this.#carry, this.#carried, from, end);
  }

  #passWhole(bytes: Buffer, rawStart: number): void {
    const chunks = this.#chunks;
    let rawEnd = chunks.heldFrom;
    if (chunks.cutCount > 0) rawEnd = this.#closeCuts(bytes, rawStart);
    if (rawEnd <= rawStart) return;
    if (rawStart !== 0) {
      const offsets = chunks.offsets;
      for (let i = 0; i < chunks.count; i += 1) offsets[i] = (offsets[i] as number) - rawStart;
    }
    const raw = this.#viewed(bytes, rawStart, rawEnd);
    if (this.#handler?.onChunks(raw, chunks) === "retained") this.#retain();
  }

  /** Closes up the extensions between `rawStart` and the held part, spans included; returns the new end. */
  #closeCuts(bytes: Buffer, rawStart: number): number {
    const { cuts, cutCount, offsets, count, heldFrom } = this.#chunks;
    let to = rawStart;
    let from = rawStart;
    let span = 0;
    for (let i = 0; i <= cutCount; i += 2) {
      const stop = i < cutCount ? Math.min(cuts[i] as number, heldFrom) : heldFrom;
      if (stop > from) {
        if (to !== from) bytes.copyWithin(to, from, stop);
        // A payload range lies wholly in one stretch between cuts.
        for (; span < count && (offsets[span] as number) < stop; span += 2) {
          offsets[span] = (offsets[span] as number) - (from - to);
          offsets[span + 1] = (offsets[span + 1] as number) - (from - to);
        }
        to += stop - from;
      }
      from = Math.max(from, i < cutCount ? (cuts[i + 1] as number) : from);
    }
    return to;
  }

  /** A stretch of a large chunk goes on as a chunk of its own. */
  #passLarge(bytes: Buffer): void {
    const chunks = this.#chunks;
    const start = chunks.offsets[0] as number;
    const end = chunks.offsets[1] as number;
    const line = Buffer.from(`${(end - start).toString(16)}\r\n`);
    const raw = Buffer.concat([line, bytes.subarray(start, end), LINE_END]);
    chunks.offsets[0] = line.length;
    chunks.offsets[1] = line.length + end - start;
    this.#handler?.onChunks(raw, chunks); // Its own memory: retaining it needs nothing.
  }

  #readTrailers(bytes: Buffer, start: number, end: number): number {
    const fields = this.#fields;
    const pos = fields.read(bytes, start, end);
    if (fields.fault !== undefined) this.#fail(fields.fault);
    else if (fields.done) {
      this.trailers = fields.fields;
      this.#finish();
    }
    return pos;
  }

  #retain(): void {
    this.retained = true;
    this.#viewOf = NO_BYTES;
    this.#view = NO_BYTES;
  }

  #viewed(bytes: Buffer, start: number, end: number): Buffer {
    if (this.#viewOf === bytes && this.#viewStart === start && this.#view.length === end - start) return this.#view;
    this.#viewOf = bytes;
    this.#viewStart = start;
    this.#view = bytes.subarray(start, end);
    return this.#view;
  }
}
