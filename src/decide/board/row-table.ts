/** Rows that are new or different, as they are sent, and the keys of those that are gone. */
export interface TableChange {
  readonly set: readonly (readonly [key: string, text: string])[];
  readonly gone: readonly string[];
}

/**
 * One table of the board as all boards have it: each row as the text that is sent.
 *
 * Invariants:
 *   T1. Laying every change over an empty table gives `texts`, in any order of keys.
 *   T2. A row whose source is the same object as before is the same row: it is not made again.
 */
export class RowTable<Row> {
  readonly texts = new Map<string, string>();
  readonly #sources = new Map<string, readonly unknown[]>();

  /**
   * `rows` are all there are. `source`: what a row is made of; where it is the very same as before, `make` isn't called. An empty one
   * says nothing.
   */
  replace<T>(rows: Iterable<T>, { keyOf, source, make }: RowMaking<T, Row>): TableChange {
    const set: [string, string][] = [];
    const seen = new Set<string>();
    for (const each of rows) {
      const key = keyOf(each);
      seen.add(key);
      const from = source(each);
      if (from.length > 0 && isSame(from, this.#sources.get(key))) continue;
      this.#sources.set(key, from);
      const text = JSON.stringify(make(each));
      if (this.texts.get(key) === text) continue;
      this.texts.set(key, text);
      set.push([key, text]);
    }
    if (seen.size === this.texts.size) return { set, gone: [] };
    const gone = [...this.texts.keys()].filter((key) => !seen.has(key));
    for (const key of gone) {
      this.texts.delete(key);
      this.#sources.delete(key);
    }
    return { set, gone };
  }
}

export interface RowMaking<T, Row> {
  readonly keyOf: (each: T) => string;
  readonly source: (each: T) => readonly unknown[];
  readonly make: (each: T) => Row;
}

const isSame = (one: readonly unknown[], other: readonly unknown[] | undefined): boolean =>
  other !== undefined && one.length === other.length && one.every((value, at) => Object.is(value, other[at]));
