import type { Model } from "../../contract/catalog.ts";
import { startEvidence, runningOf } from "./model-counts.ts";
import { describeKept, keepers, whoKeeps } from "./kept-rooms.ts";
import { whyNoStart } from "./model-failures.ts";
import { readyForMs } from "./idle-stop.ts";
import { type Observed, observe } from "./observe.ts";
import type { PassDraft } from "./pass-draft.ts";

const ALL = { toldMax: 10, lookedMax: Number.POSITIVE_INFINITY };
const seconds = (ms: number): string => `${Math.floor(ms / 1_000)} s`;

/** What keeps a model from being started though a node may have room, and what keeps others from making room for it, in words. */
export function whyWithheld(draft: PassDraft, model: Model): readonly string[] {
  const { settings, fleet } = draft.snapshot;
  const doc = draft.model(model.name);
  const its = [...draft.replicas()].filter((replica) => replica.model === model.name);
  const running = runningOf(its);
  const told: string[] = [];
  if (fleet.settling) told.push("agents that the store knows have not all reported yet: nothing is started before");
  const held = whyNoStart(doc, startEvidence(model, doc, running), settings);
  if (held !== null) told.push(held);
  told.push(...describeKept(doc, (nodeId) => draft.nodeName(nodeId)));
  if ((doc.displacedBy ?? null) !== null)
    told.push(`${doc.displacedBy} took its room: it displaces nobody before it has served again`);
  told.push(...whoKeeps(draft, observe(fleet), keepers(draft), model, ALL.toldMax));
  if (running.length === 0) told.push(...whyNotDisplaced(draft, model, observe(fleet)));
  return told;
}

/** Why replicas of other models stay where they are, though the model has none: of the first few. */
export function whyNotDisplaced(
  draft: PassDraft,
  model: Model,
  observed: Observed,
  { toldMax, lookedMax }: { readonly toldMax: number; readonly lookedMax: number } = ALL,
): readonly string[] {
  const { catalog, docs, settings } = draft.snapshot;
  const told: string[] = [];
  let looked = 0;
  for (const doc of draft.replicas()) {
    looked += 1;
    if (told.length >= toldMax || looked > lookedMax) break;
    if (doc.model === model.name || doc.desired !== "run") continue;
    const nodeId = doc.shards[0]?.nodeId ?? "";
    const who = `${docs.nodes.get(nodeId)?.name ?? nodeId}: ${doc.id} of ${doc.model}`;
    const priority = catalog.models.get(doc.model)?.priority ?? 0;
    const readyMs = readyForMs(doc, observed);
    const held = doc.waitsFor ?? [];
    if (held.length > 0) told.push(`${who} is to have the room of ${held.join(", ")}`);
    else if (priority >= model.priority)
      told.push(`${who} stays: priority ${priority} is not lower than ${model.priority}`);
    else if (readyMs < settings.minRunMs)
      told.push(`${who} stays: it has served ${seconds(readyMs)} of ${seconds(settings.minRunMs)} (min_run_s)`);
  }
  return told;
}
