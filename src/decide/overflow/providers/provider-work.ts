/**
 * What passes between the overflow of work and the places that take it. Money is counted in whole millionths of a currency, so that
 * sums are exact.
 */

/** One job's call, as it is offered to a tier. */
export interface ProviderWork {
  readonly jobId: string;
  /** The same for every attempt of the job: who knows the key of an earlier one makes nothing anew. */
  readonly idempotencyKey: string;
  readonly path: string;
  /** The call's JSON. */
  readonly body: unknown;
  /** What may be spent at most, in millionths. */
  readonly maxMicros: number;
}

export type PriceQuote =
  /** `micros`: what it costs at most, in millionths of `currency`, which is empty where the place charges nothing. */
  | { readonly kind: "priced"; readonly micros: number; readonly currency: string }
  /** Nobody can say what it would cost, so it must not be sent. */
  | { readonly kind: "unpriced"; readonly why: string };

/**
 * Whose fault a refusal is. `input` and `policy`: the job's own, and other tiers would say the same. `auth` and `quota`: the tier's,
 * for every job alike. `price`: it costs more than may be spent.
 */
export type RefusalReason = "input" | "policy" | "auth" | "quota" | "price" | "unknown";

export interface ProviderResult {
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
}

/**
 * `chargedMicros`, here and below: what the place says that it charges, in millionths of the tier's currency; undefined where it tells
 * nothing, or nothing that can be a price. It may be more than was agreed.
 */
export type SubmitOutcome =
  | { readonly kind: "accepted"; readonly taskId: string }
  | { readonly kind: "done"; readonly result: ProviderResult; readonly chargedMicros?: number | undefined }
  /** Certain: nothing was taken and nothing is charged, and asking again would come to the same. */
  | { readonly kind: "refused"; readonly reason: RefusalReason; readonly why: string }
  /** Certain: nothing was taken. Later it may be. */
  | { readonly kind: "unavailable"; readonly why: string; readonly retryAfterMs?: number | undefined }
  /** The place says that nothing was taken, and can be asked whether that is so. */
  | { readonly kind: "doubtful"; readonly why: string }
  /** It may have been taken, so the money stays held, and it is not sent again. */
  | { readonly kind: "unknown"; readonly why: string };

/** What a place says of the key of a submission. */
export type FindOutcome =
  | { readonly kind: "found"; readonly taskId: string }
  /** It knows of none. A moment later it may. */
  | { readonly kind: "none" }
  /** It has no such request, or did not answer it. */
  | { readonly kind: "unknown" };

export type PollOutcome =
  /** `progress`: 0 to 1. */
  | { readonly kind: "running"; readonly progress?: number | undefined }
  /** `result` is for `fetch`. */
  | { readonly kind: "succeeded"; readonly result: string; readonly chargedMicros?: number | undefined }
  | {
      readonly kind: "failed";
      readonly reason: RefusalReason;
      readonly why: string;
      readonly chargedMicros?: number | undefined;
    }
  /** This look told nothing; the next one may. */
  | { readonly kind: "unavailable"; readonly why: string; readonly retryAfterMs?: number | undefined }
  /** The place knows nothing of the task. What it charged nobody can know. */
  | { readonly kind: "lost"; readonly why: string };

export type FetchOutcome =
  | { readonly kind: "fetched"; readonly result: ProviderResult }
  | { readonly kind: "tooLarge"; readonly bytesMax: number }
  | { readonly kind: "unavailable"; readonly why: string; readonly retryAfterMs?: number | undefined }
  /** It can't be had any more. */
  | { readonly kind: "lost"; readonly why: string };

export type CancelOutcome =
  | { readonly kind: "cancelled" }
  /** The place has no such request. */
  | { readonly kind: "unsupported" }
  /** It has ended already. */
  | { readonly kind: "tooLate" }
  | { readonly kind: "unknown"; readonly why: string };
