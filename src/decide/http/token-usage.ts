/** Tokens as the engine counted them. `null` means that the engine did not say, which is not zero. */
export interface TokenUsage {
  /** All tokens of the prompt, cached ones included. */
  readonly prompt: number | null;
  readonly completion: number | null;
  /** Those of the prompt that came from the engine's prefix cache. */
  readonly cached: number | null;
}

export const UNKNOWN_USAGE: TokenUsage = { prompt: null, completion: null, cached: null };

export type JsonObject = Readonly<Record<string, unknown>>;

export const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const count = (value: unknown): number | null =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;

/**
 * A `usage` object of any of the routes: `prompt_tokens` and `completion_tokens` of chat, completions, embeddings and rerank;
 * `input_tokens` and `output_tokens` of responses, messages, audio and images; a lone `total_tokens` where nothing is generated.
 */
export function readUsage(value: unknown): TokenUsage | undefined {
  if (!isJsonObject(value)) return undefined;
  const input = count(value["input_tokens"]);
  const completion = count(value["completion_tokens"]) ?? count(value["output_tokens"]);
  const prompt = count(value["prompt_tokens"]) ?? withCacheParts(input, value);
  const details = value["prompt_tokens_details"] ?? value["input_tokens_details"];
  const cached =
    (isJsonObject(details) ? count(details["cached_tokens"]) : null) ?? count(value["cache_read_input_tokens"]);
  if (prompt === null && completion === null) return { prompt: count(value["total_tokens"]), completion: null, cached };
  return { prompt, completion, cached };
}

// Messages-style usage counts what was read from and written to the cache beside `input_tokens`, not in it.
function withCacheParts(input: number | null, value: JsonObject): number | null {
  if (input === null) return null;
  return input + (count(value["cache_read_input_tokens"]) ?? 0) + (count(value["cache_creation_input_tokens"]) ?? 0);
}

/** The usage of a complete JSON answer of any route. */
export function readAnswerUsage(answer: JsonObject): TokenUsage | undefined {
  const direct = readUsage(answer["usage"]);
  if (direct !== undefined) return direct;
  const meta = answer["meta"];
  return isJsonObject(meta) ? readUsage(meta["tokens"]) : undefined;
}

/** Fields of `later` win where they are known: for formats that split usage over several events. */
export function mergeUsage(earlier: TokenUsage, later: TokenUsage): TokenUsage {
  return {
    prompt: later.prompt ?? earlier.prompt,
    completion: later.completion ?? earlier.completion,
    cached: later.cached ?? earlier.cached,
  };
}
