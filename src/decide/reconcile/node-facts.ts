import type { GpuReport, NodeDoc, NodeReport } from "../../contract/fleet.ts";
import type { PassDraft } from "./pass-draft.ts";

/**
 * Keeps what changes seldom of each node, tells of cards that came, went, fell ill or recovered, and names the nodes that were
 * restarted since the store last heard of them: nothing of what ran there before is left.
 */
export function noteNodes(draft: PassDraft): ReadonlySet<string> {
  const rebooted = new Set<string>();
  for (const { nodeId, state, report } of draft.snapshot.fleet.nodes.values()) {
    const doc = draft.snapshot.docs.nodes.get(nodeId);
    if (doc === undefined || report === null || state !== "ready") continue;
    if (doc.bootId !== null && doc.bootId !== report.bootId) {
      rebooted.add(nodeId);
      draft.event("nodeRebooted", { nodeId }, "the machine was started anew");
    }
    const gpusKnown = report.gpuDiscovery !== "failed";
    if (gpusKnown && doc.lastReport !== null) tellGpus(draft, nodeId, doc.lastReport.gpus, report.gpus);
    if (isCurrent(doc, report, gpusKnown)) continue;
    // A failed look at the cards tells nothing of them: the last known ones stay.
    const gpus = gpusKnown ? report.gpus : (doc.lastReport?.gpus ?? []);
    const { bootId, labels, name } = report;
    draft.writeNode({
      ...doc,
      name,
      bootId,
      labels,
      lastReport: { ...report, gpus, shards: [], weights: [], leftovers: [] },
    });
  }
  return rebooted;
}

function tellGpus(draft: PassDraft, nodeId: string, before: readonly GpuReport[], now: readonly GpuReport[]): void {
  for (const gpu of now) {
    const was = before.find(({ uuid }) => uuid === gpu.uuid);
    const why = `GPU ${gpu.uuid} (${gpu.class})`;
    if (was === undefined) draft.event("gpuAppeared", { nodeId }, `${why} appeared`);
    else if (gpu.health === "sick" && was.health !== "sick")
      draft.event("gpuSick", { nodeId }, `${why} is sick: ${gpu.healthWhy ?? "no reason given"}`);
    else if (gpu.health === "ok" && was.health === "sick")
      draft.event("gpuRecovered", { nodeId }, `${why} is well again`);
  }
  for (const { uuid, class: gpuClass } of before)
    if (!now.some((gpu) => gpu.uuid === uuid))
      draft.event("gpuVanished", { nodeId }, `GPU ${uuid} (${gpuClass}) is gone`);
}

function isCurrent(doc: NodeDoc, report: NodeReport, gpusKnown: boolean): boolean {
  const { lastReport } = doc;
  return (
    lastReport !== null &&
    doc.bootId === report.bootId &&
    doc.name === report.name &&
    lastReport.address === report.address &&
    lastReport.agentVersion === report.agentVersion &&
    lastReport.fabric === report.fabric &&
    lastReport.cores === report.cores &&
    lastReport.memoryMib === report.memoryMib &&
    sameWords(doc.labels, report.labels) &&
    (!gpusKnown || sameCards(lastReport.gpus, report.gpus))
  );
}

function sameWords(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => a[key] === b[key]);
}

const sameCards = (a: readonly GpuReport[], b: readonly GpuReport[]): boolean =>
  a.length === b.length &&
  a.every(({ uuid, class: gpuClass, health, memoryMib }, at) => {
    const other = b[at]!;
    return uuid === other.uuid && gpuClass === other.class && health === other.health && memoryMib === other.memoryMib;
  });
