import { escapeControls } from "../kernel/log.ts";

/** How a table is to look: as wide as the terminal, or as wide as its cells. */
export interface TableShape {
  /** Columns of the terminal; null where there is none, or nothing is to be shortened. */
  readonly width: number | null;
  /** Whether more columns were asked for (`-o wide`). */
  readonly wide: boolean;
}

/** Output that goes into a file or a program is whole. */
export const WHOLE: TableShape = { width: null, wide: false };

const GAP = "  ";
/** A column is cut no further: what is left would tell nothing. */
const COLUMN_MIN = 5;

/**
 * Columns as wide as their widest cell; on a terminal the widest are cut until a line fits, the first one last, since that is what the next
 * command names. What comes from elsewhere can't move the cursor or reorder a line.
 */
export function formatTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  { width }: Pick<TableShape, "width"> = WHOLE,
): string {
  const lines = [head, ...rows].map((row) => row.map(escapeControls));
  const needed = head.map((_, column) => Math.max(...lines.map((row) => widthOf(row[column] ?? ""))));
  const widths = width === null ? needed : fitColumns(needed, width);
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => fitCell(cell, widths[column] ?? 0))
      .join(GAP)
      .trimEnd();
  return lines.map((row) => `${line(row)}\n`).join("");
}

/** What nobody measured. */
export const orDash = (value: string | number | null): string => (value === null || value === "" ? "-" : String(value));

/** The widths that columns get in `total`; more than that only where even the narrowest would not fit. */
export function fitColumns(needed: readonly number[], total: number): readonly number[] {
  const room = total - GAP.length * (needed.length - 1);
  const [first = 0, ...others] = needed;
  const left = shareOut(others, room - first);
  if (first + sum(left) <= room) return [first, ...left];
  return [Math.min(first, Math.max(COLUMN_MIN, room - sum(left))), ...left];
}

/** All columns get what they need up to one limit, which is the same for all. */
function shareOut(needed: readonly number[], room: number): number[] {
  let limit = Math.max(COLUMN_MIN, ...needed);
  const cut = (): number[] => needed.map((one) => Math.min(one, limit));
  while (limit > COLUMN_MIN && sum(cut()) > room) limit -= 1;
  // One limit for all leaves a few columns over: the last one, which is a reason in words, has the most use for them.
  const widths = cut();
  const last = widths.length - 1;
  const spare = room - sum(widths);
  if (last >= 0 && spare > 0) widths[last] = Math.min(needed[last] ?? 0, (widths[last] ?? 0) + spare);
  return widths;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);

const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const NARROW = /^\p{M}$/u;

const widthOfChar = (char: string): number => (NARROW.test(char) ? 0 : WIDE.test(char) ? 2 : 1);
// oxlint-disable-next-line no-control-regex -- the usual case needs no look at each character
const ASCII = /^[\u0000-\u007f]*$/;

/** Columns that a terminal gives a text. */
export function widthOf(text: string): number {
  if (ASCII.test(text)) return text.length;
  let width = 0;
  for (const char of text) width += widthOfChar(char);
  return width;
}

function fitCell(text: string, width: number): string {
  const own = widthOf(text);
  if (own <= width) return text + " ".repeat(width - own);
  let [cut, used] = ["", 0];
  for (const char of text) {
    if (used + widthOfChar(char) > width - 1) break;
    cut += char;
    used += widthOfChar(char);
  }
  return `${cut}…${" ".repeat(Math.max(0, width - used - 1))}`;
}
