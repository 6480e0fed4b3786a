import type { PayloadSpans } from "./port.ts";

/**
 * Walks the framing of a chunked body without touching its payload. Bytes go in as they were read, cut anywhere; out come the
 * payload ranges and which bytes of the framing may be passed on as they are. Nothing is allocated unless one read holds more
 * chunks than any before.
 *
 * Invariants:
 *   W1. `heldFrom` never lies inside a size line or between CR and LF: what is passed on ends at a whole framing element.
 *   W2. The last chunk (size 0) is never part of what may be passed on.
 *   W3. Chunk extensions are cut out: they belong to one hop, and a client could read them in another way than this walker.
 */
const EXTENSION_BYTES_MAX = 256;
/**
 * A larger chunk is not passed on in its own framing: should the engine break off inside it, as many bytes would have to be made up
 * to complete it for the client.
 */
export const WHOLE_CHUNK_BYTES_MAX = 262_144;

const SIZE = 0;
const EXTENSION = 1;
const SIZE_LF = 2;
const DATA = 3;
const DATA_CR = 4;
const DATA_LF = 5;
const LAST = 6;

const CR = 13;
const LF = 10;
const SEMICOLON = 59;
const DIGITS_MAX = 16;

const HEX = new Int8Array(256).fill(-1);
for (let i = 0; i < 16; i += 1) {
  HEX[i.toString(16).charCodeAt(0)] = i;
  HEX[i.toString(16).toUpperCase().charCodeAt(0)] = i;
}

/** Of all walkers that have met no chunk yet, such as those of requests, which are hardly ever chunked. */
const NONE = new Int32Array(0);

export class ChunkWalker implements PayloadSpans {
  /** Payload ranges of the last walk; the first `count` numbers are valid. */
  offsets: Int32Array = NONE;
  count = 0;
  /** Ranges of chunk extensions of the last walk, in order; the first `cutCount` numbers are valid. */
  cuts: Int32Array = NONE;
  cutCount = 0;
  /** Framing from here on is not whole yet, or must not be passed on. */
  heldFrom = 0;
  /** Inside a chunk that is not passed on in its own framing. */
  large = false;
  fault: string | undefined;

  #wholeMax = WHOLE_CHUNK_BYTES_MAX;
  #state = SIZE;
  #size = 0;
  #digits = 0;
  #extensionBytes = 0;
  #remaining = 0;

  /** `passThrough`: chunks above `WHOLE_CHUNK_BYTES_MAX` are set apart as `large`. */
  begin(passThrough: boolean): void {
    this.#wholeMax = passThrough ? WHOLE_CHUNK_BYTES_MAX : Number.POSITIVE_INFINITY;
    this.fault = undefined;
    this.large = false;
    this.#state = SIZE;
    this.#size = 0;
    this.#digits = 0;
    this.#extensionBytes = 0;
    this.#remaining = 0;
  }

  /** The size line of the last chunk was read: trailers follow. */
  get last(): boolean {
    return this.#state === LAST;
  }

  /** Payload bytes that the chunk begun still lacks, and -1 when no chunk has been begun: what must be made up is these and CR LF. */
  get missing(): number {
    return this.#state >= DATA && this.#state <= DATA_LF && !this.large ? this.#remaining : -1;
  }

