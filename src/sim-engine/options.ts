import type { Clock } from "../kernel/clock.ts";

export const SIM_DIALECTS = ["vllm", "llama.cpp"] as const;
export type SimDialect = (typeof SIM_DIALECTS)[number];

export interface SimEngineOptions {
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default 0: any free port. */
  readonly port?: number;
  /** Served names. Every one is accepted; answers name the first, as the real engines do. */
  readonly models: readonly string[];
  readonly dialect: SimDialect;
  readonly slots: number;
  /** Prompt tokens a second of one slot; 0 or Infinity for no prefill time. */
  readonly prefillTps: number;
  /** Output tokens a second of one slot; 0 or Infinity for as fast as possible. */
  readonly decodeTps: number;
  readonly seed: number;
  readonly clock: Clock;
  readonly apiKey?: string;
  /** Tokens of prompt and output together; default 32768. */
  readonly contextTokens?: number;
  /** Cache blocks of 16 tokens; default enough for every slot at a quarter of the context. */
  readonly kvBlocks?: number;
}

export const CONTEXT_TOKENS_DEFAULT = 32_768;
/** Output of a request that names no limit, at most. */
export const NATURAL_TOKENS_MAX = 128;
/** What the engines themselves do: an idle connection is closed after this long. */
export const KEEP_ALIVE_MS = 5_000;
