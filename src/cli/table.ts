import { escapeControls } from "../kernel/log.ts";

/** Columns as wide as their widest cell. What comes from elsewhere can't move the cursor or reorder a line. */
export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows].map((row) => row.map(escapeControls));
  const widths = head.map((_, column) => Math.max(...lines.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd();
  return lines.map((row) => `${line(row)}\n`).join("");
}

/** What nobody measured. */
export const orDash = (value: string | number | null): string => (value === null || value === "" ? "-" : String(value));
