/** The lease as the store keeps it, and what the lease statement does to it: the model that real databases are compared with. */
export interface LeaseRow {
  readonly holder: string;
  readonly epoch: number;
  /** Of the row before this term began. */
  readonly priorEpoch: number;
  readonly expiresAt: number;
}

export interface LeaseRequest {
  readonly holder: string;
  readonly leaseMs: number;
  /** The new epoch must be above it. */
  readonly floor: number;
  /** No other process can hold the lease. */
  readonly alone: boolean;
}

export type LeaseVerdict = { readonly held: boolean; readonly row: LeaseRow };

export function askLease(row: LeaseRow | null, request: LeaseRequest, now: number): LeaseVerdict {
  const own = row?.holder === request.holder;
  if (row !== null && !own && !request.alone && row.expiresAt > now) return { held: false, row };
  const keeps = row !== null && own && row.epoch > request.floor;
  const term = keeps
    ? { epoch: row.epoch, priorEpoch: row.priorEpoch }
    : { epoch: Math.max(row?.epoch ?? 0, request.floor) + 1, priorEpoch: row?.epoch ?? 0 };
  return { held: true, row: { holder: request.holder, ...term, expiresAt: now + request.leaseMs } };
}

/**
 * Whether a write under this epoch is taken. A lease that has run out and that nobody took is no obstacle: whoever takes it raises
 * the epoch.
 */
export const mayWrite = (row: LeaseRow | null, holder: string, epoch: number): boolean =>
  row !== null && row.holder === holder && row.epoch === epoch;