  /**
   * Walks on from `start`; `pending` bytes in front of it are the element begun in the read before. Stops before `end` only behind the
   * last chunk's size line, at either end of a large chunk, and at a fault.
   */
  walk(bytes: Buffer, start: number, end: number, pending: number): number {
    this.count = 0;
    this.cutCount = 0;
    this.heldFrom = pending > 0 ? start - pending : end;
    if (this.large) return this.#walkLarge(bytes, start, end);
    let pos = start;
    let lineStart = start - pending;
    if (this.#state === EXTENSION) this.#cutFrom(pos);
    while (pos < end) {
      if (this.#state === DATA) {
        pos = this.#takeData(pos, end);
        if (pos === end) break;
      }
      if (this.#state === SIZE && this.#digits === 0) lineStart = pos;
      const byte = bytes[pos] as number;
      switch (this.#state) {
        case SIZE:
          pos = this.#readSize(bytes, pos, end);
          break;
        case EXTENSION:
          pos = this.#skipExtension(bytes, pos, end);
          break;
        case SIZE_LF:
          if (byte !== LF) this.fault = "a chunk size line does not end in CR LF";
          else if (this.#endSizeLine()) pos += 1;
          else {
            this.heldFrom = lineStart;
            return pos + 1;
          }
          break;
        case DATA_CR:
          if (byte !== CR) this.fault = "a chunk is longer than its size";
          else {
            lineStart = pos;
            this.#state = DATA_LF;
            pos += 1;
          }
          break;
        default:
          if (byte !== LF) this.fault = "a chunk does not end in CR LF";
          else {
            this.#beginSize();
            pos += 1;
          }
      }
      if (this.fault !== undefined) break;
    }
    if (this.#state === EXTENSION) this.#cutTo(pos);
    const whole = this.#state === DATA || this.#state === DATA_CR || (this.#state === SIZE && this.#digits === 0);
    this.heldFrom = whole ? pos : lineStart;
    return pos;
  }

  #walkLarge(bytes: Buffer, start: number, end: number): number {
    let pos = start;
    if (this.#state === DATA) return this.#takeData(pos, end);
    if (this.#state === DATA_CR) {
      if (bytes[pos] === CR) {
        this.#state = DATA_LF;
        pos += 1;
      } else this.fault = "a chunk is longer than its size";
    }
    if (pos < end && this.fault === undefined) {
      if (bytes[pos] === LF) {
        this.large = false;
        this.#beginSize();
        pos += 1;
      } else this.fault = "a chunk does not end in CR LF";
    }
    return pos;
  }

  #beginSize(): void {
    this.#state = SIZE;
    this.#size = 0;
    this.#digits = 0;
    this.#extensionBytes = 0;
  }

  #readSize(bytes: Buffer, start: number, end: number): number {
    let pos = start;
    for (; pos < end; pos += 1) {
      const byte = bytes[pos] as number;
      const value = HEX[byte] as number;
      if (value >= 0) {
        this.#digits += 1;
        this.#size = this.#size * 16 + value;
        if (this.#digits > DIGITS_MAX || this.#size > Number.MAX_SAFE_INTEGER) {
          this.fault = "a chunk size is too large";
          return pos;
        }
        continue;
      }
      if (this.#digits === 0 || (byte !== CR && byte !== SEMICOLON)) {
        this.fault = "a chunk size is malformed";
        return pos;
      }
      if (byte === CR) this.#state = SIZE_LF;
      else {
        this.#state = EXTENSION;
        this.#cutFrom(pos);
      }
      return byte === CR ? pos + 1 : pos;
    }
    return pos;
  }

  #skipExtension(bytes: Buffer, start: number, end: number): number {
    let pos = start;
    for (; pos < end; pos += 1) {
      const byte = bytes[pos] as number;
      if (byte === CR) {
        this.#state = SIZE_LF;
        this.#cutTo(pos);
        return pos + 1;
      }
      this.#extensionBytes += 1;
      if ((byte < 32 && byte !== 9) || byte === 127 || this.#extensionBytes > EXTENSION_BYTES_MAX) {
        this.fault = "a chunk extension is malformed or too long";
        return pos;
      }
    }
    return pos;
  }

  /** False when the walk must stop: at the last chunk and in front of a large one. */
  #endSizeLine(): boolean {
    this.#remaining = this.#size;
    if (this.#size === 0) {
      this.#state = LAST;
      return false;
    }
    this.#state = DATA;
    if (this.#size <= this.#wholeMax) return true;
    this.large = true;
    return false;
  }

  #takeData(pos: number, end: number): number {
    const taken = Math.min(this.#remaining, end - pos);
    if (this.count + 2 > this.offsets.length) this.offsets = doubled(this.offsets);
    this.offsets[this.count] = pos;
    this.offsets[this.count + 1] = pos + taken;
    this.count += 2;
    this.#remaining -= taken;
    if (this.#remaining === 0) this.#state = DATA_CR;
    return pos + taken;
  }

  #cutFrom(pos: number): void {
    if (this.cutCount + 2 > this.cuts.length) this.cuts = doubled(this.cuts);
    this.cuts[this.cutCount] = pos;
  }

  #cutTo(pos: number): void {
    this.cuts[this.cutCount + 1] = pos;
    this.cutCount += 2;
  }
}

function doubled(numbers: Int32Array): Int32Array {
  const grown = new Int32Array(Math.max(16, numbers.length * 2));
  grown.set(numbers);
  return grown;
}
