/**
 * Memory for request bodies, over all requests of the process: per-request limits alone let a few hundred image
 * requests fill the machine.
 */
export class BufferBudget {
  #max: number;
  #used = 0;

  constructor(bytesMax: number) {
    this.#max = bytesMax;
  }

  get usedBytes(): number {
    return this.#used;
  }

  get maxBytes(): number {
    return this.#max;
  }

  setMax(bytesMax: number): void {
    this.#max = bytesMax;
  }

  /** False when the bytes do not fit; then nothing is taken. */
  take(bytes: number): boolean {
    if (this.#used + bytes > this.#max) return false;
    this.#used += bytes;
    return true;
  }

  give(bytes: number): void {
    this.#used -= bytes;
  }
}
