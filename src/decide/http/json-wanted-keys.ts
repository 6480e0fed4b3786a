/** Top-level keys that a scan looks for. */
export interface WantedKeys {
  readonly names: readonly string[];
  /** Indices into `names` by the key's length in bytes. */
  readonly byLength: readonly (readonly number[] | undefined)[];
  readonly bytes: readonly Buffer[];
  /** A longer raw key can't be a wanted one, even with every character written as \uXXXX. */
  readonly rawBytesMax: number;
}

// Callers pass the same constant list for each request; preparing it once saves a microsecond.
const preparedKeys = new WeakMap<readonly string[], WantedKeys>();

export function prepareKeys(names: readonly string[]): WantedKeys {
  const known = preparedKeys.get(names);
  if (known !== undefined) return known;
  const bytes = names.map((name) => Buffer.from(name));
  const longest = Math.max(0, ...bytes.map((name) => name.length));
  const byLength = Array.from({ length: longest + 1 }, (_, length) => {
    const indices = names.flatMap((_name, index) => (bytes[index]!.length === length ? [index] : []));
    return indices.length === 0 ? undefined : indices;
  });
  const prepared = { names, byLength, bytes, rawBytesMax: longest * 6 };
  preparedKeys.set(names, prepared);
  return prepared;
}

/** Index of the wanted key that `bytes[start, end)` spells without escapes, or -1. */
export function plainKeyIndex(wanted: WantedKeys, bytes: Buffer, start: number, end: number): number {
  const length = end - start;
  for (const index of wanted.byLength[length] ?? []) {
    const name = wanted.bytes[index]!;
    let at = 0;
    while (at < length && bytes[start + at] === name[at]) at++;
    if (at === length) return index;
  }
  return -1;
}
