import type { Piece } from "./key-limits.ts";
import { pieceOf, PIECES } from "./windows.ts";

/** Requests and tokens by pieces of a minute. */
export class PieceCounts {
  readonly #pieces = new Map<number, { requests: number; tokens: number }>();

  get size(): number {
    return this.#pieces.size;
  }

  /** Counts are not below 0. */
  add(piece: number, requests: number, tokens: number): void {
    let counts = this.#pieces.get(piece);
    if (counts === undefined) this.#pieces.set(piece, (counts = { requests: 0, tokens: 0 }));
    counts.requests = Math.max(0, counts.requests + requests);
    counts.tokens = Math.max(0, counts.tokens + tokens);
  }

  has(piece: number): boolean {
    return this.#pieces.has(piece);
  }

  /** Drops what counts no more. */
  forget(now: number): void {
    const oldest = pieceOf(now) - PIECES + 1;
    for (const piece of this.#pieces.keys()) if (piece < oldest) this.#pieces.delete(piece);
  }

  /** Oldest first. */
  list(): Piece[] {
    return [...this.#pieces]
      .map(([piece, { requests, tokens }]) => ({ piece, requests, tokens }))
      .toSorted((a, b) => a.piece - b.piece);
  }
}
