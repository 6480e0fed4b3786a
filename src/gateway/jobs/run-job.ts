import type { AuditEvent } from "../../contract/audit-event.ts";
import type { JobPart, JobRecord, JobResult } from "../../contract/job.ts";
import type { ChangeOutcome, JobStore } from "../../coord/jobs/job-store.ts";
import { FanOut, partsError } from "../../decide/jobs/fan-out.ts";
import { judgeCall, type CallVerdict } from "../../decide/jobs/judge-run.ts";
import type { JobEvent } from "../../decide/jobs/step-job.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { ErrandClaim, RunEnd } from "../overflow/errand-claim.ts";
import type { Errands } from "../overflow/run-errand.ts";
import { readPart } from "./part-bytes.ts";
import { startJobCall, type JobCall, type JobCallDeps, type JobCallEnd } from "./job-call.ts";

export interface JobRunPorts extends JobCallDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

export interface JobRunDeps extends JobRunPorts {
  readonly store: JobStore;
  readonly claimMs: () => number;
  readonly fanoutMax: () => number;
  /** The step that this run told has ended the job. `last`: the record of its last call. */
  readonly onEnded: (job: JobRecord, last: AuditEvent | null) => void;
  /** Another worker, or nobody, has the job now. */
  readonly onLost: (id: string, why: "stale" | "ended" | "unknown") => void;
  readonly onVerdict: (verdict: CallVerdict) => void;
  /** Null: every job runs here. */
  readonly errands: Errands | null;
  /** The job is with a tier, and no longer with its upstream. */
  readonly onLeft: () => void;
  /** Aborted when the gateway no longer waits for a store that is away: the claims run out by themselves. */
  readonly over: AbortSignal;
}

/** Renewed at a third of its time: two renewals may fail before the claim is lost. */
const RENEWALS_PER_CLAIM = 3;
/** Between two words on how far the engine is; each is a write to the store. */
const PROGRESS_MS = 1_000;
/** An outcome is told again and again while the store is away, for as long as the job may be somebody's. */
const TELL_AGAIN_MS = 500;
const TELL_TRIES_MAX = 240;

/**
 * One claim of one job, from its first call to the outcome that it writes.
 *
 * Invariants:
 *   R1. The claim is renewed for as long as the run lasts, also while its call waits for a slot.
 *   R2. Once the claim is known to be lost, every call is aborted at once and nothing more is written.
 *   R3. While the store is away the work goes on: nobody else can have the job meanwhile, and if somebody has it when the
 *       store is back, the outcome is refused there.
 */
export class JobRun {
  readonly job: JobRecord;
  readonly #deps: JobRunDeps;
  readonly #token: string;
  readonly #calls = new Set<JobCall>();
  readonly #over = new AbortController();
  #stopped: "lost" | "handBack" | null = null;
  #lostBy: "stale" | "ended" | "unknown" | null = null;
  #asksElsewhere = false;
  #timer: Timer | undefined;
  #wake: (() => void) | null = null;
  #lookingFor: Promise<void> | null = null;
  #last: AuditEvent | null = null;
  #percent: number | undefined;
  #percentTimer: Timer | undefined;
  readonly ended: Promise<void>;

