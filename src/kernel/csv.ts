import { escapeControls } from "./log.ts";

export type CsvCell = string | number | boolean | null | undefined;

/** Unknown is an empty cell. Text that a spreadsheet would take for a formula gets an apostrophe before it. */
function csvCell(value: CsvCell): string {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const text = escapeControls(value).toWellFormed();
  const safe = /^\s*[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export const csvLine = (cells: readonly CsvCell[]): string => `${cells.map(csvCell).join(",")}\r\n`;
