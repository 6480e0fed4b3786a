/**
 * The memory one socket reads into. Owns the rule that makes reading without copies safe.
 *
 * Invariants:
 *   B1. Memory is never shared between sockets.
 *   B2. Bytes that were handed over (somebody still holds a view of them, such as an unfinished write) are never written again:
 *       the next read lands behind them or in new memory.
 *   B3. In front of where a read lands there are `HEADROOM` bytes that nobody else holds: the response reader puts the part of a
 *       chunk-size line there that came with the read before, so that line and chunk lie together.
 */
export const HEADROOM = 32;
/** Of a stream that waits for its next event, and thousands may do so. */
const SIZE_FIRST = 1_024;
/** As soon as more than that came at once, or something was kept. */
const SIZE_MIN = 4_096;
const SIZE_MAX = 65_536;
/** Below this much room behind handed-over bytes new memory is taken: small reads would cost more system calls than they save. */
const REST_MIN = 2_048;

export class ReadBuffer {
  /** The memory; a read lands at `base`. */
  bytes: Buffer;
  base = HEADROOM;
  #size = SIZE_FIRST;
  #window: Uint8Array;

  constructor() {
    this.bytes = Buffer.allocUnsafeSlow(HEADROOM + SIZE_FIRST);
    this.#window = this.bytes.subarray(HEADROOM);
  }

  /** Where the next read may land. */
  get window(): Uint8Array {
    return this.#window;
  }

  /** To be called after each read of `length` bytes; `handedOver` when a view of them is still held. */
  afterRead(length: number, handedOver: boolean): void {
    const filled = length === this.#window.length;
    if (filled && this.base === HEADROOM && this.#size < SIZE_MAX) {
      this.#size = Math.max(SIZE_MIN, 2 * this.#size);
      this.#renew();
    } else if (handedOver) {
      this.#skip(this.base + length);
    } else if (filled && this.base > HEADROOM) {
      this.#renew();
    }
  }

  #skip(used: number): void {
    if (this.bytes.length - used < REST_MIN + HEADROOM) {
      this.#size = Math.max(SIZE_MIN, this.#size);
      this.#renew();
      return;
    }
    this.base = used + HEADROOM;
    this.#window = this.bytes.subarray(this.base);
  }

  #renew(): void {
    this.bytes = Buffer.allocUnsafeSlow(HEADROOM + this.#size);
    this.base = HEADROOM;
    this.#window = this.bytes.subarray(HEADROOM);
  }
}
