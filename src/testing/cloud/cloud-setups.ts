import type { ProviderFile } from "../../contract/overflow-provider-schema.ts";
import { resolveProvider } from "../../contract/resolve-provider.ts";
import type { ProviderSettings } from "../../contract/provider-settings.ts";
import { providerConfig } from "../../contract/overflow-provider-schema.ts";
import { systemClock } from "../../kernel/clock.ts";
import type { CloudDialect } from "./cloud-dialect.ts";
import { klingDialect } from "./kling-dialect.ts";
import { minimaxDialect, minimaxTasksDialect } from "./minimax-dialect.ts";
import { openaiDialect, tasksDialect } from "./plain-dialects.ts";

export const CLOUD_KEY = "cloud-key-for-tests";
const CLOUD_SECRET = "cloud-secret-for-tests";
/** What a test's environment holds for the tiers below. */
export const CLOUD_ENV = { CLOUD_KEY, CLOUD_SECRET };

/** A tier's part of the file for a cloud at `url`, as an operator writes it. */
export interface CloudSetup {
  readonly name: string;
  readonly dialect: () => CloudDialect;
  readonly file: (url: string) => Readonly<Record<string, unknown>>;
  /** Of the work in `videoBody`. */
  readonly priceMicros: number;
}

/** A description of the service of `tasksDialect`. */
export const tasksTemplate = {
  submit: { path: "/v1/tasks", task_id: "/data/id", idempotency_header: "Idempotency-Key" },
  poll: {
    path: "/v1/tasks/{id}",
    status: "/data/state",
    running: ["queued", "running"],
    succeeded: ["succeeded"],
    failed: ["failed", "cancelled"],
    progress: "/data/progress",
    error: "/data/reason",
    charged: "/data/charged",
  },
  result: { url: "/data/output/url" },
  cancel: { method: "POST", path: "/v1/tasks/{id}/cancel" },
  error: "/error",
};
/** The same of a place that can be asked for the task of a key. */
export const findingTemplate = { ...tasksTemplate, find: { path: "/v1/tasks?key={key}", task_id: "/data/id" } };

const priced = { key_env: "CLOUD_KEY", price: { per_second: 0.05, currency: "EUR" } };

export const minimaxSetup: CloudSetup = {
  name: "MiniMax",
  dialect: () => minimaxDialect(CLOUD_KEY),
  file: (url) => ({ ...priced, provider: "minimax", model: "MiniMax-Hailuo-02", base_url: url }),
  priceMicros: 500_000,
};

export const minimaxTasksSetup: CloudSetup = {
  name: "MiniMax's newest model",
  dialect: () => minimaxTasksDialect(CLOUD_KEY),
  file: (url) => ({ ...priced, provider: "minimax", model: "MiniMax-H3", base_url: url }),
  priceMicros: 500_000,
};

export const klingSetup: CloudSetup = {
  name: "Kling",
  dialect: () => klingDialect({ accessKey: CLOUD_KEY, secretKey: CLOUD_SECRET, clock: systemClock }),
  file: (url) => ({ ...priced, provider: "kling", model: "kling-v2", base_url: url, secret_key_env: "CLOUD_SECRET" }),
  priceMicros: 500_000,
};

export const tasksSetup: CloudSetup = {
  name: "a place described by configuration",
  dialect: () => tasksDialect(CLOUD_KEY),
  file: (url) => ({ ...priced, provider: "http", model: "video-1", base_url: url, http: tasksTemplate }),
  priceMicros: 500_000,
};

export const openaiSetup: CloudSetup = {
  name: "a service with OpenAI's API",
  dialect: () => openaiDialect(CLOUD_KEY),
  file: (url) => ({
    provider: "openai",
    model: "big-model",
    base_url: url,
    key_env: "CLOUD_KEY",
    price: { per_1k_tokens: 2, currency: "EUR" },
  }),
  priceMicros: 0,
};

/** Of ten seconds, beside a graph that no cloud is shown. */
export const videoBody = {
  prompt: { "1": { class_type: "SaveVideo", inputs: {} } },
  overflow: { prompt: "a train at night", duration: 10, callback_url: "http://elsewhere.invalid" },
};

export function providerOf(file: Readonly<Record<string, unknown>>): ProviderSettings {
  const parsed: ProviderFile = providerConfig.parse(file);
  return resolveProvider(parsed, CLOUD_ENV);
}
