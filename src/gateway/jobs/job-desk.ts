import type { AuditEvent } from "../../contract/audit-event.ts";
import type { JobSettings } from "../../contract/gateway-config.ts";
import { isOpen, type JobRecord, type JobState } from "../../contract/job.ts";
import type { JobPage, JobRead, JobStore } from "../../coord/jobs/job-store.ts";
import { judgeCallbackUrl, parseCallbackAllow } from "../../decide/jobs/judge-callback.ts";
import { tierToApprove } from "../../decide/overflow/tier-to-approve.ts";
import { idempotencyScope } from "../../decide/idempotency/idempotency-key.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { RequestKey } from "../../access/request-key.ts";
import { answerOf } from "./job-answer.ts";
import type { JobMetrics } from "../metrics/job-metrics.ts";
import { markOf, type JobAnswer, type JobOrder, type JobService, type Submitted } from "./job-service.ts";
import type { KnownStores } from "./known-stores.ts";

export interface JobDeskDeps {
  readonly clock: Clock;
  /** Opens what is not open yet: `forSubmit` also what has never been used. */
  readonly store: (forSubmit: boolean) => Promise<JobStore | null>;
  readonly known: KnownStores;
  readonly settings: () => JobSettings;
  readonly draining: () => boolean;
  readonly metrics: JobMetrics;
  readonly onEnded: (job: JobRecord, last: AuditEvent | null) => void;
}

/** A change that nobody told of is seen after this. */
const LOOK_MS = 2_000;
const OPERATORS: readonly string[] = ["operator", "admin"];

/** Jobs as clients have them: each key sees its own, and a store that is away is said so. */
export class JobDesk implements JobService {
  readonly #deps: JobDeskDeps;

  constructor(deps: JobDeskDeps) {
    this.#deps = deps;
  }

  async submit(order: JobOrder, key: RequestKey): Promise<Submitted> {
    const { settings, metrics, draining } = this.#deps;
    if (draining()) throw new YardmasterError("DRAINING", "the gateway is stopping");
    const { idempotency, deadlineMs, blobs, ...ask } = order;
    const { attemptsMax, keepMs, deadlineMs: usualMs } = settings();
    if (order.callbackUrl !== null) this.#checkCallback(order.callbackUrl);
    const store = await this.#open(true);
    const outcome = await store.submit(
      {
        ...ask,
        keyId: key.id,
        weight: key.weight,
        allowExternal: key.allowExternal,
        attemptsMax,
        keepMs,
        deadlineMs: Math.min(deadlineMs ?? usualMs, usualMs),
        bodyBytes: [...blobs.values()].reduce((sum, bytes) => sum + bytes.length, 0),
        idempotency:
          idempotency === null
            ? null
            : {
                scope: idempotencyScope(key.id, idempotency.route, idempotency.key),
                fingerprint: idempotency.fingerprint,
              },
      },
      blobs,
    );
    this.#deps.known.note(store);
    switch (outcome.kind) {
      case "mismatch":
        throw new YardmasterError("IDEMPOTENCY_MISMATCH", "this Idempotency-Key was used with another request");
      case "full":
        throw new YardmasterError(
          "QUEUE_FULL",
          `the store of the jobs holds as many ${outcome.what} as it may (jobs.max_${outcome.what})`,
        );
      default:
        metrics.submitted(outcome.job.class, outcome.kind === "replayed");
        return { job: outcome.job, replayed: outcome.kind === "replayed" };
    }
  }

