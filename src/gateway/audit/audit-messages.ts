import type { AuditPage, AuditQuery } from "../../contract/audit-event.ts";
import type { AuditBatch } from "./audit-store.ts";

/** What the gateway's thread and the audit worker say to each other. Every request gets one answer, in order. */
export type AuditRequest =
  | { readonly kind: "write"; readonly id: number; readonly batch: AuditBatch; readonly now: number }
  | { readonly kind: "query"; readonly id: number; readonly query: AuditQuery; readonly now: number }
  | { readonly kind: "close"; readonly id: number; readonly lastOrdinal: number; readonly now: number };

export type AuditReply =
  | { readonly kind: "written"; readonly id: number }
  | { readonly kind: "page"; readonly id: number; readonly page: Omit<AuditPage, "dropped"> }
  | { readonly kind: "closed"; readonly id: number }
  | { readonly kind: "failed"; readonly id: number; readonly why: string };

export interface AuditWorkerData {
  readonly path: string;
  readonly max: number;
  readonly runId: string;
}
