import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePrometheus } from "../testing/exposition-parser.ts";
import { VirtualClock } from "../testing/virtual-clock.ts";
import { EngineCore, type WorkListener, type WorkRequest } from "./engine-core.ts";
import { llamacppMetrics, sixDigits } from "./llamacpp-metrics.ts";
import { vllmMetrics } from "./vllm-metrics.ts";

const request = (over: Partial<WorkRequest> = {}): WorkRequest => ({
  promptText: "x".repeat(400),
  promptTokens: 100,
  outputTokens: 10,
  priority: 0,
  finish: "length",
  choices: 1,
  ...over,
});

class Events implements WorkListener {
  readonly log: string[] = [];
  queued(): void {
    this.log.push("queued");
  }
  started(cachedTokens: number): void {
    this.log.push(`started ${cachedTokens}`);
  }
  tokens(from: number, count: number): void {
    this.log.push(`tokens ${from}+${count}`);
  }
  ended(): void {
    this.log.push("ended");
  }
  failed(why: string): void {
    this.log.push(why);
  }
}

function anEngine(): {
  clock: VirtualClock;
  core: EngineCore;
  vllm: () => Map<string, number>;
  llama: () => Map<string, number>;
} {
  const clock = new VirtualClock();
  const core = new EngineCore({
    models: ["tiny"],
    dialect: "vllm",
    slots: 1,
    prefillTps: 100,
    decodeTps: 10,
    seed: 1,
    clock,
  });
  const values = (text: string): Map<string, number> =>
    new Map(
      parsePrometheus(text).flatMap((family) =>
        family.samples.map((sample): [string, number] => [
          sample.labels["finished_reason"] === undefined
            ? sample.name
            : `${sample.name} ${sample.labels["finished_reason"]}`,
          sample.value,
        ]),
      ),
    );
  return {
    clock,
    core,
    vllm: () => values(vllmMetrics("tiny", core.stats, core.gauges())),
    llama: () => values(llamacppMetrics(core.stats, core.gauges())),
  };
}

test("vLLM's page parses strictly and follows a request from queue to end", async () => {
  const { clock, core, vllm } = anEngine();
  core.submit(request(), new Events());
  core.submit(request(), new Events());
  await clock.advance(500);
  const prefill = vllm();
  assert.deepEqual(
    ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total"].map((name) =>
      prefill.get(name),
    ),
    [1, 1, 0],
  );
  assert.ok((prefill.get("vllm:iteration_tokens_total_count") ?? 0) > 0);
  assert.ok((prefill.get("vllm:kv_cache_usage_perc") ?? 0) > 0);
  await clock.advance(10_000);
  const idle = vllm();
  assert.deepEqual(
    [
      "vllm:num_requests_running",
      "vllm:prompt_tokens_total",
      "vllm:prefix_cache_queries_total",
      "vllm:prefix_cache_hits_total",
      "vllm:generation_tokens_total",
      "vllm:request_success_total length",
      "vllm:kv_cache_usage_perc",
    ].map((name) => idle.get(name)),
    [0, 200, 200, 96, 20, 2, 0],
  );
  assert.equal(idle.get("vllm:time_to_first_token_seconds_count"), 2);
  assert.equal(idle.get("vllm:inter_token_latency_seconds_count"), 18);
});

test("vLLM's page has the families that the measured server has for load, cache, tokens and latency", () => {
  const { vllm } = anEngine();
  const names = new Set([...vllm().keys()].map((name) => name.split(" ")[0]));
  for (const name of [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:kv_cache_usage_perc",
    "vllm:engine_sleep_state",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_queries_created",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_by_source_total",
    "vllm:prompt_tokens_cached_total",
    "vllm:request_success_total",
    "vllm:iteration_tokens_total_bucket",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_sum",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:request_queue_time_seconds_bucket",
    "vllm:cache_config_info",
  ])
    assert.ok(names.has(name), name);
});

test("llama.cpp's page parses strictly and counts busy slots, the queue and decode calls", async () => {
  const { clock, core, llama } = anEngine();
  core.submit(request(), new Events());
  core.submit(request(), new Events());
  await clock.advance(1_500);
  const busy = llama();
  assert.deepEqual(
    ["requests_processing", "requests_deferred", "tokens_predicted_total"].map((name) => busy.get(`llamacpp:${name}`)),
    [1, 1, 6],
  );
  await clock.advance(10_000);
  const idle = llama();
  assert.deepEqual(
    ["requests_processing", "prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total"].map((name) =>
      idle.get(`llamacpp:${name}`),
    ),
    [0, 104, 96, 20],
  );
  assert.ok((idle.get("llamacpp:n_decode_total") ?? 0) > (busy.get("llamacpp:n_decode_total") ?? 0));
  assert.equal(idle.get("llamacpp:n_busy_slots_per_decode"), 1);
});

test("llama.cpp prints six significant digits", () => {
  const rows: readonly [number, string][] = [
    [0, "0"],
    [68, "68"],
    [2.138491, "2.13849"],
    [999_999, "999999"],
    [1_234_567, "1.23457e+06"],
    [0.000012345678, "1.23457e-05"],
    [1.8, "1.8"],
  ];
  for (const [value, text] of rows) assert.equal(sixDigits(value), text);
});

test("a frozen engine gives nothing and goes on where it was when it thaws", async () => {
  const { clock, core } = anEngine();
  const events = new Events();
  core.submit(request(), events);
  await clock.advance(1_100);
  const before = [...events.log];
  core.freeze();
  await clock.advance(60_000);
  assert.deepEqual(events.log, before);
  assert.equal(core.gauges().running, 1);
  core.thaw();
  assert.equal(events.log.at(-1), "ended");
});

test("a request that leaves frees the slot at once and is told nothing more", async () => {
  const { clock, core } = anEngine();
  const [first, second] = [new Events(), new Events()];
  const work = core.submit(request(), first);
  core.submit(request(), second);
  await clock.advance(1_000);
  work.leave();
  work.leave();
  assert.deepEqual([core.running, core.waiting], [1, 0]);
  await clock.advance(60_000);
  assert.equal(first.log.includes("ended"), false);
  assert.equal(second.log.at(-1), "ended");
});

test("when the engine dies every request is told, waiting ones too", async () => {
  const { clock, core } = anEngine();
  const [first, second] = [new Events(), new Events()];
  core.submit(request(), first);
  core.submit(request(), second);
  await clock.advance(100);
  core.failAll("dead");
  assert.deepEqual([first.log.at(-1), second.log.at(-1), core.running, core.waiting], ["dead", "dead", 0, 0]);
});