  async get(id: string, key: RequestKey): Promise<JobRead> {
    return (await this.#find(id, key)).read;
  }

  wait(id: string, key: RequestKey, ms: number, signal: AbortSignal): Promise<JobRead> {
    return this.#until(id, key, ms, signal, ({ job }) => !isOpen(job.state));
  }

  waitForChange(id: string, key: RequestKey, seen: string, ms: number, signal: AbortSignal): Promise<JobRead> {
    return this.#until(id, key, ms, signal, (read) => markOf(read) !== seen);
  }

  async list(
    query: { readonly state: JobState | null; readonly limit: number; readonly cursor: number | null },
    key: RequestKey,
  ): Promise<JobPage> {
    const store = await this.#deps.store(false);
    if (store === null) return { jobs: [], cursor: null };
    return store.list({ ...query, keyId: OPERATORS.includes(key.role) ? null : key.id });
  }

  async cancel(id: string, key: RequestKey): Promise<JobRead> {
    const { store } = await this.#find(id, key);
    const outcome = await store.change(id, { kind: "cancel", by: key.id });
    if (outcome.kind === "moved" && outcome.ended) this.#deps.onEnded(outcome.job, null);
    return (await this.#find(id, key)).read;
  }

  async forget(id: string, key: RequestKey): Promise<void> {
    const { store } = await this.#find(id, key);
    const outcome = await store.change(id, { kind: "forget" });
    if (outcome.kind === "refused") throw new YardmasterError("JOB_NOT_DONE", `the job is ${outcome.job.state}`);
  }

  async result(id: string, key: RequestKey): Promise<JobAnswer> {
    const { read, store } = await this.#find(id, key);
    return answerOf(read.job, store);
  }

  async #until(
    id: string,
    key: RequestKey,
    ms: number,
    signal: AbortSignal,
    holds: (read: JobRead) => boolean,
  ): Promise<JobRead> {
    const { clock } = this.#deps;
    const endsAt = clock.mono() + ms;
    const { store, read: first } = await this.#find(id, key);
    let read = first;
    let told = Promise.withResolvers<void>();
    using _listening = store.onChange((changed) => {
      if (changed === id || changed === null) told.resolve();
    });
    // What was read before the listening began may be old already.
    told.resolve();
    for (;;) {
      if (holds(read)) return read;
      const left = endsAt - clock.mono();
      if (left <= 0) return read;
      const done = new AbortController();
      const timer = clock.sleep(Math.min(left, LOOK_MS), AbortSignal.any([signal, done.signal]));
      try {
        await Promise.race([told.promise, timer]);
      } finally {
        done.abort();
        timer.catch(() => {});
      }
      told = Promise.withResolvers<void>();
      read = (await this.#find(id, key)).read;
    }
  }

  async #find(id: string, key: RequestKey): Promise<{ readonly read: JobRead; readonly store: JobStore }> {
    const store = await this.#deps.store(false);
    const read = await store?.get(id);
    if (store !== null && read !== undefined && mayRead(read.job, key)) return { read, store };
    const missing =
      read === undefined ? this.#deps.known.explain(id, store ?? { epoch: undefined, kind: "local" }) : "unknown";
    if (missing === "lost")
      throw new YardmasterError("STORE_LOST", "the store that held this job was emptied since it was accepted");
    if (missing === "elsewhere") {
      throw new YardmasterError(
        "JOB_IN_OTHER_STORE",
        "this job was accepted under the other setting of `coordination`, and is kept in that store",
      );
    }
    throw new YardmasterError("JOB_UNKNOWN", "there is no job of this id");
  }

  async #open(forSubmit: boolean): Promise<JobStore> {
    const store = await this.#deps.store(forSubmit);
    if (store === null) throw new YardmasterError("JOB_STORE_UNAVAILABLE", "the store of the jobs is not open");
    return store;
  }

  #checkCallback(url: string): void {
    const { callbackAllow, callbackSecret } = this.#deps.settings();
    const parsed = parseCallbackAllow(callbackAllow);
    if (callbackAllow.length === 0 || parsed.kind === "bad")
      throw new YardmasterError("CALLBACK_FORBIDDEN", "callback_url: this gateway makes no callbacks");
    if (callbackSecret === null)
      throw new YardmasterError("CALLBACK_FORBIDDEN", "callback_url: there is no secret to sign callbacks with");
    const verdict = judgeCallbackUrl(url, parsed.rules);
    if (verdict.kind === "refused") throw new YardmasterError("CALLBACK_FORBIDDEN", `callback_url: ${verdict.why}`);
  }
}

const mayRead = (job: JobRecord, key: RequestKey): boolean =>
  job.keyId === key.id || OPERATORS.includes(key.role) || (key.role === "approver" && waitsForApproval(job));

const waitsForApproval = ({ state, overflow }: JobRecord): boolean =>
  isOpen(state) && overflow !== undefined && tierToApprove(overflow.decision, overflow.lacks) !== null;
