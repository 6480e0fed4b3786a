import type { EngineGauges, EngineStats, Histogram } from "./engine-stats.ts";
import { BLOCK_TOKENS } from "./prefix-cache.ts";

export const VLLM_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8";

/** Floats print with a point, as the Python client does. */
const float = (value: number): string =>
  Number.isInteger(value) && Math.abs(value) < 1e16 ? `${value}.0` : String(value);

class Page {
  readonly #lines: string[] = [];
  readonly #labels: string;
  readonly #createdS: number;

  constructor(modelName: string, createdS: number) {
    this.#labels = `engine="0",model_name="${modelName.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
    this.#createdS = createdS;
  }

  #family(name: string, type: string, help: string): void {
    this.#lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  }

  gauge(name: string, help: string, value: number): void {
    this.#family(name, "gauge", help);
    this.#lines.push(`${name}{${this.#labels}} ${float(value)}`);
  }

  labelled(
    name: string,
    type: "gauge" | "counter",
    help: string,
    label: string,
    values: Readonly<Record<string, number>>,
  ): void {
    const shown = type === "counter" ? `${name}_total` : name;
    this.#family(shown, type, help);
    // Label names come in alphabetical order, as the Python client prints them.
    const at = (value: string): string =>
      label < "model_name" ? this.#labels.replace(",", `,${label}="${value}",`) : `${this.#labels},${label}="${value}"`;
    for (const [key, value] of Object.entries(values)) this.#lines.push(`${shown}{${at(key)}} ${float(value)}`);
    if (type === "gauge") return;
    this.#family(`${name}_created`, "gauge", help);
    for (const key of Object.keys(values)) this.#lines.push(`${name}_created{${at(key)}} ${this.#createdS}`);
  }

  counter(name: string, help: string, value: number): void {
    this.#family(`${name}_total`, "counter", help);
    this.#lines.push(`${name}_total{${this.#labels}} ${float(value)}`);
    this.#family(`${name}_created`, "gauge", help);
    this.#lines.push(`${name}_created{${this.#labels}} ${this.#createdS}`);
  }

  histogram(name: string, help: string, histogram: Histogram): void {
    this.#family(name, "histogram", help);
    const [engine, model] = this.#labels.split(/,(?=model_name)/);
    const counts = histogram.cumulative();
    histogram.bounds.forEach((bound, index) => {
      this.#lines.push(`${name}_bucket{${engine},le="${float(bound)}",${model}} ${float(counts[index] ?? 0)}`);
    });
    this.#lines.push(`${name}_bucket{${engine},le="+Inf",${model}} ${float(histogram.count)}`);
    this.#lines.push(
      `${name}_count{${this.#labels}} ${float(histogram.count)}`,
      `${name}_sum{${this.#labels}} ${float(histogram.sum)}`,
    );
    this.#family(`${name}_created`, "gauge", help);
    this.#lines.push(`${name}_created{${this.#labels}} ${this.#createdS}`);
  }

  info(name: string, help: string, fields: Readonly<Record<string, string>>): void {
    this.#family(name, "gauge", help);
    const labels = Object.entries(fields).map(([key, value]) => `${key}="${value}"`);
    this.#lines.push(`${name}{${labels.join(",")}} 1.0`);
  }

  plain(name: string, type: string, help: string, value: number): void {
    this.#family(name, type, help);
    this.#lines.push(`${name} ${float(value)}`);
  }

  text(): string {
    return `${this.#lines.join("\n")}\n`;
  }
}

/** The page of vLLM 0.32: its names, labels and order of families, with the values of the simulation. */
export function vllmMetrics(modelName: string, stats: EngineStats, now: EngineGauges): string {
  const page = new Page(modelName, now.startedEpochS);
  page.plain(
    "process_start_time_seconds",
    "gauge",
    "Start time of the process since unix epoch in seconds.",
    now.startedEpochS,
  );
  page.gauge("vllm:num_requests_running", "Number of requests in the running set.", now.running);
  page.gauge("vllm:num_requests_waiting", "Number of requests waiting for a slot.", now.waiting);
  page.labelled("vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.", "reason", {
    capacity: now.waiting,
    deferred: 0,
  });
  page.labelled("vllm:engine_sleep_state", "gauge", "Sleep state, 1 on the active one.", "sleep_state", {
    awake: 1,
    weights_offloaded: 0,
    discard_all: 0,
  });
  page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage; 1 is full.", now.kvUsage);
  page.counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", stats.prefixQueries);
  page.counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", stats.cachedTokens);
  page.counter("vllm:num_preemptions", "Preempted requests.", 0);
  page.counter("vllm:prompt_tokens", "Prompt tokens processed.", stats.promptTokens);
  page.labelled("vllm:prompt_tokens_by_source", "counter", "Prompt tokens by source.", "source", {
    local_compute: stats.promptTokens - stats.cachedTokens,
    local_cache_hit: stats.cachedTokens,
    external_kv_transfer: 0,
  });
  page.counter("vllm:prompt_tokens_cached", "Prompt tokens that were cached.", stats.cachedTokens);
  page.counter("vllm:generation_tokens", "Tokens generated.", stats.generationTokens);
  page.labelled("vllm:request_success", "counter", "Requests that ended, by reason.", "finished_reason", {
    ...stats.finished,
  });
  page.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", stats.requestPromptTokens);
  page.histogram("vllm:request_generation_tokens", "Generated tokens of a request.", stats.requestGenerationTokens);
  page.histogram("vllm:iteration_tokens_total", "Tokens in one engine step.", stats.stepTokens);
  page.histogram("vllm:time_to_first_token_seconds", "Time to the first token, queue included.", stats.ttftSeconds);
  page.histogram("vllm:inter_token_latency_seconds", "Gap between output tokens.", stats.itlSeconds);
  page.histogram(
    "vllm:request_time_per_output_token_seconds",
    "Mean gap between the tokens of a request.",
    stats.perTokenSeconds,
  );
  page.histogram("vllm:e2e_request_latency_seconds", "Arrival to end of a request.", stats.e2eSeconds);
  page.histogram("vllm:request_queue_time_seconds", "Time spent waiting.", stats.queueSeconds);
  page.histogram("vllm:request_inference_time_seconds", "Time spent running.", stats.inferenceSeconds);
  page.histogram("vllm:request_prefill_time_seconds", "Time spent on the prompt.", stats.prefillSeconds);
  page.histogram("vllm:request_decode_time_seconds", "Time spent on output.", stats.decodeSeconds);
  page.info("vllm:cache_config_info", "Cache configuration.", {
    block_size: String(BLOCK_TOKENS),
    cache_dtype: "auto",
    enable_prefix_caching: "True",
    engine: "0",
    gpu_memory_utilization: "0.92",
    num_gpu_blocks: String(now.kvBlocks),
  });
  return page.text();
}
