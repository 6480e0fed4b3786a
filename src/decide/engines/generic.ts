import { NO_LOAD, type EngineAdapter } from "./adapter.ts";
import { classifyStatus, readModelNames } from "./readings.ts";

const WITHOUT_PAGE: ReadonlySet<number> = new Set([401, 403, 404, 405, 501]);

/** Services say it with the status of a full queue. */
const NO_MONEY = /"(?:insufficient_quota|billing_hard_limit_reached)"/;

/** An engine of which nothing is known but that it speaks the OpenAI API. */
export const generic: EngineAdapter = {
  name: "generic",
  health: { path: "/health", timeoutMs: 5_000, everyMs: 5_000 },
  readHealth: (status) =>
    status >= 200 && status < 300 ? "healthy" : WITHOUT_PAGE.has(status) ? "noPage" : "unhealthy",
  metricsPath: null,
  readLoad: () => NO_LOAD,
  stopsAbandoned: { streamed: true, nonStreamed: true },
  busyProbe: null,
  refusesUnknownModels: false,
  enginePath: (routePath) => routePath,
  classifyError: (status, body) => (status === 429 && NO_MONEY.test(body) ? "noMoney" : classifyStatus(status)),
  priorityField: () => null,
  rerank: null,
  modelsPath: "/v1/models",
  readModels: readModelNames,
  detect: null,
};
