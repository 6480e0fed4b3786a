import { isOpen, type JobRecord } from "../../contract/job.ts";
import type { Ledger } from "../../coord/overflow/ledger.ts";
import type { Reservation } from "../../decide/overflow/ledger-book.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import { settled, wordsOf } from "./errand-claim.ts";
import { moneyEvent, type MoneyOutcome, type MoneyWords } from "./money-audit.ts";
import { CALL_PREFIX } from "./overflow-calls.ts";
import type { OverflowDesk } from "./overflow-desk.ts";

export interface ReconcilerDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly desk: Pick<OverflowDesk, "tierState" | "policies">;
  /** Undefined: there is none, or none any more. Rejects while nobody can know. */
  readonly jobOf: (id: string) => Promise<JobRecord | undefined>;
  readonly upstreamIdOf: (job: JobRecord) => string | null;
}

/** Places are asked about what nobody knows at every so many rounds, and about so many of them, the newest. */
const ASKED_EACH = 12;
const ASKED_AT_ONCE = 20;
/** Whoever follows a task calls it off by itself; it is given time. */
const ABANDONED_MS = 120_000;
/** No call is under way for so long: its gateway has ended inside it. */
const CALL_MS_MAX = 7_200_000;

/**
 * Finds out what became of money that nobody else will settle any more.
 *
 * Invariants:
 *   R1. Nothing is settled that somebody may still be at work on: a job that is open, a call that may be under way.
 *   R2. What is not known stays held, until the place says what became of it or an operator does.
 */
export class MoneyReconciler {
  readonly #deps: ReconcilerDeps;
  #rounds = 0;

  constructor(deps: ReconcilerDeps) {
    this.#deps = deps;
  }

  /** Rejects where the ledger or the jobs can't be asked; the next round does what is left. */
  async round(ledger: Ledger): Promise<void> {
    const reservations = await ledger.reservations();
    for (const reservation of reservations)
      if (reservation.state === "begun")
        await (reservation.subject.startsWith(CALL_PREFIX)
          ? this.#holdCall(ledger, reservation)
          : this.#endBegun(ledger, reservation));
    this.#rounds += 1;
    if (this.#rounds % ASKED_EACH !== 0) return;
    const unknown = reservations.filter(({ state }) => state === "unknown");
    for (const reservation of unknown.slice(-ASKED_AT_ONCE)) await this.#askAbout(ledger, reservation);
  }

  /** A chat whose gateway ended inside it. */
  async #holdCall(ledger: Ledger, { id, tier, subject, micros, currency, at }: Reservation): Promise<void> {
    if (this.#deps.clock.wall() - at < CALL_MS_MAX) return;
    const why = "its gateway ended inside the call";
    const outcome = await ledger.outcomeUnknown({ id, tier, subject }, why);
    if (outcome.kind !== "done") return;
    const policy = this.#deps.desk.policies.find(({ tiers }) => tiers.some((each) => each.id === tier));
    const call = { subject, keyId: "-", class: "interactive", model: null, upstream: policy?.upstream ?? "" } as const;
    this.#record("money_held", { ...call, tier, micros, currency, why });
  }

  /** A call that began for a job that has ended without whoever made it. */
  async #endBegun(ledger: Ledger, { id, tier, subject, micros, currency }: Reservation): Promise<void> {
    const { clock, log, desk } = this.#deps;
    const job = await this.#endedJob(subject);
    if (job === null) return;
    const name = { id, tier, subject };
    const errand = job.overflow?.errand ?? null;
    const state = desk.tierState(tier, placeNoted(job, tier));
    if (errand !== null && errand.paidMicros !== null) {
      await ledger.settle(name, errand.paidMicros);
      return;
    }
    if (clock.wall() - (job.endedAt ?? 0) < ABANDONED_MS) return;
    const words = this.#wordsOf(job, tier, currency);
    if (errand !== null && errand.taskId !== null && state !== undefined) {
      const called = await state.provider.cancel(errand.taskId, new AbortController().signal);
      const paid = await settled({ log }, ledger, name, null, errand);
      this.#record("money_charged", { ...words, micros: paid, why: `called off: ${called.kind}` });
      return;
    }
    await ledger.outcomeUnknown(name, "its job has ended");
    this.#record("money_held", { ...words, micros, why: "its job has ended" });
  }

  /** R2. What nobody knew may be known to the place by now. */
  async #askAbout(ledger: Ledger, { id, tier, subject, micros, currency }: Reservation): Promise<void> {
    const job = subject.startsWith(CALL_PREFIX) ? null : await this.#endedJob(subject);
    const state = job === null ? undefined : this.#deps.desk.tierState(tier, placeNoted(job, tier));
    if (state === undefined || job === null) return;
    const { signal } = new AbortController();
    const found = await state.provider.find(subject, signal);
    const look = found.kind === "found" ? await state.provider.poll(found.taskId, signal) : null;
    if (look?.kind !== "succeeded" && look?.kind !== "failed") return;
    const outcome = await ledger.settle({ id, tier, subject }, look.chargedMicros ?? null);
    if (outcome.kind !== "done") return;
    const paid = outcome.view.reservation?.chargedMicros ?? micros;
    const why = `the place was asked by the job's key: ${look.kind}`;
    this.#record("money_charged", { ...this.#wordsOf(job, tier, currency), micros: paid, why });
  }

  /** R1 */
  async #endedJob(id: string): Promise<JobRecord | null> {
    const job = await this.#deps.jobOf(id);
    return job === undefined || isOpen(job.state) ? null : job;
  }

  #wordsOf(job: JobRecord, tier: string, currency: string): MoneyWords {
    return wordsOf(job, this.#deps.upstreamIdOf(job) ?? "", { tier, micros: 0, currency });
  }

  #record(outcome: MoneyOutcome, words: MoneyWords): void {
    this.#deps.audit.record(moneyEvent(this.#deps.clock, outcome, words));
  }
}

/** Where the job's own note says that the tier was. */
function placeNoted(job: JobRecord, tier: string): string | undefined {
  const errand = job.overflow?.errand;
  return errand?.tier === tier ? errand.place : undefined;
}
