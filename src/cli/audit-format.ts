import { AUDIT_FIELDS, type AuditGap, type AuditRecord } from "../contract/audit-event.ts";
import { asEpoch, isoTime } from "../kernel/clock.ts";
import { csvLine, type CsvCell } from "../kernel/csv.ts";
import { escapeControls } from "../kernel/log.ts";

/**
 * Audit events as text. Values come from clients and engines: control characters are escaped, so that none moves the
 * reader's cursor, and a spreadsheet is given no formula.
 */
type Cell = CsvCell;

const CELL_CHARS_MAX = 40;

interface Column {
  readonly title: string;
  readonly value: (record: AuditRecord) => Cell;
  readonly right?: true;
}

const ms = (value: number | null): Cell => (value === null ? null : `${Math.round(value)}ms`);

const COLUMNS: readonly Column[] = [
  { title: "SEQ", value: (r) => r.seq, right: true },
  { title: "TIME", value: (r) => when(r.time) },
  { title: "KEY", value: (r) => r.keyId },
  { title: "CLASS", value: (r) => r.class },
  { title: "ROUTE", value: (r) => r.route },
  { title: "MODEL", value: (r) => r.model },
  { title: "UPSTREAM", value: (r) => r.upstream },
  { title: "STATUS", value: (r) => r.status, right: true },
  { title: "OUTCOME", value: (r) => r.outcome },
  { title: "CODE", value: (r) => r.errorCode },
  { title: "QUEUE", value: (r) => ms(r.queueMs), right: true },
  { title: "FIRST", value: (r) => ms(r.firstByteMs), right: true },
  { title: "TOTAL", value: (r) => ms(r.totalMs), right: true },
  { title: "IN", value: (r) => r.promptTokens, right: true },
  { title: "OUT", value: (r) => r.completionTokens, right: true },
  { title: "REQUEST", value: (r) => r.requestId },
];

/** What came over the wire may be no moment at all. */
const when = (epochMs: unknown): Cell =>
  typeof epochMs === "number" && Math.abs(epochMs) <= 8.64e15 ? isoTime(asEpoch(epochMs)) : null;

/** Unknown is "-"; a value that is "-" or begins with a quote is quoted, so that it can't be taken for unknown. */
function tableCell(value: Cell): string {
  if (value === null || value === undefined) return "-";
  const text = escapeControls(String(value)).toWellFormed();
  const shown = text.length > CELL_CHARS_MAX ? `${text.slice(0, CELL_CHARS_MAX - 1).toWellFormed()}…` : text;
  return shown === "-" || shown === "" ? JSON.stringify(shown) : shown;
}

/** Column widths that only grow, so that the lines of a running `tail` stay under their heads. */
export class AuditTable {
  readonly #widths = COLUMNS.map(({ title }) => title.length);

  head(): string {
    return this.#line(COLUMNS.map(({ title }) => title));
  }

  /** Widens the columns for these records; call it before `head` or `row`. */
  fit(records: readonly AuditRecord[]): void {
    for (const record of records) {
      COLUMNS.forEach((column, i) => {
        this.#widths[i] = Math.max(this.#widths[i] ?? 0, tableCell(column.value(record)).length);
      });
    }
  }

  row(record: AuditRecord): string {
    return this.#line(COLUMNS.map((column) => tableCell(column.value(record))));
  }

  #line(cells: readonly string[]): string {
    const padded = cells.map((cell, i) =>
      COLUMNS[i]?.right === true ? cell.padStart(this.#widths[i] ?? 0) : cell.padEnd(this.#widths[i] ?? 0),
    );
    return `${padded.join("  ").trimEnd()}\n`;
  }
}

const CSV_FIELDS = ["seq", ...AUDIT_FIELDS] as const satisfies readonly (keyof AuditRecord)[];

export const csvHead = (): string => csvLine(CSV_FIELDS);

export const csvRow = (record: AuditRecord): string =>
  csvLine(CSV_FIELDS.map((field) => (field === "time" ? when(record.time) : record[field])));

/** A gap as a sentence, for people. */
export function describeGap(gap: AuditGap): string {
  const at = `after event ${gap.afterSeq}`;
  return gap.why === "dropped"
    ? `${at}: ${gap.missing ?? "an unknown number of"} events were dropped and are missing`
    : `${at}: a gateway that started at ${tableCell(when(gap.time))} did not close; its last events may be missing (or it still runs)`;
}
