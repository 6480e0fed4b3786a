import type { Model, Profile } from "../../contract/catalog.ts";
import type { ReplicaDoc } from "../../contract/fleet.ts";
import { describeExclusion } from "../placement/describe-exclusion.ts";
import { PICKLE_RUNS_CODE } from "../weights/formats.ts";
import type { FleetRoom } from "../placement/fleet-room.ts";
import type { MemoryTruth } from "../placement/memory-need.ts";
import type { Holding, PlacementNode } from "../placement/node-room.ts";
import {
  explainPlacement,
  type NoRoom,
  type PlacedShard,
  type PlacementOutcome,
  placeReplica,
  type PlacementWish,
} from "../placement/place-replica.ts";
import { sendStart } from "./commands.ts";
import { holdingsOf, nodesOf, roomOf } from "./holdings.ts";
import { keepsRoom, takeUpRoom } from "./kept-rooms.ts";
import { isGone, type Observed } from "./observe.ts";
import { aboutReplica, type PassDraft, PLACING } from "./pass-draft.ts";
import { freeRendezvousPort } from "./rendezvous-port.ts";
import { memoryDocId, type PlacementRefusal } from "./snapshot.ts";

const NODES_TOLD_MAX = 3;

/** The room of one pass: made when it is first asked for, and reduced by each placement. */
export class PassRoom {
  readonly #draft: PassDraft;
  readonly #observed: Observed;
  #now: FleetRoom | null = null;
  #leaving: FleetRoom | null = null;
  #leavers: ReadonlySet<string> | null = null;
  #passing: ReadonlySet<string> | null = null;
  #settled: FleetRoom | null = null;

  constructor(draft: PassDraft, observed: Observed) {
    this.#draft = draft;
    this.#observed = observed;
  }

