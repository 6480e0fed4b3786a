/** Where the rows of a long list lie, from their heights: `tops[i]` is where row i begins, the last entry where the list ends. */
export function rowTops(heights: readonly number[]): readonly number[] {
  const tops = [0];
  let top = 0;
  for (const height of heights) tops.push((top += height));
  return tops;
}

export interface RowWindow {
  /** The first row to draw, and the one after the last. */
  readonly first: number;
  readonly end: number;
  /** Room above and below, in pixels. */
  readonly before: number;
  readonly after: number;
}

/** The rows that are seen between `scrollTop` and `scrollTop + viewHeight`, and `spare` more on each side. */
export function windowRows(
  tops: readonly number[],
  { scrollTop, viewHeight, spare }: { readonly scrollTop: number; readonly viewHeight: number; readonly spare: number },
): RowWindow {
  const count = tops.length - 1;
  const whole = tops[count] ?? 0;
  const top = Math.min(Math.max(0, scrollTop), Math.max(0, whole - viewHeight));
  const first = Math.max(0, rowAt(tops, top) - spare);
  const end = Math.min(count, rowAt(tops, top + viewHeight) + 1 + spare);
  return { first, end, before: tops[first] ?? 0, after: whole - (tops[end] ?? whole) };
}

/** The row in which a position lies; the last one for what lies below all. */
function rowAt(tops: readonly number[], position: number): number {
  let low = 0;
  let high = Math.max(0, tops.length - 2);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((tops[middle] ?? 0) <= position) low = middle;
    else high = middle - 1;
  }
  return low;
}
