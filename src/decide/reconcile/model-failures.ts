import type { Model } from "../../contract/catalog.ts";
import type { FailureKind, ModelDoc } from "../../contract/fleet.ts";
import type { PassSettings } from "./snapshot.ts";

/** A failure of one of a model's replicas, on all nodes where its shards were. */
export interface ModelFailure {
  readonly kind: FailureKind;
  readonly message: string;
  readonly nodeIds: readonly string[];
  /** The replica's `attempt`. */
  readonly attempt: number;
}

/**
 * What a failure means for the model. Replicas that were placed in one round and fail together are one failure in a row; each
 * counts on its node. Running out of the host's memory twice in a row parks at once, since the third try would be the same.
 */
export function noteFailure(doc: ModelDoc, failure: ModelFailure, settings: PassSettings, at: string): ModelDoc {
  const failedOn = { ...doc.failedOn };
  for (const nodeId of failure.nodeIds) failedOn[nodeId] = (failedOn[nodeId] ?? 0) + 1;
  if (failure.attempt !== doc.failuresInRow) return { ...doc, failedOn };
  const failuresInRow = doc.failuresInRow + 1;
  const backoffMs = Math.min(settings.backoffMaxMs, settings.backoffMinMs * 2 ** (failuresInRow - 1));
  const sameOom = failure.kind === "oom" && doc.lastFailure === "oom";
  const why = sameOom
    ? `ran out of the host's memory twice: ${failure.message}`
    : `${failedInRow(failuresInRow)}, last: ${failure.message}`;
  const parked = sameOom || failuresInRow >= settings.parkAfter ? { why, at } : doc.parked;
  return { ...doc, failuresInRow, backoffMs, failedOn, lastFailure: failure.kind, parked };
}

export const failedInRow = (count: number): string => (count === 1 ? "failed once" : `failed ${count} times in a row`);

/** As before any failure; what else is known of the model stays. */
export const clearFailures = (doc: ModelDoc): ModelDoc => ({
  ...doc,
  failuresInRow: 0,
  backoffMs: null,
  failedOn: {},
  lastFailure: null,
  parked: null,
});

export const hashesOf = (model: Model | undefined): readonly string[] =>
  model === undefined ? [] : model.profiles.map((profile) => profile.hash);

/** Failures of other profiles say nothing of these: a changed model starts afresh. */
export function forProfiles(doc: ModelDoc, model: Model): ModelDoc {
  const profileHashes = hashesOf(model);
  const same =
    doc.profileHashes.length === profileHashes.length &&
    doc.profileHashes.every((hash, at) => hash === profileHashes[at]);
  return same ? doc : { ...clearFailures(doc), profileHashes };
}

/** Of a model of which nothing is known. */
export const newModelDoc = (name: string, model: Model | undefined): ModelDoc => ({
  name,
  failuresInRow: 0,
  backoffMs: null,
  failedOn: {},
  profileHashes: hashesOf(model),
  lastFailure: null,
  parked: null,
  demandedAt: null,
});

/** What the model's running replicas show of whether it can start. */
export interface StartEvidence {
  /** Of the replicas that should run, those that are not ready yet. */
  readonly starting: number;
  /** Of these, placed since the last failure. */
  readonly startingNow: number;
  readonly readyWithProfile: boolean;
  readonly readyNow: boolean;
}

/** Why no more of the model's replicas are started now, with figures that stand until something happens; null: they may be. */
export function whyNoStart(
  doc: ModelDoc,
  evidence: StartEvidence,
  { parkAfter, unprovenStartsMax }: Pick<PassSettings, "parkAfter" | "unprovenStartsMax">,
): string | null {
  if (doc.parked !== null) return `the model is parked: ${doc.parked.why}; \`ctl retry ${doc.name}\` lifts that`;
  if (doc.failuresInRow > 0 && doc.backoffMs !== null)
    return `it failed ${doc.failuresInRow} times in a row of ${parkAfter}: the next start waits ${Math.floor(doc.backoffMs / 1_000)} s`;
  if (evidence.readyWithProfile || evidence.starting < unprovenStartsMax) return null;
  return `${evidence.starting} replicas start that have not shown yet that it can, of ${unprovenStartsMax} allowed`;
}

/** How many more of the model's replicas may be started now, as far as its failures decide. */
export function startsAllowed(doc: ModelDoc, evidence: StartEvidence, settings: PassSettings): number {
  if (doc.parked !== null) return 0;
  const wave = Math.max(0, settings.unprovenStartsMax - evidence.starting);
  if (doc.failuresInRow === 0) return evidence.readyWithProfile ? Number.POSITIVE_INFINITY : wave;
  if (evidence.readyNow) return wave;
  return Math.max(0, 1 - evidence.startingNow);
}