  get now(): FleetRoom {
    return (this.#now ??= roomOf(this.#draft, this.#observed));
  }

  /** With what the model keeps for itself; what is placed there is seen by `now` after `renew`. */
  of(model: string): FleetRoom {
    return keepsRoom(this.#draft, model) ? this.without(NOBODY, model) : this.now;
  }

  /** As it would be with these gone, for the model; what is placed there is seen by `now` after `renew`. */
  without(ids: ReadonlySet<string>, model?: string): FleetRoom {
    return roomOf(this.#draft, this.#observed, model === undefined ? { without: ids } : { without: ids, model });
  }

  /** As it will be for the model when all that is on its way out has gone; null where nothing is. Only looked at, never placed in. */
  leaving(model: string): FleetRoom | null {
    this.#leavers ??= leaversOf(this.#draft);
    if (this.#leavers.size === 0) return null;
    if (keepsRoom(this.#draft, model)) return this.without(this.#leavers, model);
    return (this.#leaving ??= this.without(this.#leavers));
  }

  /**
   * As it will be when all that is on its way out or being replaced has gone, and this one; null where nothing is. Only looked at:
   * nothing is placed in it.
   */
  settled(id?: string): FleetRoom | null {
    this.#passing ??= new Set([...leaversOf(this.#draft), ...replacedOf(this.#draft)]);
    if (this.#passing.size === 0) return null;
    if (id !== undefined) return this.without(new Set([...this.#passing, id]));
    return (this.#settled ??= this.without(this.#passing));
  }

  /** A replacement was placed beside what it replaces. */
  noteReplaced(): void {
    this.#passing = null;
    this.#settled = null;
  }

  nodes(): readonly PlacementNode[] {
    return nodesOf(this.#draft);
  }

  /** By node, with all that this pass has placed, as the model sees it. */
  holdings(model: string): ReadonlyMap<string, readonly Holding[]> {
    return Map.groupBy(holdingsOf(this.#draft, this.#observed, { model }), ({ nodeId }) => nodeId);
  }

  renew(): void {
    this.#now = null;
    this.#leaving = null;
    this.#leavers = null;
    this.noteReplaced();
  }
}

function* replacedOf(draft: PassDraft): Iterable<string> {
  for (const { id, restart } of draft.replicas()) if (restart?.state === "replacing") yield id;
}

function leaversOf(draft: PassDraft): ReadonlySet<string> {
  const ids = new Set<string>();
  for (const doc of draft.replicas()) if (doc.desired === "stop" && !isGone(doc)) ids.add(doc.id);
  return ids;
}

/** Beside what the catalog says: whom the replica replaces, and whose room it takes. */
export type Succession = Required<Pick<ReplicaDoc, "replaces" | "waitsFor">>;
export const NO_SUCCESSION: Succession = { replaces: null, waitsFor: [] };
const NOBODY: ReadonlySet<string> = new Set();

export function wishFor(draft: PassDraft, model: Model, avoidNodes: ReadonlySet<string> = NOBODY): PlacementWish {
  const { failedOn } = draft.model(model.name);
  const { failuresPerNodeMax, nodesTriedMax } = draft.snapshot.settings;
  const isTried = Object.keys(failedOn).length >= nodesTriedMax;
  return {
    model,
    truth: (profile: Profile, gpuClass: string): MemoryTruth | undefined =>
      draft.memoryOf(memoryDocId(model.name, profile.hash, gpuClass)),
    avoidNodes,
    failedOn,
    failuresPerNodeMax,
    untriedLast: isTried && !isProven(draft, model),
  };
}

/** Whether a replica shows that the model's profiles are good: what failed elsewhere is then the nodes' doing. */
function isProven(draft: PassDraft, { name, profiles }: Model): boolean {
  for (const { model, state, profileHash } of draft.replicas())
    if (model === name && state === "ready" && profiles.some(({ hash }) => hash === profileHash)) return true;
  return false;
}

/** Null: placed, perhaps in room that the model keeps. Else what kept the nodes out, and that in words. */
export function placeOne(
  draft: PassDraft,
  room: PassRoom,
  model: Model,
  avoidNodes: ReadonlySet<string> = NOBODY,
): Omit<PlacementRefusal, "model"> | null {
  const outcome = placeReplica(room.of(model.name), wishFor(draft, model, avoidNodes));
  if (outcome.kind === "noRoom") return { nodes: outcome.nodes, why: describeRefusal(draft, outcome) };
  const keeps = keepsRoom(draft, model.name);
  takeUpRoom(draft, addReplica(draft, model, outcome, NO_SUCCESSION));
  if (keeps) room.renew();
  return null;
}

/** Writes the placed replica down and sends its start, unless it waits for others' room. */
export function addReplica(
  draft: PassDraft,
  model: Model,
  { profile, shards }: Extract<PlacementOutcome, { kind: "placed" }>,
  { replaces, waitsFor }: Succession,
): ReplicaDoc {
  const made = newReplica(draft, model, profile, shards);
  const waits = waitsFor.length > 0;
  const doc: ReplicaDoc = {
    ...made,
    ...(replaces === null ? {} : { replaces }),
    ...(waits ? { waitsFor, reason: `waits for the room of ${waitsFor.join(", ")}` } : {}),
  };
  draft.writeReplica(doc);
  const nodes = doc.shards.map(({ nodeId }) => draft.nodeName(nodeId));
  draft.event("replicaPlaced", aboutReplica(doc), `on ${nodes.join(", ")}`);
  if (profile.allowPickle === true)
    draft.event("pickleAllowed", aboutReplica(doc), `${PICKLE_RUNS_CODE}, and ${doc.model} has \`allow_pickle\``);
  if (waits) return doc;
  draft.since(PLACING + doc.id);
  for (const index of doc.shards.keys()) sendStart(draft, doc, index);
  return doc;
}

function newReplica(draft: PassDraft, model: Model, profile: Profile, shards: readonly PlacedShard[]): ReplicaDoc {
  const id = draft.mint.replicaId();
  const head = shards[0]?.nodeId;
  const rendezvousPort = shards.length > 1 && head !== undefined ? freeRendezvousPort(draft.replicas(), head) : null;
  return {
    id,
    model: model.name,
    profileHash: profile.hash,
    profile,
    generation: 1,
    shards: shards.map(({ nodeId, gpuUuids, perGpuMib }) => ({
      nodeId,
      gpuUuids,
      memoryMib: perGpuMib,
      rendezvousPort,
    })),
    desired: "run",
    state: "placing",
    createdAt: draft.today,
    readyAt: null,
    reason: null,
    failure: null,
    catalogRevision: draft.snapshot.catalog.revision,
    attempt: draft.model(model.name).failuresInRow,
    port: null,
    engineKey: draft.mint.engineKey(id, 1),
  };
}

/** With figures, for events and for whoever waits for the model. How long a node has been silent is left out: it is another each time. */
function describeRefusal(draft: PassDraft, { nodes, firsts }: NoRoom): string {
  const parts = firsts.map(({ nodeId, why: first }) => {
    const why = describeExclusion("silentMs" in first ? { ...first, silentMs: null } : first);
    const name = draft.nodeName(nodeId);
    const more = (nodes[first.kind] ?? 1) - 1;
    return more === 0 ? `${name}: ${why}` : `${name} and ${more} more: ${why}`;
  });
  return parts.length === 0 ? "there is no node" : `fits on no node: ${parts.join("; ")}`;
}

/** What keeps one more replica of the model from each node, with names and figures; of many nodes the first few. */
export function describeNoRoom(draft: PassDraft, room: FleetRoom, model: Model): string {
  const nodes = explainPlacement(room, wishFor(draft, model))[0]?.nodes ?? [];
  const excluded = nodes.flatMap(({ nodeId, verdict }) => (verdict.kind === "fits" ? [] : { nodeId, verdict }));
  if (excluded.length === 0) return "there is no node";
  const told = excluded
    .slice(0, NODES_TOLD_MAX)
    .map(({ nodeId, verdict }) => `${draft.nodeName(nodeId)}: ${describeExclusion(verdict)}`);
  const more = excluded.length - told.length;
  return told.join("; ") + (more > 0 ? `; and ${more} more nodes` : "");
}
