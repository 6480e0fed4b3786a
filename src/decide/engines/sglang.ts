import { isJsonObject } from "../http/token-usage.ts";
import type { EngineAdapter, EngineErrorKind } from "./adapter.ts";
import { MetricSeries } from "./metric-series.ts";
import { classifyStatus, listsModelsOf, parseJson, readModelNames } from "./readings.ts";

// A higher number goes first, unless the engine was started with the order turned round.
const PRIORITY = { interactive: 20, system: 10, batch: 0 } as const;

export const sglang: EngineAdapter = {
  name: "sglang",
  // The probe generates a token: it takes a second on an idle engine and up to 20 s on a busy one.
  health: { path: "/health", timeoutMs: 25_000, everyMs: 30_000 },
  readHealth: (status) => (status === 200 ? "healthy" : status === 404 ? "noPage" : "unhealthy"),
  metricsPath: "/metrics",
  readLoad(samples) {
    const series = new MetricSeries(samples);
    return {
      running: series.sum("sglang:num_running_reqs"),
      waiting: series.sum("sglang:num_queue_reqs"),
      kvUse: series.share("sglang:token_usage"),
      steps: undefined,
      tokens: series.sum("sglang:generation_tokens_total"),
      prefixQueries: series.sum("sglang:prompt_tokens_total"),
      prefixHits: series.sum("sglang:cached_tokens_total"),
    };
  },
  stopsAbandoned: { streamed: true, nonStreamed: true },
  // Works also where the engine was started without its metrics.
  busyProbe: { path: "/v1/loads?include=core", read: readLoads },
  refusesUnknownModels: false,
  enginePath: (routePath) => routePath,
  classifyError(status, body): EngineErrorKind {
    if (status === 503 && /queue/i.test(body)) return "overloaded";
    if (status >= 500 && /shutting down/i.test(body)) return "shuttingDown";
    return classifyStatus(status);
  },
  priorityField: (requestClass) => ({ field: "priority", value: PRIORITY[requestClass] }),
  rerank: null,
  modelsPath: "/v1/models",
  readModels: readModelNames,
  detect: { path: "/v1/models", defaultPorts: [30_000], matches: listsModelsOf("sglang") },
};

/** One entry per data-parallel rank, in a list or in an object that holds the list. */
function readLoads(body: string): number | undefined {
  const value = parseJson(body);
  const lists = isJsonObject(value) ? [[value], ...Object.values(value)] : [value];
  for (const list of lists) {
    if (!Array.isArray(list)) continue;
    const counts = list
      .map((entry: unknown) => (isJsonObject(entry) ? entry["num_running_reqs"] : undefined))
      .filter((count) => typeof count === "number");
    if (counts.length > 0) return counts.reduce((total, count) => total + count, 0);
  }
  return undefined;
}
