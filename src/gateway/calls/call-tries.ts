import {
  mayRetryAttempt,
  type RetryCause,
  type RetryDecision,
  type RetryView,
} from "../../decide/routing/retry-policy.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";
import type { SlotSeeker } from "../upstreams/slot-seeker.ts";
import type { Upstream } from "../upstreams/upstream.ts";

/** How often and where one call has been tried, and whether and where it may be tried again. */
export class CallTries {
  readonly #upstream: Upstream;
  readonly #seeker: SlotSeeker;
  readonly #may: Pick<RetryView, "idempotent" | "startsOnce">;
  #failedOn: Set<string> | null = null;
  #well = false;
  /** Tries so far. */
  count = 0;
  /** Of them, those that no engine heard of. */
  #unsent = 0;

  constructor(upstream: Upstream, seeker: SlotSeeker, may: Pick<RetryView, "idempotent" | "startsOnce">) {
    this.#upstream = upstream;
    this.#seeker = seeker;
    this.#may = may;
  }

  mayRetry(cause: RetryCause, now: MonoMs): RetryDecision {
    return mayRetryAttempt({
      cause,
      idempotent: this.#may.idempotent,
      startsOnce: this.#may.startsOnce,
      retries: this.count - 1 - this.#unsent,
      retriesMax: this.#upstream.settings.retry.retriesMax,
      budget: this.#upstream.budget.mayRetry(now),
    });
  }

  /** As early as can be, and once per request: the endpoint answers. */
  answered(endpoint: Endpoint | null, status: number, now: MonoMs): void {
    if (endpoint === null || status >= 400 || this.#well) return;
    this.#well = true;
    this.#upstream.onResult(endpoint, { kind: "ok" }, now);
  }

  /** The answer went to the client. Its status, or the one that its own error stands for, tells of the endpoint that gave it. */
  passed(endpoint: Endpoint | null, status: number, now: MonoMs): void {
    if (endpoint === null || status < 400) return this.answered(endpoint, status, now);
    const error = endpoint.adapter.classifyError(status, "");
    this.#upstream.onResult(endpoint, { kind: "status", status, error }, now);
  }

  /** The same endpoint on a fresh connection, booked: granted whatever the budget holds, and charged to it all the same. */
  again(endpoint: Endpoint, now: MonoMs): Endpoint {
    this.#upstream.budget.onRetry(now);
    return this.#upstream.bookAgain(endpoint);
  }

  get failedOn(): ReadonlySet<string> {
    return this.#failedOn ?? NONE;
  }

  /** It waits for an endpoint that is full now: a try that is charged like any other. */
  onWait(charged: boolean, now: MonoMs): void {
    if (charged) this.#upstream.budget.onRetry(now);
  }

  /** Another endpoint, booked, and charged to the budget where `charged` says so; null when none can take it now. */
  other(failed: Endpoint, charged: boolean, now: MonoMs): Endpoint | null {
    this.#failedOn ??= new Set();
    this.#failedOn.add(failed.id);
    const next = this.#upstream.rebook(this.#seeker, this.#failedOn);
    if (!charged) this.#unsent += 1;
    else if (next !== null) this.#upstream.budget.onRetry(now);
    return next;
  }
}

const NONE: ReadonlySet<string> = new Set();
