import { microsUp } from "../../contract/money.ts";
import type { PriceSettings } from "../../contract/gateway-config.ts";
import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { TokenUsage } from "../http/token-usage.ts";
import type { Amount } from "./key-limits.ts";

/** What a request is taken to come to, before anybody has counted. */
export interface Estimate {
  readonly prompt: number;
  readonly completion: number;
}

export const NO_ESTIMATE: Estimate = { prompt: 0, completion: 0 };
export const NO_AMOUNT: Amount = { tokens: 0, micros: 0 };

/** Members of a body that say how long its answer may become. */
export const LENGTH_MEMBERS = [
  "max_tokens",
  "max_completion_tokens",
  "max_output_tokens",
  "n",
  "best_of",
  "prompt",
] as const;

/** Bytes of JSON for one token: English prose has about as many, code and other scripts fewer. */
const BYTES_PER_TOKEN = 4;
/** A larger body is mostly pictures or sound, whose bytes say nothing of tokens. */
const PROMPT_TOKENS_MAX = 32_768;
/** Where the body does not say how long its answer may become. */
export const COMPLETION_TOKENS_ASSUMED = 1_024;

/**
 * `generates`: whether the route's answer is text that the engine makes, token by token. `member`: a top-level member's JSON text.
 * `prompts`: how many the body has, each of which is answered. Which of several members an engine goes by is its own affair.
 */
export function estimateTokens(
  bytes: number,
  generates: boolean,
  member: (name: (typeof LENGTH_MEMBERS)[number]) => string | undefined,
  prompts = 1,
): Estimate {
  const prompt = Math.min(PROMPT_TOKENS_MAX, Math.ceil(bytes / BYTES_PER_TOKEN));
  if (!generates) return { prompt, completion: 0 };
  const asked = largest(member("max_completion_tokens"), member("max_output_tokens"), member("max_tokens"));
  const choices = Math.max(1, largest(member("n"), member("best_of")) ?? 1);
  return { prompt, completion: (asked ?? COMPLETION_TOKENS_ASSUMED) * choices * Math.max(1, prompts) };
}

const [QUOTE, BACKSLASH, OPEN] = [0x22, 0x5c, 0x5b];

/** Of a `prompt` in JSON that is known to be right: a list of texts, or of lists of tokens, is as many prompts. */
export function promptsIn(json: Buffer): number {
  if (json[0] !== OPEN) return 1;
  let at = 1;
  while (json[at] !== undefined && json[at]! <= 0x20) at += 1;
  if (json[at] === OPEN) return countLists(json, at);
  if (json[at] !== QUOTE) return 1;
  let texts = 0;
  for (let open = at; open >= 0; open = json.indexOf(QUOTE, endOfText(json, open) + 1)) texts += 1;
  return texts;
}

function countLists(json: Buffer, first: number): number {
  let lists = 0;
  for (let at = first; at >= 0; at = json.indexOf(OPEN, at + 1)) lists += 1;
  return lists;
}

/** Where the quote is that ends the text which begins with the one at `open`. */
function endOfText(json: Buffer, open: number): number {
  for (let end = json.indexOf(QUOTE, open + 1); end >= 0; end = json.indexOf(QUOTE, end + 1)) {
    let before = end;
    while (json[before - 1] === BACKSLASH) before -= 1;
    if ((end - before) % 2 === 0) return end;
  }
  return json.length;
}

function largest(...texts: readonly (string | undefined)[]): number | undefined {
  const counts = texts.map(count).filter((value) => value !== undefined);
  return counts.length === 0 ? undefined : Math.max(...counts);
}

/** The engine judges what is no count. */
function count(text: string | undefined): number | undefined {
  const value = text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
  return value !== undefined && Number.isSafeInteger(value) ? value : undefined;
}

/** Whole millionths of the currency, rounded up: a call that costs anything costs something. */
export function costMicros(price: PriceSettings | null, prompt: number, completion: number, cached: number): number {
  if (price === null) return 0;
  const fromCache = Math.min(cached, prompt);
  return microsUp((prompt - fromCache) * price.input + fromCache * price.cached + completion * price.output);
}

export const amountOf = ({ prompt, completion }: Estimate, price: PriceSettings | null): Amount => ({
  tokens: prompt + completion,
  micros: costMicros(price, prompt, completion, 0),
});

/** Ends of a request for which no engine is known to have made an answer. */
const NOTHING_MADE: ReadonlySet<RequestOutcome> = new Set([
  "engine_error",
  "refused",
  "queue_timeout",
  "client_aborted_queued",
  "upstream_failed",
]);

export const isNothingMade = (outcome: RequestOutcome): boolean => NOTHING_MADE.has(outcome);

export interface EndedRequest {
  readonly outcome: RequestOutcome;
  readonly attempts: number;
  readonly usage: TokenUsage | null;
}

/** What a request came to: as the engine counted, and as estimated where it did not say. */
export function tokensUsed(
  { outcome, attempts, usage }: EndedRequest,
  estimate: Estimate,
): Estimate & { readonly cached: number } {
  const said = usage !== null && (usage.prompt !== null || usage.completion !== null);
  if (attempts === 0 || (!said && NOTHING_MADE.has(outcome))) return { ...NO_ESTIMATE, cached: 0 };
  return {
    prompt: usage?.prompt ?? estimate.prompt,
    completion: usage?.completion ?? estimate.completion,
    cached: usage?.cached ?? 0,
  };
}
