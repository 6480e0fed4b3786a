import { YardmasterError } from "../../kernel/errors.ts";

/** Parameters stand in the text as `$1`, `$2`, …, which SQLite and PostgreSQL both understand: one text serves both. */
export interface Statement {
  readonly text: string;
  readonly values: readonly SqlValue[];
}

export type SqlValue = string | number | null;
export type SqlRow = Readonly<Record<string, SqlValue>>;

/** With `guard`, no row means that nothing of the transaction happens. */
export interface Step extends Statement {
  readonly guard?: boolean;
}

export type TransactionOutcome =
  /** Rows of each step. */
  | { readonly kind: "committed"; readonly rows: readonly (readonly SqlRow[])[] }
  | { readonly kind: "refused"; readonly step: number };

/**
 * A database behind statements and whole transactions: nothing in between can be left open. Everything ends within a bound, by
 * throwing StoreFault if need be.
 */
export interface SqlDriver {
  readonly dialect: "sqlite" | "postgres";
  /** Must be safe to repeat, as a reading is: a connection that turns out to be dead is replaced under way. */
  query(statement: Statement): Promise<readonly SqlRow[]>;
  transaction(steps: readonly Step[]): Promise<TransactionOutcome>;
  /** The same on a connection of its own: never behind the others. */
  urgent(statement: Statement): Promise<readonly SqlRow[]>;
  close(): Promise<void>;
}

/** STORE_UNAVAILABLE: the database did not answer, or not in time. */
export class StoreFault extends YardmasterError {
  /** "unknown": the statement or transaction may have been carried out. */
  readonly applied: "no" | "unknown";
  /** Two wrote the same at once: the same again may succeed at once. */
  readonly conflict: boolean;

  constructor(
    message: string,
    facts: { readonly applied: "no" | "unknown"; readonly conflict?: boolean; readonly cause?: unknown },
  ) {
    super("STORE_UNAVAILABLE", message, facts.cause === undefined ? {} : { cause: facts.cause });
    this.applied = facts.applied;
    this.conflict = facts.conflict === true;
  }
}

/** "($1, $2), ($3, $4)" for `rows` rows of `columns` values. */
export function placeholders(rows: number, columns: number): string {
  const row = (index: number): string =>
    `(${Array.from({ length: columns }, (_, column) => `$${index * columns + column + 1}`).join(", ")})`;
  return Array.from({ length: rows }, (_, index) => row(index)).join(", ");
}
