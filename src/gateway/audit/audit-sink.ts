import type { AuditEvent, AuditPage, AuditQuery } from "../../contract/audit-event.ts";

export interface AuditStats {
  /** Events given to `record` since the start. */
  readonly recorded: number;
  /** Of these, never stored: the spool was full, or the store could not be written at the end. */
  readonly dropped: number;
  /** Of these, still in memory. */
  readonly pending: number;
}

export interface AuditSink {
  /** Never waits, never throws, constant time. The event is kept by reference: it must not change afterwards. */
  record(event: AuditEvent): void;
  /**
   * For what must not happen without its record: resolves when the event is stored. Rejects with AUDIT_UNAVAILABLE, at once where the
   * sink is known to fail or is full, else after 2 s; then the event may have been taken, or be stored later.
   */
  commit(event: AuditEvent): Promise<void>;
  /** Sees every event recorded before the call, unless the store fails. Rejects with INTERNAL when it can't be read in time. */
  query(query: AuditQuery): Promise<AuditPage>;
  stats(): AuditStats;
  /** Stores everything held. Gives up after three failures or 5 s, counts what is left as dropped and says so in the log. Never rejects. */
  close(): Promise<void>;
}
