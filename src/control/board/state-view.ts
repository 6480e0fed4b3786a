import type { ClusterState, UpstreamRow } from "../../contract/board.ts";
import type { LeaderAnswer } from "../../contract/control-api.ts";
import { tierToApprove } from "../../decide/overflow/tier-to-approve.ts";
import type { StateView } from "../../decide/board/state-sentence.ts";
import type { ClusterSnapshot, GatewaySeen } from "../view/cluster-view.ts";
import { modelViews } from "../view/views.ts";
import type { Polled } from "./gateway-poll.ts";

export interface StateParts {
  /** Null: nothing could be read since this control plane started. */
  readonly snapshot: ClusterSnapshot | null;
  readonly cluster: ClusterState;
  readonly leader: LeaderAnswer;
  readonly gateways: readonly GatewaySeen[];
  readonly upstreams: readonly UpstreamRow[];
  /** A minute ago; null: not known. */
  readonly waitedBefore: (upstream: string) => number | null;
  readonly polled: Polled;
}

const IN_S = 1_000;

/** What the top line is made from. */
export function stateView(parts: StateParts): StateView {
  const { snapshot, cluster, leader, polled } = parts;
  return {
    led: leader.leader !== null,
    storeSilentS: leader.store_silent_s,
    restored: cluster.restored,
    catalogHeld: cluster.catalog.held?.why ?? null,
    catalogRefused: cluster.catalog.refused,
    ...ofFleet(snapshot),
    upstreams: parts.upstreams.map(({ id, waiting, oldestWaitMs, away, catalogModel }) => ({
      id,
      waiting: waiting.interactive + waiting.system + waiting.batch,
      waitedBefore: parts.waitedBefore(id),
      oldestWaitMs,
      away,
      isOfCatalog: catalogModel !== null,
    })),
    gateways: parts.gateways.map(({ id, name, silentMs }) => ({
      id,
      name,
      silentS: silentMs === null ? null : silentMs / IN_S,
    })),
    approvalsAsked: asked(polled),
    haltedTiers: (polled.spend?.tiers ?? []).flatMap(({ tier, halted }) =>
      halted === null ? [] : { tier, why: halted.why },
    ),
    overflowStopped: polled.spend?.stopped ?? null,
    gpus: {
      cards: sum(cluster.capacity.map(({ cards }) => cards)),
      used: sum(cluster.capacity.map(({ used }) => used)),
    },
  };
}

function ofFleet(snapshot: ClusterSnapshot | null): Pick<StateView, "nodes" | "sickGpus" | "models" | "starting"> {
  if (snapshot === null) return { nodes: [], sickGpus: [], models: [], starting: 0 };
  const { nodes, replicas } = snapshot;
  const held = new Map<string, number>();
  for (const { state, shards } of replicas) {
    if (state === "stopped" || state === "failed") continue;
    for (const nodeId of new Set(shards.map((shard) => shard.nodeId))) held.set(nodeId, (held.get(nodeId) ?? 0) + 1);
  }
  return {
    nodes: nodes.map(({ doc, state, silentMs, report }) => ({
      id: doc.id,
      name: doc.name,
      state,
      silentS: silentMs === null ? null : silentMs / IN_S,
      diskFreeMib: state === "ready" ? (report?.diskFreeMib ?? null) : null,
      replicas: held.get(doc.id) ?? 0,
    })),
    sickGpus: nodes.flatMap(({ doc, state, report }) =>
      state !== "ready"
        ? []
        : (report?.gpus ?? []).flatMap(({ health, index, healthWhy }) =>
            health === "sick" ? { nodeId: doc.id, node: doc.name, index, why: healthWhy } : [],
          ),
    ),
    models: modelViews(snapshot),
    starting: replicas.filter(({ state }) => state === "placing" || state === "fetching" || state === "starting")
      .length,
  };
}

/** Open jobs that would go to a tier if somebody said that they may. */
const asked = ({ jobs }: Polled): StateView["approvalsAsked"] =>
  [...jobs.values()].flatMap(({ id, state, overflow }) => {
    if ((state !== "queued" && state !== "running") || overflow === null) return [];
    const tier = tierToApprove(overflow.decision, overflow.missing);
    return tier === null ? [] : { job: id, tier };
  });

const sum = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0);
