import { NO_LOAD, type EngineAdapter, type EngineErrorKind } from "./adapter.ts";
import { classifyStatus, readModelNames } from "./readings.ts";

const RUNNING = "Ollama is running";

export const ollama: EngineAdapter = {
  name: "ollama",
  // A probe that names a model would load it, and drive another one out.
  health: { path: "/", timeoutMs: 5_000, everyMs: 5_000 },
  readHealth: (status, body) => (status !== 200 ? "unhealthy" : body.includes(RUNNING) ? "healthy" : "noPage"),
  metricsPath: null,
  readLoad: () => NO_LOAD,
  stopsAbandoned: { streamed: true, nonStreamed: true },
  busyProbe: null,
  refusesUnknownModels: true,
  enginePath: (routePath) => routePath,
  classifyError: (status, body): EngineErrorKind =>
    status === 503 && body.includes("server busy") ? "overloaded" : classifyStatus(status),
  priorityField: () => null,
  rerank: null,
  modelsPath: "/v1/models",
  readModels: readModelNames,
  detect: { path: "/", defaultPorts: [11_434], matches: (status, body) => status === 200 && body.trim() === RUNNING },
};
