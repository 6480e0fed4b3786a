import type { ClusterState, GatewayRow, GpuRow, GpuTile, JobRow, NodeRow, ReplicaRow } from "../../contract/board.ts";
import type { GatewayAnswer, NodeAnswer, ReplicaAnswer } from "../../contract/control-api.ts";
import type { GpuReport, ReplicaDoc } from "../../contract/fleet.ts";
import type { JobView } from "../../contract/job-view.ts";
import { isGone } from "../../decide/reconcile/observe.ts";
import type { GatewaySeen, SeenNode } from "../view/cluster-view.ts";

// The board's rows out of what the API shows. An age would make a new row of everything in every second, so ages are told as the time
// since when; and what nobody can see a difference in is rounded.

const GIB_MIB = 1_024;
const MEMORY_STEP_MIB = 64;
/** A node or gateway that was heard within this is heard. */
const HEARD_MS = 5_000;
const SINCE_SLACK_MS = 2_500;
const PLAN_STEPS = 4;

/**
 * When something began, from how long it has lasted: a moment that was told before is told again while it still fits, since clocks and
 * rounding move it a little every time.
 */
export class Since {
  readonly #told = new Map<string, number>();

  of(id: string, lastedMs: number | null, now: number): number | null {
    if (lastedMs === null) {
      this.#told.delete(id);
      return null;
    }
    const since = Math.round(now - lastedMs);
    const before = this.#told.get(id);
    if (before !== undefined && Math.abs(before - since) <= SINCE_SLACK_MS) return before;
    this.#told.set(id, since);
    return since;
  }

  keep(ids: { has(id: string): boolean }): void {
    for (const id of this.#told.keys()) if (!ids.has(id)) this.#told.delete(id);
  }
}

const toStep = (value: number | null, step: number): number | null =>
  value === null ? null : Math.round(value / step) * step;

export function nodeRow(
  view: NodeAnswer,
  seen: Pick<SeenNode, "silentMs">,
  inFlight: number | null,
  { since, now }: { readonly since: Since; readonly now: number },
): NodeRow {
  const { silent_s: _silent, ...rest } = view;
  const silentMs = view.state === "ready" && (seen.silentMs ?? 0) < HEARD_MS ? null : seen.silentMs;
  return {
    ...rest,
    // Rounded down: a disk that is nearly full must not look emptier than it is.
    memory_free_mib: view.memory_free_mib === null ? null : Math.floor(view.memory_free_mib / GIB_MIB) * GIB_MIB,
    disk_free_mib: view.disk_free_mib === null ? null : Math.floor(view.disk_free_mib / GIB_MIB) * GIB_MIB,
    silentSince: since.of(`node ${view.id}`, silentMs, now),
    inFlight,
  };
}

/** Only a node that is heard speaks of now. */
export function gpuRow({ doc, report }: SeenNode, heldBy: ReadonlyMap<string, GpuTile["held"]>): GpuRow {
  return { node: doc.name, gpus: (report?.gpus ?? []).map((gpu) => gpuTile(gpu, heldBy.get(gpu.uuid) ?? [])) };
}

const gpuTile = (gpu: GpuReport, held: GpuTile["held"]): GpuTile => ({
  uuid: gpu.uuid,
  index: gpu.index,
  name: gpu.name,
  class: gpu.class,
  health: gpu.health,
  why: gpu.healthWhy,
  memoryMib: gpu.memoryMib,
  usedMib: toStep(gpu.usedMib, MEMORY_STEP_MIB),
  foreignMib: toStep(gpu.foreignMib, MEMORY_STEP_MIB),
  utilization: gpu.utilization === null ? null : Math.round(gpu.utilization * 100) / 100,
  temperatureC: gpu.temperatureC === null ? null : Math.round(gpu.temperatureC),
  held,
});

/** Who holds each card, by its UUID. The same list for as long as nothing about it has changed would cost more than it saves. */
export function holders(replicas: readonly ReplicaDoc[]): Map<string, GpuTile["held"]> {
  const held = new Map<string, GpuTile["held"]>();
  for (const replica of replicas) {
    if (isGone(replica)) continue;
    const tenant = { replica: replica.id, model: replica.model };
    for (const uuid of replica.shards.flatMap(({ gpuUuids }) => gpuUuids))
      held.set(uuid, [...(held.get(uuid) ?? []), tenant]);
  }
  return held;
}

export function replicaRow(
  view: ReplicaAnswer,
  idleMs: number | null,
  inFlight: number | null,
  { since, now }: { readonly since: Since; readonly now: number },
): ReplicaRow {
  const { idle_s: _idle, ...rest } = view;
  return { ...rest, idleSince: since.of(`replica ${view.id}`, idleMs === 0 ? null : idleMs, now), inFlight };
}

export function gatewayRow(
  view: GatewayAnswer,
  { silentMs }: GatewaySeen,
  tells: boolean,
  { since, now }: { readonly since: Since; readonly now: number },
): GatewayRow {
  const { silent_s: _silent, ...rest } = view;
  const lasted = silentMs !== null && silentMs < HEARD_MS ? null : silentMs;
  return { ...rest, silentSince: since.of(`gateway ${view.id}`, lasted, now), tells };
}

export function jobRow(job: JobView, gateway: string): JobRow {
  const { metadata: _metadata, callback: _callback, object: _object, plan, ...rest } = job;
  return { ...rest, plan: plan.slice(-PLAN_STEPS), gateway };
}

/** Of a role that looks after money alone. */
export const withoutFleet = (state: ClusterState): ClusterState => ({
  ...state,
  catalog: { ...state.catalog, held: null, refused: null },
  capacity: [],
});
