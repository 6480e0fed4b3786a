import type { EngineAdapter, EngineErrorKind } from "./adapter.ts";
import { MetricSeries } from "./metric-series.ts";
import { classifyStatus, listsModelsOf, mapPath, readModelNames } from "./readings.ts";

// A lower number goes first. Missing counts as 0, so that requests which come past the gateway are not put behind.
const PRIORITY = { interactive: 0, system: 10, batch: 20 } as const;
const PATHS = { "/v1/tokenize": "/tokenize", "/v1/detokenize": "/detokenize", "/v1/classify": "/classify" };
const SHUTTING_DOWN = /cannot schedule new futures after shutdown|server (is )?shutting down/i;

export const vllm: EngineAdapter = {
  name: "vllm",
  // No forward pass: 200 also from a hung GPU and while draining. It tells death, not life.
  health: { path: "/health", timeoutMs: 5_000, everyMs: 5_000 },
  readHealth: (status) => (status === 200 ? "healthy" : status === 404 ? "noPage" : "unhealthy"),
  metricsPath: "/metrics",
  readLoad(samples) {
    const series = new MetricSeries(samples);
    return {
      running: series.sum("vllm:num_requests_running"),
      waiting: series.sum("vllm:num_requests_waiting"),
      kvUse: series.share("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
      // A histogram whose family ends in `_total`: its count is the number of engine steps.
      steps: series.sum("vllm:iteration_tokens_total_count"),
      tokens: series.sum("vllm:generation_tokens_total"),
      prefixQueries: series.sum("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
      prefixHits: series.sum("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    };
  },
  stopsAbandoned: { streamed: true, nonStreamed: true },
  busyProbe: null,
  refusesUnknownModels: true,
  enginePath: (routePath) => mapPath(routePath, PATHS),
  classifyError(status, body): EngineErrorKind {
    if (status >= 500 && body.includes("EngineCore encountered an issue")) return "engineDead";
    if (status >= 500 && SHUTTING_DOWN.test(body)) return "shuttingDown";
    return classifyStatus(status);
  },
  priorityField: (requestClass) => ({ field: "priority", value: PRIORITY[requestClass] }),
  rerank: null,
  modelsPath: "/v1/models",
  readModels: readModelNames,
  detect: { path: "/v1/models", defaultPorts: [8000], matches: listsModelsOf("vllm") },
};
