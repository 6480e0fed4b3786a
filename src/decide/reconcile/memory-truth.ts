import type { MemoryDoc, ReplicaDoc } from "../../contract/fleet.ts";
import { estimateIsOff } from "../placement/memory-need.ts";
import type { Observed } from "./observe.ts";
import type { PassDraft } from "./pass-draft.ts";
import { memoryDocId } from "./snapshot.ts";

/** An engine that has been ready for this long has allocated what it will. */
const SETTLED_MS = 30_000;
/** Smaller rises of a known figure are not written down: readings waver. */
const RISE_SHARE = 0.02;

/** Keeps what ready engines are seen to use (P8). The largest figure counts: the next start must fit at its largest too. */
export function noteMemory(draft: PassDraft, doc: ReplicaDoc, observed: Observed): void {
  if (doc.state !== "ready" || doc.desired !== "run") return;
  for (const { nodeId, shard } of observed.get(doc.id) ?? []) {
    if (shard.state !== "ready" || shard.since < SETTLED_MS) continue;
    if (shard.gpuUsedMib === null && shard.hostUsedMib === null) continue;
    let perGpuMib: number | null = null;
    for (const uuid of shard.gpuUuids) {
      const used = shard.gpuUsedMib?.[uuid];
      if (used !== undefined && used > (perGpuMib ?? 0)) perGpuMib = used;
    }
    const gpuClass = shard.gpuUuids.length === 0 ? "" : classOf(draft, nodeId, shard.gpuUuids);
    if (gpuClass !== null) noteFigures(draft, doc, gpuClass, perGpuMib, shard.hostUsedMib);
  }
}

function noteFigures(
  draft: PassDraft,
  doc: ReplicaDoc,
  gpuClass: string,
  perGpuMib: number | null,
  hostMib: number | null,
): void {
  const id = memoryDocId(doc.model, doc.profileHash, gpuClass);
  const known = draft.memoryOf(id) ?? emptyFigures(doc, gpuClass);
  const rises = (was: number | null, is: number | null): boolean => is !== null && is > (was ?? -1) * (1 + RISE_SHARE);
  if (!rises(known.perGpuMib, perGpuMib) && !rises(known.hostMib, hostMib)) return;
  const next: MemoryDoc = {
    ...known,
    perGpuMib: larger(known.perGpuMib, perGpuMib),
    hostMib: larger(known.hostMib, hostMib),
    samples: known.samples + 1,
  };
  draft.writeMemory(id, next);
  const guess = doc.profile.gpu?.memoryMib ?? null;
  if (guess === null || next.perGpuMib === null || next.perGpuMib === known.perGpuMib) return;
  if (!estimateIsOff(guess, next.perGpuMib)) return;
  const why = `the profile says ${Math.round(guess)} MiB a card, it takes ${Math.round(next.perGpuMib)} MiB on ${gpuClass}`;
  draft.event("estimateOff", { model: doc.model, replicaId: doc.id }, why);
}

/** The figure that a failed start was given is not tried again. */
export function noteOutOfMemory(draft: PassDraft, doc: ReplicaDoc): void {
  for (const { nodeId, gpuUuids, memoryMib } of doc.shards) {
    const gpuClass = classOf(draft, nodeId, gpuUuids);
    if (gpuClass === null || gpuUuids.length === 0) continue;
    const id = memoryDocId(doc.model, doc.profileHash, gpuClass);
    const known = draft.memoryOf(id) ?? emptyFigures(doc, gpuClass);
    draft.writeMemory(id, { ...known, oomAtMib: larger(known.oomAtMib, memoryMib) });
  }
}

const emptyFigures = (doc: ReplicaDoc, gpuClass: string): MemoryDoc => ({
  model: doc.model,
  profileHash: doc.profileHash,
  gpuClass,
  perGpuMib: null,
  hostMib: null,
  samples: 0,
  oomAtMib: null,
});

const larger = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.max(a, b);

export function classOf(draft: PassDraft, nodeId: string, gpuUuids: readonly string[]): string | null {
  const gpus =
    draft.snapshot.fleet.nodes.get(nodeId)?.report?.gpus ?? draft.snapshot.docs.nodes.get(nodeId)?.lastReport?.gpus;
  return gpus?.find((gpu) => gpuUuids.includes(gpu.uuid))?.class ?? null;
}

/** What its kind is known to take, for one that has loaded everything. */
export function measuredMib(
  draft: PassDraft,
  doc: ReplicaDoc,
  nodeId: string,
  gpuUuids: readonly string[],
): number | null {
  if (gpuUuids.length === 0) return null;
  const gpuClass = classOf(draft, nodeId, gpuUuids);
  return gpuClass === null
    ? null
    : (draft.memoryOf(memoryDocId(doc.model, doc.profileHash, gpuClass))?.perGpuMib ?? null);
}
