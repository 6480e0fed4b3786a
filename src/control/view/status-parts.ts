import type { StatusView } from "../../contract/control-api.ts";
import type { KeptOnNode } from "../../contract/fleet.ts";
import { type EpochMs, asEpoch, isoTime } from "../../kernel/clock.ts";
import type { ClusterSnapshot, GatewaySeen, SeenNode } from "./cluster-view.ts";
import { countBy, current, holds, modelViews } from "./views.ts";

// What `ctl status` and the page of metrics show of the cluster as a whole.

/** A pause between two requests is no sign of anything. */
const NOT_ASKED_MS = 60_000;

export function statusParts(
  snapshot: ClusterSnapshot,
): Pick<StatusView, "nodes" | "gpus" | "replicas" | "troubles" | "fabrics"> {
  return {
    nodes: countBy(snapshot.nodes, ({ state }) => state),
    gpus: capacity(snapshot),
    replicas: countBy(snapshot.replicas, ({ state }) => state),
    troubles: modelViews(snapshot).flatMap(({ name, state, why }) =>
      why !== null && (state === "parked" || state === "waiting") ? [{ model: name, why }] : [],
    ),
    fabrics: fabrics(snapshot),
  };
}

/** Cards of a node that is not heard are counted by what it last said of them, and as unknown. */
export function capacity({ nodes, replicas, models }: ClusterSnapshot): StatusView["gpus"] {
  const taken = new Set(replicas.filter(holds).flatMap(({ shards }) => shards.flatMap(({ gpuUuids }) => gpuUuids)));
  const kept = new Set(keptNodes(models).flatMap(({ cards }) => Object.keys(cards)));
  const byClass = new Map<string, StatusView["gpus"][number]>();
  for (const node of nodes) {
    for (const gpu of node.report?.gpus ?? []) {
      const row = byClass.get(gpu.class) ?? {
        class: gpu.class,
        cards: 0,
        used: 0,
        kept: 0,
        free: 0,
        sick: 0,
        unknown: 0,
      };
      byClass.set(gpu.class, row);
      row.cards += 1;
      if (node.state !== "ready") row.unknown += 1;
      else if (gpu.health === "sick") row.sick += 1;
      else if (taken.has(gpu.uuid)) row.used += 1;
      else if (kept.has(gpu.uuid)) row.kept += 1;
      else row.free += 1;
    }
  }
  return [...byClass.values()].toSorted((a, b) => (a.class < b.class ? -1 : 1));
}

/** What models keep for replicas that are to come in the place of stopped ones. */
const keptNodes = (models: ClusterSnapshot["models"]): readonly KeptOnNode[] =>
  models.flatMap(({ keepsRoom = [] }) => keepsRoom.flatMap(({ nodes }) => nodes));

/** Whole nodes are what replicas over several nodes need: one card that is taken makes a node of no use to them. */
function fabrics({ nodes, replicas, models }: ClusterSnapshot): StatusView["fabrics"] {
  const held = replicas.filter(holds).flatMap(({ shards }) => shards);
  const taken = new Set([...held, ...keptNodes(models)].map(({ nodeId }) => nodeId));
  const rows = new Map<string | null, StatusView["fabrics"][number]>();
  for (const node of nodes) {
    const cards = (node.report ?? node.doc.lastReport)?.gpus ?? [];
    if (cards.length === 0 && node.report?.gpuDiscovery !== "failed") continue;
    const fabric = (node.report ?? node.doc.lastReport)?.fabric ?? null;
    const row = rows.get(fabric) ?? { fabric, nodes: 0, free: 0, unknown: 0 };
    rows.set(fabric, row);
    row.nodes += 1;
    const use = useOf(node, taken);
    if (use === "unknown") row.unknown += 1;
    else if (use === "free") row.free += 1;
  }
  return [...rows.values()].toSorted((a, b) => ((a.fabric ?? "~") < (b.fabric ?? "~") ? -1 : 1));
}

function useOf(node: SeenNode, taken: ReadonlySet<string>): "free" | "taken" | "unknown" {
  const report = current(node);
  if (report === null || report.gpuDiscovery === "failed") return "unknown";
  if (node.doc.cordoned || node.doc.draining === true || taken.has(node.doc.id)) return "taken";
  if (report.gpus.some(({ health, foreignMib }) => health === "sick" || (foreignMib ?? 0) > 0)) return "taken";
  return report.gpus.some(({ health, usedMib }) => health === "unknown" || usedMib === null) ? "unknown" : "free";
}

/** For how long nobody has asked for a model of which something is ready; null where that is not known of each replica. */
export function idleModels({
  replicas,
  use,
}: ClusterSnapshot): ReadonlyMap<string, { count: number; idleMs: number | null }> {
  const models = new Map<string, { count: number; idleMs: number | null }>();
  for (const { id, model, state } of replicas) {
    if (state !== "ready") continue;
    const known = use.get(id)?.idleMs ?? null;
    const before = models.get(model);
    const idleMs =
      before === undefined ? known : known === null || before.idleMs === null ? null : Math.min(known, before.idleMs);
    models.set(model, { count: (before?.count ?? 0) + 1, idleMs });
  }
  return models;
}

export function idleParts(snapshot: ClusterSnapshot, now: EpochMs): Pick<StatusView, "not_asked" | "use_unknown"> {
  const all = [...idleModels(snapshot)];
  const idle = all.flatMap(([model, { count, idleMs }]) =>
    idleMs === null || idleMs < NOT_ASKED_MS ? [] : [{ model, replicas: count, idleMs }],
  );
  return {
    not_asked: idle
      .toSorted((a, b) => b.idleMs - a.idleMs || (a.model < b.model ? -1 : 1))
      .map(({ model, replicas, idleMs }) => ({
        model,
        replicas,
        idle_s: Math.round(idleMs / 1_000),
        since: isoTime(asEpoch(now - idleMs)),
      })),
    use_unknown: all.filter(([, { idleMs }]) => idleMs === null).length,
  };
}

export function gatewayParts(gateways: readonly GatewaySeen[]): Pick<StatusView, "gateways" | "jobs"> {
  // Gateways that share a store tell the same of it; the last word on it may be a moment older than another's.
  const stores = new Map(gateways.flatMap(({ jobs }) => (jobs === null ? [] : [[jobs.store, jobs] as const])));
  const sum = (of: (gateway: GatewaySeen) => number): number => gateways.reduce((all, one) => all + of(one), 0);
  const jobs = [...stores.values()];
  return {
    gateways: {
      connected: gateways.length,
      behind: gateways.filter(({ behind }) => behind).length,
      waiting: sum(({ waiting }) => waiting),
      in_flight: sum(({ inFlight }) => inFlight),
    },
    jobs:
      jobs.length === 0
        ? null
        : {
            queued: jobs.reduce((all, { queued }) => all + queued, 0),
            running: jobs.reduce((all, { running }) => all + running, 0),
          },
  };
}
