import type { UsageCounts } from "./count-call.ts";

/** One key's use of one model in one day of UTC. */
export interface UsageRow {
  /** Days since 1970. */
  readonly day: number;
  readonly keyId: string;
  /** "" for requests that ended before one was known. */
  readonly model: string;
  readonly counts: UsageCounts;
}

/** What is written in one step. */
export interface UsageFlush {
  /** Grows with each flush of one gateway; written again under the same number, it is done once. */
  readonly seq: number;
  readonly rows: readonly UsageRow[];
}

/** Stands for all keys, or models, beyond as many as are kept apart. No key has such an id. */
export const OTHERS = "(others)";

/** Rows of one flush: a step of a shared store that takes well under a millisecond. */
export const FLUSH_ROWS_MAX = 64;
/** Rows that wait for a store. What comes beyond is counted all the same, but no longer by key and model. */
export const WAITING_ROWS_MAX = 20_000;

/**
 * What was used and is not in the store yet.
 *
 * Invariants:
 *   U1. What is added is in exactly one flush, whose number and rows stay as they are until it is told.
 *   U2. One flush is out at a time.
 *   U3. Nothing that was added is dropped, however long the store is away; rows stay bounded by being added up.
 */
export class UsageBook {
  readonly #rowsMax: number;
  readonly #rows = new Map<string, UsageRow & { readonly counts: Record<string, number> }>();
  #sent: UsageFlush | null = null;
  #seq = 0;

  constructor(rowsMax: number = WAITING_ROWS_MAX) {
    this.#rowsMax = rowsMax;
  }

  /** Rows that are not known to be stored. */
  get waiting(): number {
    return this.#rows.size + (this.#sent?.rows.length ?? 0);
  }

  /** Flushes after which all is stored that was added until now. */
  get flushesLeft(): number {
    return Math.ceil(this.#rows.size / FLUSH_ROWS_MAX) + (this.#sent === null ? 0 : 1);
  }

  /** The sums to add to: good until the next call of anything here. */
  sumsOf(day: number, keyId: string, model: string): Record<string, number> {
    const known = this.#rows.get(nameOf(day, keyId, model));
    if (known !== undefined) return known.counts;
    if (this.#rows.size < this.#rowsMax) return this.#begin(day, keyId, model);
    return this.#rows.get(nameOf(day, OTHERS, OTHERS))?.counts ?? this.#begin(day, OTHERS, OTHERS);
  }

  /** The oldest rows, or those that are out already. Null: there is nothing. */
  take(): UsageFlush | null {
    if (this.#sent !== null || this.#rows.size === 0) return this.#sent;
    const rows: UsageRow[] = [];
    for (const [name, row] of this.#rows) {
      rows.push(row);
      this.#rows.delete(name);
      if (rows.length >= FLUSH_ROWS_MAX) break;
    }
    return (this.#sent = { seq: (this.#seq += 1), rows });
  }

  /** The store has what is out. */
  told(): void {
    this.#sent = null;
  }

  #begin(day: number, keyId: string, model: string): Record<string, number> {
    const counts: Record<string, number> = {};
    this.#rows.set(nameOf(day, keyId, model), { day, keyId, model, counts });
    return counts;
  }
}

const nameOf = (day: number, keyId: string, model: string): string => `${day} ${keyId} ${model}`;
