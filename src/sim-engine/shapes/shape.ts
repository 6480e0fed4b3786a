import type { GenerationRequest } from "../parse-generation.ts";
import type { OutputPlan } from "../plan-output.ts";
import type { Json } from "../json.ts";

/** What an answer needs to be written down in one of the formats. */
export interface AnswerFacts {
  readonly request: GenerationRequest;
  readonly plan: OutputPlan;
  /** The id without its prefix. */
  readonly id: string;
  readonly createdS: number;
  /** The name that answers carry: the first served one. */
  readonly model: string;
  /** Prompt tokens taken from the cache; known once the request has a slot. */
  cachedTokens: number;
  prefillMs: number;
  decodeMs: number;
}

export type Emit = (event: string) => void;

/** One format of one dialect. Every emitted string is one whole event with its blank line. */
export interface AnswerShape {
  /** Sent with the first token, not at admission. */
  open(emit: Emit): void;
  token(index: number, emit: Emit): void;
  close(emit: Emit): void;
  /** The answer of a call that does not stream. */
  whole(): Json;
}

export const dataEvent = (value: Json): string => `data: ${JSON.stringify(value)}\n\n`;
export const namedEvent = (name: string, value: Json): string => `event: ${name}\ndata: ${JSON.stringify(value)}\n\n`;
export const DONE_EVENT = "data: [DONE]\n\n";

/** llama.cpp's timing block. */
export function timingsOf(facts: AnswerFacts): Json {
  const predicted = facts.plan.tokens;
  const computed = facts.request.promptTokens - facts.cachedTokens;
  const per = (ms: number, count: number): number => (count > 0 ? ms / count : 0);
  return {
    cache_n: facts.cachedTokens,
    prompt_n: computed,
    prompt_ms: facts.prefillMs,
    prompt_per_token_ms: per(facts.prefillMs, computed),
    prompt_per_second: facts.prefillMs > 0 ? (computed * 1_000) / facts.prefillMs : 0,
    predicted_n: predicted,
    predicted_ms: facts.decodeMs,
    predicted_per_token_ms: per(facts.decodeMs, predicted),
    predicted_per_second: facts.decodeMs > 0 ? (predicted * 1_000) / facts.decodeMs : 0,
  };
}

/** A made-up log probability, the same for the same token. */
export const logprobOf = (token: string, rank: number): number => -(((token.length * 7 + rank * 13) % 40) + 1) / 8;

export const VLLM_FINGERPRINT = "vllm-0.32.0-sim";
export const LLAMA_FINGERPRINT = "b0-sim";
