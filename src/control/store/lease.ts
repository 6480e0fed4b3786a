import type { LeaderTerm } from "../../decide/leader/lease-claim.ts";
import type { SqlDriver, Step } from "./sql-driver.ts";

export interface LeaseRequest {
  readonly holder: string;
  readonly leaseMs: number;
  /** The epoch must be above it. */
  readonly floor: number;
  /** No other process can hold the lease, so whoever is in the row has ended. */
  readonly alone: boolean;
}

export type LeaseAnswer =
  | { readonly kind: "held"; readonly epoch: number; readonly priorEpoch: number }
  | { readonly kind: "refused"; readonly by: LeaderTerm };

/** Taking and renewing are this one statement, so two can't both win. The database's clock decides, whoever asks. */
const ASK = `
  INSERT INTO ym_lease AS held (id, holder, epoch, prior_epoch, expires_ms, commit_id)
  SELECT 1, $1, CAST($3 AS BIGINT) + 1, 0, now_ms + CAST($2 AS BIGINT), '' FROM ym_clock WHERE true
  ON CONFLICT (id) DO UPDATE SET
    prior_epoch = CASE WHEN held.holder = excluded.holder AND held.epoch > $3 THEN held.prior_epoch ELSE held.epoch END,
    epoch = CASE
      WHEN held.holder = excluded.holder AND held.epoch > $3 THEN held.epoch
      WHEN held.epoch > $3 THEN held.epoch + 1
      ELSE $3 + 1
    END,
    holder = excluded.holder,
    expires_ms = excluded.expires_ms
  WHERE held.holder = excluded.holder OR held.expires_ms <= excluded.expires_ms - $2 OR CAST($4 AS BIGINT) = 1
  RETURNING epoch, prior_epoch`;

export async function askLease(driver: SqlDriver, request: LeaseRequest): Promise<LeaseAnswer> {
  const values = [request.holder, request.leaseMs, request.floor, request.alone ? 1 : 0];
  const [own] = await driver.urgent({ text: ASK, values });
  if (own !== undefined) return { kind: "held", epoch: Number(own["epoch"]), priorEpoch: Number(own["prior_epoch"]) };
  const [row] = await driver.urgent({ text: "SELECT holder, epoch FROM ym_lease WHERE id = 1", values: [] });
  return { kind: "refused", by: { holder: String(row?.["holder"] ?? ""), epoch: Number(row?.["epoch"] ?? 0) } };
}

/** Hands over at once: the next one who asks gets it. Without effect unless this term still holds. */
export async function releaseLease(driver: SqlDriver, term: LeaderTerm): Promise<void> {
  await driver.urgent({
    text: "UPDATE ym_lease SET expires_ms = 0 WHERE id = 1 AND holder = $1 AND epoch = $2",
    values: [term.holder, term.epoch],
  });
}

/**
 * The last step of every transaction of a leader: no row, and nothing of it happens. Last, because it holds the lease's row
 * until the end of the transaction, and a renewal must not wait for the writes before it. The commit id is what an unanswered
 * commit is found again by.
 */
export const guardStep = (term: LeaderTerm, commitId: string): Step => ({
  text: `UPDATE ym_lease SET commit_id = $3 WHERE id = 1 AND holder = $1 AND epoch = $2 AND commit_id <> $3 RETURNING epoch`,
  values: [term.holder, term.epoch, commitId],
  guard: true,
});

export type LastCommit = "this" | "another" | "notLeader";

export async function readLastCommit(driver: SqlDriver, term: LeaderTerm, commitId: string): Promise<LastCommit> {
  const [row] = await driver.query({
    text: "SELECT commit_id FROM ym_lease WHERE id = 1 AND holder = $1 AND epoch = $2",
    values: [term.holder, term.epoch],
  });
  if (row === undefined) return "notLeader";
  return row["commit_id"] === commitId ? "this" : "another";
}
