import type { EngineAdapter, EngineErrorKind } from "./adapter.ts";
import { NO_LOAD } from "./adapter.ts";
import { MetricSeries } from "./metric-series.ts";
import { classifyStatus, mapPath, parseJsonObject } from "./readings.ts";
import { teiRerank } from "./tei-rerank.ts";

const PATHS = {
  "/v1/rerank": "/rerank",
  "/v2/rerank": "/rerank",
  "/v1/tokenize": "/tokenize",
  "/v1/detokenize": "/decode",
  "/v1/classify": "/predict",
};

export const tei: EngineAdapter = {
  name: "tei",
  // Runs a small check on the backend.
  health: { path: "/health", timeoutMs: 5_000, everyMs: 10_000 },
  readHealth: (status) => (status === 200 ? "healthy" : status === 404 ? "noPage" : "unhealthy"),
  metricsPath: "/metrics",
  readLoad(samples) {
    const series = new MetricSeries(samples);
    return { ...NO_LOAD, waiting: series.sum("te_queue_size") };
  },
  stopsAbandoned: { streamed: true, nonStreamed: true },
  busyProbe: null,
  refusesUnknownModels: false,
  enginePath: (routePath) => mapPath(routePath, PATHS),
  classifyError(status, body): EngineErrorKind {
    // 424 is the backend's failure, although it is a 4xx.
    if (status === 424) return "engineFault";
    if (status === 503 && body.includes("Overloaded")) return "overloaded";
    return classifyStatus(status);
  },
  priorityField: () => null,
  rerank: teiRerank,
  modelsPath: "/info",
  readModels: (body) => namesOf(body),
  detect: {
    path: "/info",
    defaultPorts: [3000],
    matches: (status, body) =>
      status === 200 &&
      namesOf(body) !== undefined &&
      typeof parseJsonObject(body)?.["max_client_batch_size"] === "number",
  },
};

function namesOf(body: string): readonly string[] | undefined {
  const info = parseJsonObject(body);
  const names = [info?.["served_model_name"], info?.["model_id"]].filter(
    (name): name is string => typeof name === "string" && name !== "",
  );
  return names.length === 0 ? undefined : [...new Set(names)];
}
