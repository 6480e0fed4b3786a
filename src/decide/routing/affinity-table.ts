import type { PrefixBlocks } from "./prefix-blocks.ts";

/** What a request would like its endpoint to have. */
export interface AffinityWish {
  /** Hash of the session's name, which comes first. */
  readonly session: number | null;
  readonly prefix: PrefixBlocks | null;
}

export const AFFINITY_ENTRIES_MAX = 65_536;
/** The latest of those that have a prefix warm: more than a few copies of it say that it is warm nearly everywhere. */
const HOLDERS_MAX = 4;
/** A shorter match than this part of the prompt is a form that many share, and no reason to go where it is. */
const MATCH_PART_MIN = 0.5;

export interface WarmMatch {
  /** Endpoints by id, the latest first. */
  readonly ids: readonly string[];
  /** Of the prompt's bytes; 1 for a session. */
  readonly part: number;
}

/**
 * Which endpoints were given which prefixes and sessions last: a guess at their caches, bounded, and of this gateway alone.
 *
 * Invariants:
 *   A1. At most `entriesMax` entries; the one that was longest without use goes first.
 *   A2. An id in it may be of an endpoint that left: who asks knows which are there.
 */
export class AffinityTable {
  readonly #holders = new Map<number, readonly string[]>();
  readonly #entriesMax: number;

  constructor(entriesMax: number = AFFINITY_ENTRIES_MAX) {
    this.#entriesMax = entriesMax;
  }

  get size(): number {
    return this.#holders.size;
  }

  /** What is warm for the request, the best first. Nothing is touched by asking. */
  matches({ session, prefix }: AffinityWish): WarmMatch[] {
    if (session !== null) return this.#match(session, 1);
    if (prefix === null) return [];
    const found: WarmMatch[] = [];
    for (let at = prefix.hashes.length - 1; at >= 0; at -= 1) {
      const part = Math.min(1, prefix.ends[at]! / prefix.bytes);
      if (at < prefix.head && part < MATCH_PART_MIN) break;
      found.push(...this.#match(prefix.hashes[at]!, part));
    }
    return found;
  }

  /** The endpoint has it from now on. */
  note({ session, prefix }: AffinityWish, id: string): void {
    if (session !== null) this.#put(session, [id]);
    for (const hash of prefix?.hashes ?? []) {
      const others = this.#holders.get(hash)?.filter((other) => other !== id) ?? [];
      this.#put(hash, [id, ...others.slice(0, HOLDERS_MAX - 1)]);
    }
  }

  #match(hash: number, part: number): WarmMatch[] {
    const ids = this.#holders.get(hash);
    return ids === undefined ? [] : [{ ids, part }];
  }

  #put(hash: number, ids: readonly string[]): void {
    this.#holders.delete(hash);
    if (this.#holders.size >= this.#entriesMax) this.#holders.delete(this.#holders.keys().next().value!);
    this.#holders.set(hash, ids);
  }
}
