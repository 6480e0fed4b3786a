import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { PriceSettings } from "../../contract/gateway-config.ts";
import type { TokenUsage } from "../http/token-usage.ts";
import { costMicros, isNothingMade } from "../limits/estimate-tokens.ts";

/**
 * What is counted of a key's use of a model in one day: names of sums that only grow. Stores keep them by these names, so a name never
 * changes its meaning.
 */
export const COUNTERS = {
  replays: "replays",
  cacheHits: "cacheHits",
  prompt: "prompt",
  completion: "completion",
  cached: "cached",
  /** Requests that an engine worked for. */
  ran: "ran",
  /** Those of them whose engine said how many tokens it used; and of which kind. */
  told: "told",
  promptTold: "promptTold",
  completionTold: "completionTold",
  cachedTold: "cachedTold",
  slotMicros: "slotMicros",
} as const;

/** Requests that ended so. */
export const outcomeCounter = (outcome: RequestOutcome): string => `out:${outcome}`;
/** Millionths of this currency. */
export const costCounter = (currency: string): string => `cost:${currency}`;

/** Sums by their names; what is not there is nothing. */
export type UsageCounts = Readonly<Record<string, number>>;

export interface CountedCall {
  readonly outcome: RequestOutcome;
  readonly attempts: number;
  readonly usage: TokenUsage | null;
  /** Answered from memory, without an engine. */
  readonly from?: "idempotent" | "cache" | undefined;
}

/** Tells `add` what one request counts for. What comes from memory was counted when it was made. */
export function countCall(
  { outcome, attempts, usage, from }: CountedCall,
  price: PriceSettings | null,
  add: (counter: string, amount: number) => void,
): void {
  if (from !== undefined) return add(from === "cache" ? COUNTERS.cacheHits : COUNTERS.replays, 1);
  add(outcomeCounter(outcome), 1);
  const { prompt = null, completion = null, cached = null } = usage ?? {};
  const told = prompt !== null || completion !== null;
  if (attempts === 0 || (!told && isNothingMade(outcome))) return;
  add(COUNTERS.ran, 1);
  if (!told) return;
  add(COUNTERS.told, 1);
  if (prompt !== null) add(COUNTERS.promptTold, 1);
  if (completion !== null) add(COUNTERS.completionTold, 1);
  if (cached !== null) add(COUNTERS.cachedTold, 1);
  addSome(COUNTERS.prompt, prompt, add);
  addSome(COUNTERS.completion, completion, add);
  addSome(COUNTERS.cached, cached, add);
  if (price !== null)
    addSome(costCounter(price.currency), costMicros(price, prompt ?? 0, completion ?? 0, cached ?? 0), add);
}

function addSome(counter: string, amount: number | null, add: (counter: string, amount: number) => void): void {
  if (amount !== null && amount > 0) add(counter, amount);
}

/** What stands for a model where there is none: the upstream that the request went to. "" where neither is known. */
export function servedName(model: string | null, upstreamId: string | null): string {
  if (model !== null && model !== "") return model;
  return upstreamId === null ? "" : `upstreams/${upstreamId}`;
}
