/** Restricted Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours. */
export function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const current = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replace = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let best = Math.min(replace, (previous[j] ?? 0) + 1, (current[j - 1] ?? 0) + 1);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, (before[j - 2] ?? 0) + 1);
      current.push(best);
    }
    before = previous;
    previous = current;
  }
  return previous[b.length] ?? 0;
}

/** Longer names are no typing mistakes of ours, and the distance costs the product of the lengths. */
const NAME_LENGTH_MAX = 64;

/** The candidate that the writer most likely meant; undefined when none is near. Ties go to the first. */
export function nearest(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > NAME_LENGTH_MAX) return undefined;
  const plain = normalise(name);
  const limit = Math.max(1, Math.floor(plain.length / 3));
  let best: { readonly candidate: string; readonly distance: number } | undefined;
  for (const candidate of candidates) {
    const distance = editDistance(plain, normalise(candidate));
    if (distance <= limit && (best === undefined || distance < best.distance)) best = { candidate, distance };
  }
  return best?.candidate;
}

const normalise = (name: string): string => name.toLowerCase().replaceAll("-", "_");
