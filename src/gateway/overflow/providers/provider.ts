import type {
  CancelOutcome,
  FetchOutcome,
  FindOutcome,
  PollOutcome,
  PriceQuote,
  ProviderWork,
  SubmitOutcome,
} from "../../../decide/overflow/providers/provider-work.ts";

/**
 * One place that may take work for money or elsewhere.
 *
 * Invariants:
 *   P1. Each method ends within its own deadline and never rejects.
 *   P2. A submission is sent once; what became of it in doubt is `unknown`, and no method here sends it again.
 *   P3. An HTTP status alone is no success: only what the body says, read by the place's own protocol, is believed.
 */
export interface Provider {
  /** What it costs at most. Asks nobody. */
  price(work: ProviderWork): PriceQuote;
  submit(work: ProviderWork, signal: AbortSignal): Promise<SubmitOutcome>;
  /** The task that was made for the key of a submission whose answer was lost or is doubted. Asking makes nothing. */
  find(idempotencyKey: string, signal: AbortSignal): Promise<FindOutcome>;
  /** `taskId`: as `submit` gave it; it can be stored, and has at most TASK_ID_CHARS_MAX characters. */
  poll(taskId: string, signal: AbortSignal): Promise<PollOutcome>;
  /** `result`: as `poll` gave it. */
  fetch(result: string, bytesMax: number, signal: AbortSignal): Promise<FetchOutcome>;
  cancel(taskId: string, signal: AbortSignal): Promise<CancelOutcome>;
}
