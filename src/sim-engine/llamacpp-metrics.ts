import type { EngineGauges, EngineStats } from "./engine-stats.ts";

export const LLAMACPP_METRICS_TYPE = "text/plain; version=0.0.4";

/** A number as a C++ stream prints it: six significant digits, so that large counters move in steps. */
export function sixDigits(value: number): string {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const exponent = Number(value.toExponential(5).split("e")[1]);
  if (exponent >= -4 && exponent < 6) return String(Number(value.toPrecision(6)));
  const [mantissa, power] = value.toExponential(5).split("e");
  const size = Math.abs(Number(power)).toString().padStart(2, "0");
  return `${Number(mantissa)}e${Number(power) < 0 ? "-" : "+"}${size}`;
}

const seconds = (ms: number): number => Math.trunc(ms) / 1_000;

/** The page of llama.cpp's server: its names and order, no labels. */
export function llamacppMetrics(stats: EngineStats, now: EngineGauges): string {
  const computed = stats.promptTokens - stats.cachedTokens;
  const rows: readonly (readonly [string, "counter" | "gauge", string, number])[] = [
    ["prompt_tokens_total", "counter", "Prompt tokens computed, cached ones excluded", computed],
    ["prompt_tokens_cached_total", "counter", "Prompt tokens taken from the cache", stats.cachedTokens],
    ["prompt_seconds_total", "counter", "Time spent on prompts", seconds(stats.prefillMs)],
    ["tokens_predicted_total", "counter", "Tokens generated", stats.generationTokens],
    ["tokens_predicted_seconds_total", "counter", "Time spent generating", seconds(stats.decodeMs)],
    ["n_decode_total", "counter", "Decode calls", stats.steps],
    ["n_tokens_max", "counter", "Longest sequence seen", stats.sequenceTokensMax],
    ["spec_decode_num_draft_tokens_total", "counter", "Speculative: draft tokens", 0],
    ["spec_decode_num_accepted_tokens_total", "counter", "Speculative: accepted tokens", 0],
    ["spec_decode_num_drafts_total", "counter", "Speculative: drafts", 0],
    [
      "prompt_tokens_seconds",
      "gauge",
      "Mean prompt tokens a second",
      stats.prefillMs > 0 ? (computed * 1_000) / stats.prefillMs : 0,
    ],
    [
      "predicted_tokens_seconds",
      "gauge",
      "Mean generated tokens a second",
      stats.decodeMs > 0 ? (stats.generationTokens * 1_000) / stats.decodeMs : 0,
    ],
    ["requests_processing", "gauge", "Requests in a slot", now.running],
    ["requests_deferred", "gauge", "Requests waiting", now.waiting],
    [
      "n_busy_slots_per_decode",
      "gauge",
      "Mean busy slots of a decode call",
      stats.steps > 0 ? stats.busySlotSteps / stats.steps : 0,
    ],
  ];
  return rows
    .map(
      ([name, type, help, value]) =>
        `# HELP llamacpp:${name} ${help}\n# TYPE llamacpp:${name} ${type}\nllamacpp:${name} ${sixDigits(value)}\n`,
    )
    .join("");
}
