import type { SqlRow, Statement, Step, TransactionOutcome } from "./sql-driver.ts";

/** What the control plane's thread and a database thread say to each other. Every request gets one answer, in order. */
export type SqliteRequest =
  | { readonly kind: "query"; readonly id: number; readonly statement: Statement }
  | { readonly kind: "transaction"; readonly id: number; readonly steps: readonly Step[] }
  /** A consistent copy of the whole database, put in place of `path` in one step. */
  | { readonly kind: "backup"; readonly id: number; readonly path: string }
  /** From now on the file's marker follows what is committed. */
  | { readonly kind: "mark"; readonly id: number; readonly clusterId: string }
  | { readonly kind: "close"; readonly id: number };

export type SqliteReply =
  | { readonly kind: "opened" }
  | { readonly kind: "refused"; readonly why: string }
  | { readonly kind: "rows"; readonly id: number; readonly rows: readonly SqlRow[] }
  | { readonly kind: "outcome"; readonly id: number; readonly outcome: TransactionOutcome }
  | { readonly kind: "done"; readonly id: number }
  | { readonly kind: "failed"; readonly id: number; readonly why: string; readonly conflict: boolean };

export interface SqliteWorkerData {
  readonly path: string;
  /** Whether the whole file is checked before it is used. */
  readonly check: boolean;
  readonly busyMs: number;
}
