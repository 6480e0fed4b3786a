import type { JobError, JobErrand, JobOverflow, JobRecord } from "../../contract/job.ts";
import type { Tier } from "../../contract/overflow-settings.ts";
import type { Ledger, LedgerOutcome, ReservationName } from "../../coord/overflow/ledger.ts";
import type { JobEvent } from "../../decide/jobs/step-job.ts";
import type { FindOutcome, ProviderResult } from "../../decide/overflow/providers/provider-work.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import { setupOf } from "./content-hash.ts";
import type { MoneyWords } from "./money-audit.ts";
import type { OverflowDesk } from "./overflow-desk.ts";
import type { OverflowMetrics } from "./overflow-metrics.ts";
import type { Provider } from "./providers/provider.ts";

/** How a claim ends, with the bytes that belong to it. */
export interface RunEnd {
  readonly event: JobEvent;
  readonly result?: Buffer | undefined;
}

/** One claim of a job, as an errand needs it. */
export interface ErrandClaim {
  readonly job: JobRecord;
  readonly token: string;
  readonly body: Buffer | undefined;
  /** Waits for a store that is away. False: the claim is no longer this one's. */
  readonly write: (overflow: JobOverflow) => Promise<boolean>;
  /** Aborted when the run is to stop. */
  readonly signal: AbortSignal;
  /** Why: the job has ended, another worker has it, or the gateway stops. Null while it goes on. */
  readonly stopped: () => "ended" | "lost" | "handBack" | null;
  /** It is no longer with the upstream. */
  readonly left: () => void;
}

export interface ErrandDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly desk: OverflowDesk;
  readonly metrics: OverflowMetrics;
  readonly upstreamIdOf: (job: JobRecord) => string | null;
  /** The upstream's engine may be at work on the job from an earlier claim. */
  readonly mayBeAtWork: (job: JobRecord) => boolean;
  readonly resultBytesMax: () => number;
}

/** What is booked then, in millionths; also where the ledger is away: it holds what was reserved until it is told. */
export async function settled(
  { log }: Pick<ErrandDeps, "log">,
  ledger: Ledger,
  name: ReservationName,
  chargedMicros: number | null,
  errand: Pick<JobErrand, "micros">,
): Promise<number> {
  const outcome = await ledger.settle(name, chargedMicros);
  if (outcome.kind === "done") {
    const halted = outcome.view.account?.halted;
    if (halted !== undefined && halted !== null) log.error("overflow.halted", { tier: name.tier, why: halted.why });
    return outcome.view.reservation?.chargedMicros ?? chargedMicros ?? errand.micros;
  }
  log.error("overflow.unsettled", { reservation: name.id, charged: chargedMicros, why: outcome.why });
  return chargedMicros ?? errand.micros;
}

/** A place that refuses the account is looked at again after this, by one job or chat that has to wait for its answer. */
const REFUSED_PAUSE_MS = 3_600_000;

/** Nothing was taken, and whoever asks next would be told the same: the tier is taken out for all, and the money given back. */
export async function takenOut(
  { log }: Pick<ErrandDeps, "log">,
  ledger: Ledger,
  name: ReservationName,
  { tier, why }: { readonly tier: Tier; readonly why: string },
): Promise<LedgerOutcome> {
  const outcome = await ledger.giveBack(name, why, { why, setup: setupOf(tier), pauseMs: REFUSED_PAUSE_MS });
  log.error("overflow.halted", { tier: name.tier, why, again_in_s: REFUSED_PAUSE_MS / 1_000 });
  return outcome;
}

export const wordsOf = (
  job: JobRecord,
  upstream: string,
  { tier, micros, currency }: Pick<JobErrand, "tier" | "micros" | "currency">,
): MoneyWords => ({
  subject: job.id,
  keyId: job.keyId,
  class: job.class,
  model: job.model,
  upstream,
  tier,
  micros,
  currency,
  why: "",
});

/** The tier has done the job. */
export const completed = (token: string, { status, contentType, body }: ProviderResult, why: string): RunEnd => ({
  event: { kind: "complete", token, result: { status, contentType, bytes: body.length }, why },
  result: body,
});

export const failed = (token: string, code: JobError["code"], message: string): RunEnd => ({
  event: { kind: "fail", token, error: { code, message }, result: null },
});

const FIND_TRIES = 4;
const FIND_AGAIN_MS = 1_000;

/** The task of a submission whose answer was lost or is doubted, where the place can be asked by the job's key: its last word. */
export async function findTask(
  clock: Clock,
  provider: Provider,
  jobId: string,
  signal: AbortSignal,
): Promise<FindOutcome> {
  for (let tries = 1; ; tries += 1) {
    const found = await provider.find(jobId, signal);
    if (found.kind === "found" || tries === FIND_TRIES || signal.aborted) return found;
    // A place may know of it a moment later only.
    await clock.sleep(FIND_AGAIN_MS * tries, signal).catch(() => {});
  }
}

export const outcomeUnknown = (token: string, tier: string): RunEnd =>
  failed(
    token,
    "OVERFLOW_OUTCOME_UNKNOWN",
    `the tier ${tier} may have taken the job, and nobody knows what became of it; it is not sent again`,
  );
