import type { JobErrand, JobOverflow } from "../../contract/job.ts";
import type { Ledger, ReservationName } from "../../coord/overflow/ledger.ts";
import { moneyEvent, type MoneyOutcome } from "./money-audit.ts";
import {
  completed,
  failed,
  outcomeUnknown,
  settled,
  wordsOf,
  type ErrandClaim,
  type ErrandDeps,
  type RunEnd,
} from "./errand-claim.ts";
import type { TierState } from "./tier-state.ts";

export interface Task {
  readonly upstream: string;
  /** As the job has it now. */
  readonly overflow: JobOverflow;
  /** With the id of the task. */
  readonly errand: JobErrand;
  readonly name: ReservationName;
  readonly ledger: Ledger;
  readonly state: TierState;
}

const LOOK_MS_FIRST = 1_000;
const LOOK_MS_MAX = 30_000;
const LOOK_GROWTH = 1.5;
/** A result that can't be fetched for so long is given up. */
const FETCH_TRIES_MAX = 20;

/**
 * Follows a task that a tier has taken, from whichever gateway has the job's claim, until it has ended there or the claim stops. The
 * money is settled before the job ends, since what was settled twice is settled once, and a result can be fetched again.
 */
export function followTask(deps: ErrandDeps, claim: ErrandClaim, task: Task): Promise<RunEnd> {
  claim.left();
  return new TaskWatch(deps, claim, task).run();
}

class TaskWatch {
  readonly #deps: ErrandDeps;
  readonly #claim: ErrandClaim;
  readonly #task: Task;
  readonly #id: string;

  constructor(deps: ErrandDeps, claim: ErrandClaim, task: Task) {
    this.#deps = deps;
    this.#claim = claim;
    this.#task = task;
    this.#id = task.errand.taskId ?? "";
  }

  async run(): Promise<RunEnd> {
    const { signal, token } = this.#claim;
    let waitMs = LOOK_MS_FIRST;
    while (await this.#slept(waitMs)) {
      // A reload may have changed how the tier is spoken to.
      const look = await this.#task.state.provider.poll(this.#id, signal);
      if (signal.aborted) break;
      switch (look.kind) {
        case "running":
          waitMs = Math.min(LOOK_MS_MAX, waitMs * LOOK_GROWTH);
          continue;
        case "unavailable":
          waitMs = Math.min(LOOK_MS_MAX, Math.max(waitMs * LOOK_GROWTH, look.retryAfterMs ?? 0));
          continue;
        case "succeeded":
          return this.#finish(look.result, look.chargedMicros ?? null);
        case "failed": {
          const why = `the tier ${this.#task.errand.tier} failed it: ${look.why}`;
          await this.#settle(look.chargedMicros ?? null, look.why, "ended");
          return {
            event: { kind: "retry", token, error: { code: "OVERFLOW_TIER_FAILED", message: why }, result: null },
          };
        }
        case "lost":
          await this.#task.ledger.outcomeUnknown(this.#task.name, look.why);
          this.#record("money_held", this.#task.errand.micros, look.why);
          return outcomeUnknown(token, this.#task.errand.tier);
        default:
          look satisfies never;
      }
    }
    if (this.#claim.stopped() === "ended") await this.#callOff();
    // Whoever has the claim next goes on with the task.
    return { event: { kind: "handBack", token } };
  }

  async #finish(result: string, charged: number | null): Promise<RunEnd> {
    const { signal, token } = this.#claim;
    const { tier } = this.#task.errand;
    let waitMs = LOOK_MS_FIRST;
    for (let tries = 1; ; tries += 1) {
      const fetched = await this.#task.state.provider.fetch(result, this.#deps.resultBytesMax(), signal);
      if (signal.aborted) return { event: { kind: "handBack", token } };
      if (fetched.kind === "unavailable" && tries < FETCH_TRIES_MAX) {
        waitMs = Math.min(LOOK_MS_MAX, Math.max(waitMs * LOOK_GROWTH, fetched.retryAfterMs ?? 0));
        if (await this.#slept(waitMs)) continue;
        return { event: { kind: "handBack", token } };
      }
      // Until the job has ended the errand has not: whoever claims it after a crash fetches the result again.
      await this.#settle(charged, "", "accepted");
      switch (fetched.kind) {
        case "fetched":
          return completed(token, fetched.result, `tier ${tier} has done it`);
        case "tooLarge":
          return failed(token, "RESULT_TOO_LARGE", `the tier's result is larger than ${fetched.bytesMax} bytes`);
        default:
          return failed(token, "OVERFLOW_TIER_FAILED", `the tier ${tier} has it done, but: ${fetched.why}`);
      }
    }
  }

  /** The job has ended without its task: what the tier makes of that is its own business, and charged as reserved. */
  async #callOff(): Promise<void> {
    const outcome = await this.#task.state.provider.cancel(this.#id, new AbortController().signal);
    this.#deps.log.info("overflow.cancel", {
      job: this.#claim.job.id,
      tier: this.#task.errand.tier,
      outcome: outcome.kind,
    });
    const { name, ledger, errand } = this.#task;
    const paid = await settled(this.#deps, ledger, name, null, errand);
    this.#record("money_charged", paid, `called off: ${outcome.kind}`);
  }

  async #settle(charged: number | null, why: string, state: JobErrand["state"]): Promise<void> {
    const { ledger, name, errand } = this.#task;
    const paid = await settled(this.#deps, ledger, name, charged, errand);
    this.#record("money_charged", paid, why);
    await this.#claim.write({ ...this.#task.overflow, errand: { ...errand, paidMicros: paid, state } });
  }

  #record(outcome: MoneyOutcome, micros: number, why: string): void {
    const { errand, upstream } = this.#task;
    const words = { ...wordsOf(this.#claim.job, upstream, { ...errand, micros }), why };
    this.#deps.audit.record(moneyEvent(this.#deps.clock, outcome, words));
  }

  /** False: the claim stops. */
  async #slept(ms: number): Promise<boolean> {
    try {
      await this.#deps.clock.sleep(ms, this.#claim.signal);
      return true;
    } catch {
      return false;
    }
  }
}
