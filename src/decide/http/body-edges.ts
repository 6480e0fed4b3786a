import { HEAD_BYTES, TAIL_BYTES, readBodyUsage, type BodyFacts } from "./body-usage.ts";

/**
 * The two ends of a JSON answer that is too large to be held: it passes on piece by piece, and what it says of usage stands in what is
 * kept here. For bodies larger than both ends together.
 */
export class BodyEdges {
  readonly #head = Buffer.allocUnsafe(HEAD_BYTES);
  #headBytes = 0;
  readonly #tail = Buffer.allocUnsafe(TAIL_BYTES);
  /** Where the next byte goes; the oldest one stands there. */
  #at = 0;

  /** Keeps no reference to `payload`. */
  push(payload: Buffer): void {
    if (this.#headBytes < HEAD_BYTES) this.#headBytes += payload.copy(this.#head, this.#headBytes);
    const last = payload.length > TAIL_BYTES ? payload.subarray(payload.length - TAIL_BYTES) : payload;
    const fits = last.copy(this.#tail, this.#at);
    if (fits < last.length) last.copy(this.#tail, 0, fits);
    this.#at = (this.#at + last.length) % TAIL_BYTES;
  }

  facts(): BodyFacts {
    return readBodyUsage(Buffer.concat([this.#head, this.#tail.subarray(this.#at), this.#tail.subarray(0, this.#at)]));
  }
}
