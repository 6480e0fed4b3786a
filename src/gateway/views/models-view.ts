import type { CatalogStanding } from "../../contract/gateway-config.ts";
import type { EpochMs } from "../../kernel/clock.ts";
import type { RequestKey } from "../../access/request-key.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";

/** One entry of `/v1/models`, in OpenAI's shape with the model's state beside it. */
export interface ModelCard {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: string;
  /** `starting` and `stopped`: nothing of it runs yet, and a request waits for it. */
  readonly state: "ready" | "starting" | "stopped" | "unavailable";
  readonly reason: string | null;
}

const visible = (key: RequestKey, model: string, upstream: Upstream): boolean =>
  upstream.settings.kind === "openai" && key.allowsModel(model) && (!upstream.settings.external || key.allowExternal);

function cardOf(model: string, upstream: Upstream, startedAt: EpochMs): ModelCard {
  const away = upstream.unavailable(model, true);
  const standing = upstream.start.kind === "waits" ? (upstream.settings.catalog?.standing ?? null) : null;
  return {
    id: model,
    object: "model",
    created: Math.floor(startedAt / 1000),
    owned_by: "yardmaster",
    state: away !== null ? "unavailable" : standing === null ? "ready" : startOf(standing),
    reason: away?.reason ?? standing?.why ?? null,
  };
}

const startOf = ({ settled }: CatalogStanding): ModelCard["state"] => (settled === "stopped" ? "stopped" : "starting");

export const listModels = (registry: UpstreamRegistry, key: RequestKey, startedAt: EpochMs): readonly ModelCard[] =>
  registry
    .models()
    .filter(([model, upstream]) => visible(key, model, upstream))
    .map(([model, upstream]) => cardOf(model, upstream, startedAt));

/** A model that the key may not use is not told from one that does not exist. */
export function findModel(
  registry: UpstreamRegistry,
  key: RequestKey,
  model: string,
  startedAt: EpochMs,
): ModelCard | undefined {
  const upstream = registry.byModel(model);
  return upstream !== undefined && visible(key, model, upstream) ? cardOf(model, upstream, startedAt) : undefined;
}
