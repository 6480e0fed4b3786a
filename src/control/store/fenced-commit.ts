import { randomUUID } from "node:crypto";
import type { NewEvent } from "../../contract/control-event.ts";
import type { StoreWrite } from "../../contract/fleet.ts";
import type { LeaderTerm } from "../../decide/leader/lease-claim.ts";
import { checksum } from "./checksum.ts";
import { eventSteps } from "./events.ts";
import { guardStep, readLastCommit } from "./lease.ts";
import { placeholders, type SqlDriver, type Step, StoreFault } from "./sql-driver.ts";

/** "unknown": may or may not be stored; whoever goes on must read again first. */
export type CommitOutcome = "ok" | "notLeader" | "unknown";

const ROWS_AT_ONCE = 200;
const TRIES_MAX = 4;

/**
 * All writes and events, or none, and only under the term that still holds. One at a time for each term: an unanswered commit is
 * found again as the last one of its term.
 */
export async function commitFenced(
  driver: SqlDriver,
  term: LeaderTerm,
  writes: readonly StoreWrite[],
  events: readonly NewEvent[],
): Promise<CommitOutcome> {
  const commitId = randomUUID();
  const steps = [...docSteps(writes), ...eventSteps(events), guardStep(term, commitId)];
  for (let tries = 1; ; tries += 1) {
    let failure: unknown;
    try {
      if ((await driver.transaction(steps)).kind === "committed") return "ok";
    } catch (error) {
      if (!(error instanceof StoreFault)) throw error;
      failure = error;
    }
    // Refused by the guard: another term holds, or an earlier try of this very commit did get through.
    const last = await lastCommit(driver, term, commitId);
    if (last === "this") return "ok";
    if (last === "notLeader") return "notLeader";
    if (last === "unreachable" || tries === TRIES_MAX || !mayRepeat(failure)) return "unknown";
  }
}

/** A commit that may still be on its way is repeated under the same id, which the guard lets in once. */
const mayRepeat = (failure: unknown): boolean =>
  failure instanceof StoreFault && (failure.conflict || failure.applied === "unknown");

async function lastCommit(
  driver: SqlDriver,
  term: LeaderTerm,
  commitId: string,
): Promise<Awaited<ReturnType<typeof readLastCommit>> | "unreachable"> {
  try {
    return await readLastCommit(driver, term, commitId);
  } catch (error) {
    if (error instanceof StoreFault) return "unreachable";
    throw error;
  }
}

function docSteps(writes: readonly StoreWrite[]): Step[] {
  // The last word on each document: one statement may not touch a row twice.
  const last = [...new Map(writes.map((write) => [`${write.kind}\u0000${write.id}`, write])).values()];
  const kept = last.filter(({ doc }) => doc !== null);
  const gone = last.filter(({ doc }) => doc === null);
  return [
    ...slices(kept).map((slice) => ({
      text: `INSERT INTO ym_docs (kind, id, doc, sum) VALUES ${placeholders(slice.length, 4)}
        ON CONFLICT (kind, id) DO UPDATE SET doc = excluded.doc, sum = excluded.sum`,
      values: slice.flatMap(({ kind, id, doc }) => {
        const text = JSON.stringify(doc);
        return [kind, id, text, checksum(kind, id, text)];
      }),
    })),
    ...slices(gone).map((slice) => ({
      text: `DELETE FROM ym_docs WHERE (kind, id) IN (VALUES ${placeholders(slice.length, 2)})`,
      values: slice.flatMap(({ kind, id }) => [kind, id]),
    })),
  ];
}

function slices<T>(items: readonly T[]): T[][] {
  const count = Math.ceil(items.length / ROWS_AT_ONCE);
  return Array.from({ length: count }, (_, index) => items.slice(index * ROWS_AT_ONCE, (index + 1) * ROWS_AT_ONCE));
}
