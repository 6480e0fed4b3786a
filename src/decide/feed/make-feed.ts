import type { Catalog, Model, Profile } from "../../contract/catalog.ts";
import type { FeedChange, FeedEndpoint, FeedEngine, FeedModel } from "../../contract/feed.ts";
import type { ModelDoc, ReplicaDoc } from "../../contract/fleet.ts";
import { formatListen } from "../../contract/listen-address.ts";
import { failedInRow } from "../reconcile/model-failures.ts";
import { byModel, runningOf } from "../reconcile/model-counts.ts";
import type { PlacementRefusal, StoredDocs } from "../reconcile/snapshot.ts";

/** What gateways are told, by model name and by replica. */
export interface FeedState {
  readonly models: ReadonlyMap<string, FeedModel>;
  readonly endpoints: ReadonlyMap<string, FeedEndpoint>;
}

export const NO_FEED: FeedState = { models: new Map(), endpoints: new Map() };

const WHY_CHARS_MAX = 2_000;

/**
 * From what is committed alone, never from what a node says at the moment: a node that is silent keeps its endpoints, and a new
 * leader that has heard nobody yet tells what the one before it told.
 */
export function makeFeed(catalog: Catalog, docs: StoredDocs, unplaced: readonly PlacementRefusal[]): FeedState {
  const replicas = byModel(docs.replicas.values());
  const noRoom = new Map(unplaced.map((refusal) => [refusal.model, refusal.why]));
  const models = new Map<string, FeedModel>();
  for (const model of catalog.models.values()) {
    const its = replicas.get(model.name) ?? [];
    models.set(model.name, feedModel(model, its, docs.models.get(model.name), noRoom.get(model.name)));
  }
  const endpoints = new Map<string, FeedEndpoint>();
  for (const doc of docs.replicas.values()) {
    const endpoint = feedEndpoint(doc, docs, catalog.models.get(doc.model));
    if (endpoint !== null) endpoints.set(doc.id, endpoint);
  }
  return { models, endpoints };
}

function feedModel(
  model: Model,
  replicas: readonly ReplicaDoc[],
  doc: ModelDoc | undefined,
  noRoom: string | undefined,
): FeedModel {
  const { settled, why } = settle(model, replicas, doc, noRoom);
  const [profile] = model.profiles;
  return {
    name: model.name,
    aliases: [...model.aliases],
    engine: profile === undefined ? "generic" : feedEngine(profile),
    slotsPerReplica: model.slotsPerReplica,
    startable: model.replicas.max > 0 && settled !== "parked" && settled !== "unplaced",
    why: why === null ? null : why.slice(0, WHY_CHARS_MAX),
    settled,
    failedStarts: doc?.failuresInRow ?? 0,
  };
}

function settle(
  { replicas: { min } }: Model,
  replicas: readonly ReplicaDoc[],
  doc: ModelDoc | undefined,
  noRoom: string | undefined,
): Pick<FeedModel, "settled" | "why"> {
  const running = runningOf(replicas);
  if (running.some(({ state }) => state === "ready")) return { settled: "ready", why: null };
  if (doc !== undefined && doc.parked !== null) return { settled: "parked", why: doc.parked.why };
  const [starting] = running;
  if (starting !== undefined) return { settled: "starting", why: `${starting.state} since ${starting.createdAt}` };
  if (noRoom !== undefined) return { settled: "unplaced", why: noRoom };
  if (doc !== undefined && doc.backoffMs !== null && doc.failuresInRow > 0)
    return { settled: "starting", why: `${failedInRow(doc.failuresInRow)}; it is tried again after a pause` };
  if (min > 0 || (doc !== undefined && (doc.demandedAt !== null || (doc.scaledTo ?? 0) > 0)))
    return { settled: "starting", why: "it is to be placed" };
  return { settled: "stopped", why: null };
}

/** Null for one that gateways can't use: not ready yet, on its way out, or of a node that is no longer part of the cluster. */
function feedEndpoint(doc: ReplicaDoc, docs: StoredDocs, model: Model | undefined): FeedEndpoint | null {
  const [head] = doc.shards;
  const node = head === undefined ? undefined : docs.nodes.get(head.nodeId);
  const address = node?.lastReport?.address;
  if (doc.state !== "ready" && doc.state !== "draining") return null;
  if (node === undefined || address === undefined || doc.port === null) return null;
  return {
    replicaId: doc.id,
    generation: doc.generation,
    model: doc.model,
    url: `http://${formatListen({ host: address, port: doc.port })}`,
    engine: feedEngine(doc.profile),
    engineKey: doc.engineKey,
    slots: slotsOf(doc.profile) ?? model?.slotsPerReplica ?? 1,
    gpus: doc.shards.flatMap(({ nodeId, gpuUuids }) =>
      gpuUuids.map((uuid) => `${docs.nodes.get(nodeId)?.name ?? nodeId}/${uuid}`),
    ),
    node: node.name,
    draining: doc.state === "draining",
  };
}

/** A simulated engine speaks the dialect that its profile names. */
function feedEngine({ engine, args }: Profile): FeedEngine {
  switch (engine) {
    case "vllm":
    case "sglang":
    case "llama.cpp":
    case "tei":
      return engine;
    case "sim":
      return args["dialect"] === "llama.cpp" ? "llama.cpp" : "vllm";
    case "comfyui":
    case "command":
      return "generic";
  }
}

/** A simulated engine may be told to have other slots than its model. */
const slotsOf = ({ engine, args: { slots } }: Profile): number | null =>
  engine === "sim" && typeof slots === "number" && Number.isInteger(slots) && slots > 0 ? slots : null;

/** What has to be laid over `before` to get `after`; null: nothing. */
export function diffFeed(before: FeedState, after: FeedState): FeedChange | null {
  const models = news(before.models, after.models);
  const endpoints = news(before.endpoints, after.endpoints);
  const modelsGone = [...before.models.keys()].filter((name) => !after.models.has(name));
  const endpointsGone = [...before.endpoints.keys()].filter((id) => !after.endpoints.has(id));
  const nothing = models.length + endpoints.length + modelsGone.length + endpointsGone.length === 0;
  return nothing ? null : { models, endpoints, modelsGone, endpointsGone };
}

/** Both are made by one function, so an equal text is an equal item. */
const news = <T>(before: ReadonlyMap<string, T>, after: ReadonlyMap<string, T>): T[] =>
  [...after].flatMap(([key, item]) => {
    const was = before.get(key);
    return was !== undefined && JSON.stringify(was) === JSON.stringify(item) ? [] : [item];
  });
