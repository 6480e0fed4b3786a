import { isJsonObject } from "../http/token-usage.ts";
import type { EngineAdapter, EngineErrorKind } from "./adapter.ts";
import { MetricSeries } from "./metric-series.ts";
import { classifyStatus, listsModelsOf, mapPath, parseJson, readModelNames } from "./readings.ts";

const PATHS = { "/v1/tokenize": "/tokenize", "/v1/detokenize": "/detokenize" };
const LOADING = /loading model/i;

export const llamaCpp: EngineAdapter = {
  name: "llama.cpp",
  health: { path: "/health", timeoutMs: 5_000, everyMs: 5_000 },
  readHealth(status, body) {
    if (status === 200) return "healthy";
    if (status === 503 && LOADING.test(body)) return "loading";
    return status === 404 ? "noPage" : "unhealthy";
  },
  metricsPath: "/metrics",
  readLoad(samples) {
    const series = new MetricSeries(samples);
    const fresh = series.sum("llamacpp:prompt_tokens_total");
    const cached = series.sum("llamacpp:prompt_tokens_cached_total");
    return {
      running: series.sum("llamacpp:requests_processing"),
      waiting: series.sum("llamacpp:requests_deferred"),
      // Old builds only; newer ones tell nothing of their cache.
      kvUse: series.share("llamacpp:kv_cache_usage_ratio"),
      steps: series.sum("llamacpp:n_decode_total"),
      tokens: series.sum("llamacpp:tokens_predicted_total"),
      // The prompt counter leaves cached tokens out, so both together are what was looked up.
      prefixQueries: fresh === undefined || cached === undefined ? undefined : fresh + cached,
      prefixHits: cached,
    };
  },
  // Seen to work for more than 30 s on a non-streamed answer whose client had gone.
  stopsAbandoned: { streamed: true, nonStreamed: false },
  busyProbe: { path: "/slots", read: countBusySlots },
  // Any name is served with the loaded model.
  refusesUnknownModels: false,
  enginePath: (routePath) => mapPath(routePath, PATHS),
  classifyError(status, body): EngineErrorKind {
    if (status === 503 && LOADING.test(body)) return "overloaded";
    return classifyStatus(status);
  },
  priorityField: () => null,
  rerank: null,
  modelsPath: "/v1/models",
  readModels: readModelNames,
  // The second port is the announced next default.
  detect: { path: "/v1/models", defaultPorts: [8080, 9931], matches: listsModelsOf("llamacpp") },
};

function countBusySlots(body: string): number | undefined {
  const slots = parseJson(body);
  if (!Array.isArray(slots) || !slots.every((slot) => isJsonObject(slot) && typeof slot["is_processing"] === "boolean"))
    return undefined;
  return slots.filter((slot: unknown) => isJsonObject(slot) && slot["is_processing"] === true).length;
}
