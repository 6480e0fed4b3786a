import { mix, TOKEN_BYTES } from "./token-text.ts";

/** Tokens per cache block, as in the engines' defaults. Hits come in whole blocks. */
export const BLOCK_TOKENS = 16;

/** Chained block hashes: two prompts share a block's hash only when everything before it is the same too. */
export function blockHashes(text: string): number[] {
  const bytes = Buffer.from(text);
  const size = BLOCK_TOKENS * TOKEN_BYTES;
  const hashes: number[] = [];
  let hash = 0x811c9dc5;
  for (let start = 0; start + size <= bytes.length; start += size) {
    for (let index = start; index < start + size; index += 1) hash = Math.imul(hash ^ (bytes[index] ?? 0), 0x01000193);
    hash = mix(hash, start);
    // 21 more bits from the position keep chance hits out of long runs.
    hashes.push(hash * 2_097_152 + ((start / size) % 2_097_152));
  }
  return hashes;
}

/** Which blocks the engine still holds, oldest use out first. */
export class PrefixCache {
  readonly #blocks = new Set<number>();
  readonly #capacity: number;

  constructor(capacityBlocks: number) {
    this.#capacity = capacityBlocks;
  }

  get size(): number {
    return this.#blocks.size;
  }

  /** Tokens of the prompt that are held, after which all its blocks are held and fresh. */
  use(hashes: readonly number[], promptTokens: number): number {
    let held = 0;
    while (held < hashes.length && this.#blocks.has(hashes[held] ?? -1)) held += 1;
    for (const hash of hashes) {
      this.#blocks.delete(hash);
      this.#blocks.add(hash);
    }
    for (const oldest of this.#blocks) {
      if (this.#blocks.size <= this.#capacity) break;
      this.#blocks.delete(oldest);
    }
    // The last token is always computed: without it there is nothing to sample from.
    const wholeBlocks = Math.floor(Math.max(0, promptTokens - 1) / BLOCK_TOKENS);
    return Math.min(held, wholeBlocks) * BLOCK_TOKENS;
  }

  clear(): void {
    this.#blocks.clear();
  }
}