  constructor(deps: JobRunDeps, job: JobRecord) {
    this.#deps = deps;
    this.job = job;
    this.#token = job.claim?.token ?? "";
    this.#planRenewal();
    this.ended = this.#run().finally(() => {
      this.#timer?.cancel();
      this.#percentTimer?.cancel();
    });
  }

  /** Somebody has changed the job: look whether the claim is still held. One look at a time. */
  look(): void {
    if (this.#lookingFor !== null) return;
    this.#lookingFor = this.#look().finally(() => (this.#lookingFor = null));
  }

  /** The gateway stops: the job goes back at once. Resolves when the store has it. */
  handBack(): Promise<void> {
    this.#stop("handBack");
    return this.ended;
  }

  async #run(): Promise<void> {
    try {
      const event = this.job.parts === null ? await this.#runOne() : await this.#runParts(this.job.parts);
      if (this.#stopped === "lost") return;
      // What a tier was paid for is kept also when the gateway stops.
      const keeps = event.event.kind === "complete";
      if (this.#stopped === "handBack" && !keeps) await this.#tell({ kind: "handBack", token: this.#token });
      else await this.#tell(event.event, event.result);
    } catch (error) {
      // The claim runs out, and the job is driven again.
      const message = error instanceof Error ? error.message : String(error);
      this.#deps.log.error("job.run", { job: this.job.id, message });
    }
  }

  /** Null: it runs here. A job with parts is sent nowhere, and kept off a busy card as any other. */
  async #askElsewhere(body: Buffer | undefined): Promise<RunEnd | null> {
    this.#asksElsewhere = true;
    const elsewhere = (await this.#deps.errands?.run(this.#claimWith(body))) ?? null;
    if (elsewhere === null) this.#asksElsewhere = false;
    return elsewhere;
  }

  async #runOne(): Promise<RunEnd> {
    const body = await this.#body("body");
    const elsewhere = await this.#askElsewhere(body);
    if (elsewhere !== null) return elsewhere;
    const end = await this.#call(this.job.path, body, `${this.job.id}.${this.job.attempts}`);
    const verdict = judgeCall(end.report, this.job.onShed);
    this.#deps.onVerdict(verdict);
    const token = this.#token;
    switch (verdict.kind) {
      case "done":
        return {
          event: { kind: "complete", token, result: resultOf(end), why: "the engine answered" },
          result: end.body,
        };
      case "postpone":
        return { event: { kind: "postpone", token, error: verdict.error, afterMs: verdict.afterMs } };
      default: {
        const kind = verdict.kind === "final" ? "fail" : "retry";
        const result = verdict.keepsAnswer ? resultOf(end) : null;
        return { event: { kind, token, error: verdict.error, result }, result: result === null ? undefined : end.body };
      }
    }
  }

  #claimWith(body: Buffer | undefined): ErrandClaim {
    const token = this.#token;
    return {
      job: this.job,
      token,
      body,
      signal: this.#over.signal,
      stopped: () => (this.#lostBy === "ended" ? "ended" : this.#stopped),
      left: this.#deps.onLeft,
      write: async (overflow) => {
        const event: JobEvent = { kind: "overflow", token, overflow };
        const outcome = await this.#withStore(() => this.#deps.store.change(this.job.id, event));
        if (outcome !== undefined && outcome.kind !== "moved" && outcome.kind !== "same") this.#onTold(outcome);
        return outcome?.kind === "moved";
      },
    };
  }

  async #runParts(total: number): Promise<RunEnd> {
    const elsewhere = await this.#askElsewhere(undefined);
    if (elsewhere !== null) return elsewhere;
    const { clock, store } = this.#deps;
    const fan = new FanOut({
      total,
      atOnce: this.#deps.fanoutMax(),
      attemptsMax: this.job.attemptsMax,
      allowPartial: this.job.allowPartial,
      finished: await store.parts(this.job.id),
    });
    const running = new Set<Promise<void>>();
    while (this.#stopped === null && fan.verdict().kind === "running") {
      for (const index of fan.start(clock.mono())) {
        const part = this.#runPart(fan, index).finally(() => {
          running.delete(part);
          this.#wake?.();
        });
        running.add(part);
      }
      await this.#untilSomething(fan.nextAt);
    }
    if (fan.verdict().kind !== "running" || this.#stopped !== null) for (const call of this.#calls) call.abort();
    await Promise.all(running);
    const token = this.#token;
    const verdict = fan.verdict();
    // Told to stop with parts still open: what is done is kept, and whoever has the job next goes on with the others.
    if (verdict.kind === "running") return { event: { kind: "handBack", token } };
    if (verdict.kind === "postponed")
      return { event: { kind: "postpone", token, error: verdict.error, afterMs: verdict.afterMs } };
    if (verdict.kind === "failed")
      return { event: { kind: "fail", token, error: partsError(verdict.failed, total), result: null } };
    const { failed } = verdict;
    const why = failed.length === 0 ? `all ${total} parts are done` : partsError(failed, total).message;
    return {
      event: { kind: "complete", token, result: { status: 200, contentType: "application/json", bytes: 0 }, why },
    };
  }

  async #runPart(fan: FanOut, index: number): Promise<void> {
    const { clock, random, store } = this.#deps;
    const packed = await this.#body(`body/${index}`);
    const { path, body } = readPart(packed, this.job.path);
    const requestId = `${this.job.id}.${this.job.attempts}.p${index}`;
    const end = await this.#call(path, body, requestId);
    if (this.#stopped !== null || fan.verdict().kind !== "running") return;
    const verdict = judgeCall(end.report, this.job.onShed);
    this.#deps.onVerdict(verdict);
    if (!fan.ended(index, verdict, clock.mono(), random)) return;
    const kept = verdict.kind === "done" || ("keepsAnswer" in verdict && verdict.keepsAnswer);
    const part: JobPart = {
      index,
      requestId,
      result: kept ? resultOf(end) : null,
      error: "error" in verdict ? verdict.error : null,
    };
    const written = await this.#withStore(() =>
      store.writePart(this.job.id, this.#token, part, kept ? end.body : null),
    );
    if (written === false) this.#lose("stale");
  }

  async #call(path: string, body: Buffer | undefined, requestId: string): Promise<JobCallEnd> {
    const onProgress = (percent: number): void => this.#noteProgress(percent);
    const call = startJobCall(this.#deps, this.job, { requestId, path, body, onProgress });
    this.#calls.add(call);
    if (this.#stopped !== null) call.abort();
    const end = await call.ended;
    this.#calls.delete(call);
    this.#last = end.event ?? this.#last;
    return end;
  }

  async #body(name: string): Promise<Buffer | undefined> {
    if (this.#stopped !== null) return undefined;
    return this.#withStore(() => this.#deps.store.readBlob(this.job.id, name));
  }

  async #tell(event: JobEvent, result?: Buffer): Promise<void> {
    const outcome = await this.#withStore(() => this.#deps.store.change(this.job.id, event, result));
    if (outcome !== undefined) this.#onTold(outcome);
  }

  #onTold(outcome: ChangeOutcome): void {
    if (outcome.kind === "unknown") this.#lose("unknown");
    else if (outcome.kind === "refused") this.#lose(outcome.why === "ended" ? "ended" : "stale");
    else if (outcome.kind === "moved" && outcome.ended) this.#deps.onEnded(outcome.job, this.#last);
  }

  /** Undefined: the store stayed away for too long, or the claim was lost meanwhile. */
  async #withStore<T>(act: () => Promise<T>): Promise<T | undefined> {
    const { clock, log, over } = this.#deps;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await act();
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        if (attempt === 1) log.warn("job.store_away", { job: this.job.id, message });
        if (attempt >= TELL_TRIES_MAX || this.#stopped === "lost" || over.aborted) return undefined;
        await clock.sleep(TELL_AGAIN_MS, over).catch(() => {}); // Aborted: asked once more, and left.
      }
    }
  }

  #planRenewal(): void {
    this.#timer = this.#deps.clock.after(this.#deps.claimMs() / RENEWALS_PER_CLAIM, () => {
      void this.#renew();
      this.#planRenewal();
    });
  }

  /** Something would go on in vain if the claim were lost. */
  get #works(): boolean {
    return this.#calls.size > 0 || this.#asksElsewhere;
  }

  /** Told with the next renewal, which comes the sooner for it. */
  #noteProgress(percent: number): void {
    if (this.job.parts !== null) return;
    this.#percent = percent;
    this.#percentTimer ??= this.#deps.clock.after(PROGRESS_MS, () => {
      this.#percentTimer = undefined;
      void this.#renew();
    });
  }

  async #renew(): Promise<void> {
    if (this.#stopped !== null) return;
    const percent = this.#percent;
    try {
      const renewal = { kind: "renew", token: this.#token, leaseMs: this.#deps.claimMs() } as const;
      const event: JobEvent = percent === undefined ? renewal : { ...renewal, percent };
      const outcome = await this.#deps.store.change(this.job.id, event);
      if (outcome.kind === "unknown") this.#lose("unknown");
      else if (outcome.kind === "refused" && this.#works) this.#lose(stillOpen(outcome) ? "stale" : "ended");
    } catch {
      // R3: the next renewal tries again.
    }
  }

  async #look(): Promise<void> {
    try {
      const read = await this.#deps.store.get(this.job.id);
      const held = read?.job.claim?.token === this.#token || read?.job.settledBy === this.#token;
      if (this.#stopped === null && !held)
        this.#lose(read === undefined ? "unknown" : read.job.endedAt === null ? "stale" : "ended");
    } catch {
      // R3: the next renewal tells.
    }
  }

  #lose(why: "stale" | "ended" | "unknown"): void {
    if (this.#stopped === "lost") return;
    this.#lostBy = why;
    this.#stop("lost");
    this.#deps.onLost(this.job.id, why);
  }

  #stop(why: "lost" | "handBack"): void {
    this.#stopped ??= why;
    this.#over.abort();
    for (const call of this.#calls) call.abort();
    this.#wake?.();
  }

  async #untilSomething(at: number | undefined): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      if (at !== undefined) {
        const timer = this.#deps.clock.after(Math.max(0, at - this.#deps.clock.mono()), resolve);
        this.#wake = () => {
          timer.cancel();
          resolve();
        };
      }
    });
    this.#wake = null;
  }
}

const stillOpen = (outcome: Extract<ChangeOutcome, { kind: "refused" }>): boolean => outcome.job.endedAt === null;

const resultOf = (end: JobCallEnd): JobResult => ({
  status: end.status,
  contentType: end.contentType,
  bytes: end.body.length,
});
