import { bodyBlocks } from "./body-blocks.ts";

/** Smaller pieces are left to the garbage collector, which copes with them; above, a second of full load would be 100 MB and more for it. */
export const FREED_BYTES_MIN = 8 * 1024;

/**
 * The memory of a collected body. Gives the budget its bytes back once, whoever comes first: a commit, an end or a refusal.
 *
 * Invariants:
 *   M1. Memory is freed at once only on the caller's word that nothing looks at it any more, not even an unfinished write. On no
 *       such word the collector frees it when it can.
 *   M2. Freed memory is detached: who still had a view of it would find it empty, never another body.
 */
export class BodyMemory {
  readonly #chunks: readonly Buffer[];
  #give: (() => void) | null;

  constructor(chunks: readonly Buffer[], give: () => void) {
    this.#chunks = chunks;
    this.#give = give;
  }

  /** `unused`: nothing looks at the bytes any more. A few megabytes a call are else a full collection every dozen calls. */
  free(unused: boolean): void {
    if (this.#give === null) return;
    this.#give();
    this.#give = null;
    if (!unused) return;
    for (const chunk of this.#chunks) freeMemory(chunk);
  }
}

/** For a piece of a body: alone in its memory where that is worth being freed. */
export const bodyBuffer = (length: number): Buffer =>
  length >= FREED_BYTES_MIN ? Buffer.allocUnsafeSlow(length) : Buffer.allocUnsafe(length);

/** Of bytes that nothing looks at any more, where they are worth it and lie alone. */
export function freeMemory({ buffer, length }: Buffer): void {
  if (bodyBlocks.giveBack(buffer)) return;
  if (length >= FREED_BYTES_MIN && length === buffer.byteLength && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
