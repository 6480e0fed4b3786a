import type { Model } from "../../contract/catalog.ts";
import type { KeptOnNode, KeptRoom, ModelDoc, ReplicaDoc } from "../../contract/fleet.ts";
import { size } from "../placement/describe-exclusion.ts";
import type { Holding } from "../placement/node-room.ts";
import { readyForMs } from "./idle-stop.ts";
import { measuredMib } from "./memory-truth.ts";
import { type ByModel, runningOf, servingOf, wantedCount } from "./model-counts.ts";
import { failedInRow } from "./model-failures.ts";
import { isGone, type Observed, sightOf } from "./observe.ts";
import type { PassDraft } from "./pass-draft.ts";

/**
 * Room that a model keeps while a replica of it that was stopped for its replacement is not replaced yet. The first replacement may
 * fail, and the second; were the room free between them, a version that is good would find it taken.
 *
 * Invariants:
 *   K1. A room is kept from the plan that stops the replica until one of its model serves in its stead and has done so for `stableMs`,
 *       whatever fails between, and through changes of the definition and of the leader. From when it is ready it is no more than the
 *       room of that one: what crashes with its first requests leaves its room to its model.
 *   K2. For other models it is held; for its own it is there for one replica at a time. On each card it is what the stopped one had or
 *       its replacements need, whichever is most, and what these still hold is not held twice.
 *   K3. Of rooms that nobody serves in a model keeps no more than it lacks ready replicas. So it keeps none once it is scaled to what serves, nor one that is
 *       parked or has left the catalog.
 *   K4. A room is taken by a strictly higher priority only after `minRunMs`, as a replica that serves is; and a model that fits nowhere
 *       even with what it keeps gives it up after that time. The time in which nobody at all could have the room does not count: given up
 *       then, it would serve nobody, and go to whoever waits when its node or card is back.
 */
const NONE: readonly KeptRoom[] = [];
const NOBODY: ReadonlySet<string> = new Set();

const roomsOf = ({ keepsRoom: rooms = NONE }: ModelDoc): readonly KeptRoom[] => rooms;

/** Rooms that are there for the next replica of their model: nobody is about to fill them. */
const unfilledOf = (doc: ModelDoc): readonly KeptRoom[] => roomsOf(doc).filter(({ heir }) => heir === null);

export const keepsRoom = (draft: PassDraft, model: string): boolean => unfilledOf(draft.model(model)).length > 0;

/** What a kept room is called among those that hold room. */
export const roomId = ({ of }: KeptRoom): string => `room of ${of}`;

/** Written with the end of the one and the placement of the other. */
export function keepRoom(draft: PassDraft, old: ReplicaDoc, heir: ReplicaDoc): void {
  const needed = holdOf(draft, heir);
  const had = holdOf(draft, old);
  const nodes = overlap(had, needed) ? mostOf(had, needed) : needed;
  const room = { of: old.id, heir: heir.id, nodes };
  const doc = draft.model(old.model);
  const others = roomsOf(doc).filter((other) => other.of !== old.id && other.heir !== old.id);
  draft.writeModel({ ...doc, keepsRoom: [...others, room] });
}

/** The replica is to serve in the stead of one whose room is kept, if there is one that nobody is to fill. */
export function takeUpRoom(draft: PassDraft, replica: ReplicaDoc): void {
  const doc = draft.model(replica.model);
  const free = unfilledOf(doc);
  const needed = holdOf(draft, replica);
  const its = free.find(({ nodes }) => overlap(nodes, needed)) ?? free[0];
  if (its === undefined) return;
  const nodes = overlap(its.nodes, needed) ? mostOf(its.nodes, needed) : its.nodes;
  const taken = { ...its, heir: replica.id, nodes };
  draft.writeModel(
    withRooms(
      doc,
      roomsOf(doc).map((room) => (room === its ? taken : room)),
    ),
  );
}

/** Brings what is kept up to what serves, what is wanted, and the nodes that there are. */
export function followKeptRooms(draft: PassDraft, models: ByModel, observed: Observed): void {
  for (const doc of [...draft.models()]) {
    if (roomsOf(doc).length === 0) continue;
    const model = draft.snapshot.catalog.models.get(doc.name);
    if (model === undefined) giveUp(draft, doc, roomsOf(doc), "it is no longer in the catalog");
    else if (doc.parked !== null) giveUp(draft, doc, roomsOf(doc), "it is parked");
    else followRooms(draft, model, doc, models.get(doc.name) ?? [], observed);
  }
}

function followRooms(
  draft: PassDraft,
  model: Model,
  doc: ModelDoc,
  replicas: readonly ReplicaDoc[],
  observed: Observed,
): void {
  const serving = servingOf(runningOf(replicas));
  const ready = new Set(serving.filter(({ state }) => state === "ready").map(({ id }) => id));
  const lacks = Math.max(0, wantedCount(model, doc, serving.length) - ready.size);
  const [served, unserved]: [KeptRoom[], KeptRoom[]] = [[], []];
  for (const room of roomsOf(doc)) {
    const heir = room.heir === null ? undefined : draft.replica(room.heir);
    if (heir !== undefined && ready.has(heir.id)) {
      const isProven = readyForMs(heir, observed) >= draft.snapshot.settings.stableMs;
      if (!isProven) served.push({ ...room, nodes: holdOf(draft, heir) });
      continue;
    }
    const nodes = room.nodes.filter(({ nodeId }) => draft.snapshot.docs.nodes.has(nodeId));
    const isComing = heir !== undefined && heir.desired === "run" && !isGone(heir);
    if (nodes.length > 0) unserved.push({ ...room, nodes, heir: isComing ? room.heir : null });
  }
  // Those that somebody is about to fill are kept first.
  const kept = new Set(unserved.toSorted((a, b) => Number(a.heir === null) - Number(b.heir === null)).slice(0, lacks));
  for (const room of unserved) {
    const before = roomsOf(doc).find(({ of }) => of === room.of)?.heir ?? null;
    if (!kept.has(room)) {
      // What nobody was told of is not told of now: one that served there is stopped since it is too many.
      if (before === null) tellGivenUp(draft, doc, room, "as many of it serve as are wanted");
      continue;
    }
    draft.since(keptSince(doc.name, room));
    if (room.heir === null && before !== null) tellKept(draft, doc, room, before);
  }
  draft.writeModel(withRooms(doc, [...served, ...unserved.filter((room) => kept.has(room))]));
}

/** It was to be placed and fits nowhere, even with what it keeps: nobody is served by room that its model can't use. */
export function giveUpUnusable(draft: PassDraft, { name }: Model): void {
  const doc = draft.model(name);
  const unused = unfilledOf(doc).filter(({ nodes }) => nodes.some((node) => isOpen(draft, node)));
  if (unused.length === 0) return;
  const { minRunMs } = draft.snapshot.settings;
  const dueAt = draft.since(`kept in vain ${name}`).at + minRunMs;
  if (draft.now.mono < dueAt) draft.wake(dueAt);
  else giveUp(draft, doc, unused, `it has fitted nowhere for ${minRunMs / 1_000} s, even with that room`);
}

/** Whether anything could be placed there: the node takes replicas, and none of the cards is sick or unread. */
function isOpen({ snapshot: { docs, fleet } }: PassDraft, { nodeId, cards }: KeptOnNode): boolean {
  const status = fleet.nodes.get(nodeId);
  if (status?.state !== "ready" || docs.nodes.get(nodeId)?.cordoned !== false) return false;
  return Object.keys(cards).every((uuid) => {
    const gpu = status.report?.gpus.find((card) => card.uuid === uuid);
    return gpu !== undefined && gpu.health !== "sick" && gpu.memoryMib !== null && gpu.usedMib !== null;
  });
}

/** The replica goes for another model: nothing of it is kept. */
export function giveUpRoomOf(draft: PassDraft, { id, model }: ReplicaDoc): void {
  const doc = draft.model(model);
  const rooms = roomsOf(doc).filter(({ heir }) => heir !== id);
  if (rooms.length < roomsOf(doc).length) draft.writeModel(withRooms(doc, rooms));
}

export function giveUp(draft: PassDraft, doc: ModelDoc, rooms: readonly KeptRoom[], why: string): void {
  for (const room of rooms) tellGivenUp(draft, doc, room, why);
  draft.writeModel(
    withRooms(
      doc,
      roomsOf(doc).filter((room) => !rooms.includes(room)),
    ),
  );
}

/** Rooms that nobody is about to fill, with the time since they are kept. */
export function* unfilledRooms(draft: PassDraft): Iterable<{ doc: ModelDoc; room: KeptRoom; keptMs: number }> {
  for (const doc of draft.models())
    for (const room of unfilledOf(doc))
      yield { doc, room, keptMs: draft.now.mono - draft.since(keptSince(doc.name, room)).at };
}

/** What models keep, as others see it; `model` does not see what is there for it. `without` are taken for gone. */
export function keptHoldings(
  draft: PassDraft,
  observed: Observed,
  model: string | undefined,
  without: ReadonlySet<string>,
): Holding[] {
  const holdings: Holding[] = [];
  for (const doc of draft.models())
    for (const room of heldFrom(doc, model)) {
      // Who serves there and is to go is displaced or too many: it takes its room with it.
      if (without.has(roomId(room)) || (room.heir !== null && without.has(room.heir))) continue;
      for (const left of leftOf(draft, observed, room, without)) holdings.push(...holdingsOn(doc.name, room, left));
    }
  return holdings;
}

const heldFrom = (doc: ModelDoc, model: string | undefined): readonly KeptRoom[] =>
  doc.name === model ? roomsOf(doc).filter(({ heir }) => heir !== null) : roomsOf(doc);

/** Models that keep room now. */
export const keepers = (draft: PassDraft): readonly string[] =>
  [...draft.models()].flatMap((doc) => (roomsOf(doc).length > 0 ? doc.name : []));

/** Room that one of these keeps and that the model could need, but may not have: whose, what, and until when. */
export function whoKeeps(
  draft: PassDraft,
  observed: Observed,
  names: readonly string[],
  model: Model,
  toldMax: number,
): readonly string[] {
  const told: string[] = [];
  const onCards = model.profiles.some(({ gpu }) => gpu !== null);
  for (const doc of names.map((name) => draft.model(name))) {
    for (const room of heldFrom(doc, model.name)) {
      const nodes = leftOf(draft, observed, room).filter(({ cards }) => isEmpty(cards) !== onCards);
      if (nodes.length === 0) continue;
      if (told.length === toldMax) return told;
      told.push(`${describeNodes(draft, nodes)} kept for ${doc.name} ${whyKept(doc, room)}`);
    }
  }
  return told;
}

/** Rooms that the model keeps and nobody is about to fill, in words. */
export const describeKept = (doc: ModelDoc, nodeName: (nodeId: string) => string): readonly string[] =>
  unfilledOf(doc).map(
    ({ nodes }) => `it keeps its room: ${nodes.map((node) => describeNode(node, nodeName)).join(", ")}`,
  );

const withRooms = ({ keepsRoom: _, ...doc }: ModelDoc, rooms: readonly KeptRoom[]): ModelDoc =>
  rooms.length === 0 ? doc : { ...doc, keepsRoom: rooms };

const keptSince = (model: string, { of }: KeptRoom): string => `kept ${model} ${of}`;

function tellKept(draft: PassDraft, doc: ModelDoc, room: KeptRoom, heir: string): void {
  const failed = draft.replica(heir)?.failure === undefined ? "is gone" : "failed";
  const why = `${describeNodes(draft, room.nodes)} kept until one of it serves in place of ${room.of}: ${heir} ${failed}`;
  draft.event("roomKept", { model: doc.name, replicaId: room.of, nodeId: room.nodes[0]?.nodeId ?? null }, why);
}

function tellGivenUp(draft: PassDraft, doc: ModelDoc, room: KeptRoom, why: string): void {
  const about = { model: doc.name, replicaId: room.of, nodeId: room.nodes[0]?.nodeId ?? null };
  draft.event("roomGivenUp", about, `${describeNodes(draft, room.nodes)} no longer kept for it: ${why}`);
}

const whyKept = ({ failuresInRow }: ModelDoc, { of, heir }: KeptRoom): string =>
  heir === null
    ? `until one of it serves in place of ${of}, it is parked or leaves the catalog: the replacement ${failuresInRow === 0 ? "is not placed yet" : failedInRow(failuresInRow)}`
    : `until ${heir} serves in place of ${of}`;

const describeNodes = (draft: PassDraft, nodes: readonly KeptOnNode[]): string =>
  `${nodes.map((node) => describeNode(node, (nodeId) => draft.nodeName(nodeId))).join(", ")} ${nodes.length === 1 ? "is" : "are"}`;

function describeNode({ nodeId, cards, cores, memoryMib }: KeptOnNode, nodeName: (nodeId: string) => string): string {
  const sizes = Object.values(cards);
  const total = size(sizes.reduce((sum, mib) => sum + mib, 0));
  const what =
    sizes.length > 0
      ? `${total} on ${sizes.length === 1 ? "1 card" : `${sizes.length} cards`}`
      : `${cores} cores and ${size(memoryMib)} of memory`;
  return `${nodeName(nodeId)}: ${what}`;
}

/** What a replica holds of its nodes. */
const holdOf = (draft: PassDraft, doc: ReplicaDoc): readonly KeptOnNode[] =>
  doc.shards.map(({ nodeId, gpuUuids, memoryMib }) => {
    const known = doc.readyAt === null ? null : measuredMib(draft, doc, nodeId, gpuUuids);
    return {
      nodeId,
      cards: Object.fromEntries(gpuUuids.map((uuid) => [uuid, known ?? memoryMib])),
      cores: doc.profile.cpu?.cores ?? 0,
      memoryMib: doc.profile.cpu?.memoryMib ?? 0,
    };
  });

const isEmpty = (cards: KeptOnNode["cards"]): boolean => Object.keys(cards).length === 0;

/** Whether the second takes of what the first is: a card, or of a node without cards. */
const overlap = (a: readonly KeptOnNode[], b: readonly KeptOnNode[]): boolean =>
  a.some(({ nodeId, cards }) =>
    b.some(
      (other) =>
        other.nodeId === nodeId &&
        (isEmpty(cards) || isEmpty(other.cards) || Object.keys(other.cards).some((uuid) => uuid in cards)),
    ),
  );

/** Both at once never hold it: of each card and host the most that one of them has. */
function mostOf(a: readonly KeptOnNode[], b: readonly KeptOnNode[]): readonly KeptOnNode[] {
  return combine(a, b, Math.max);
}

/** What nobody of the replicas that the room is about holds now. */
function leftOf(
  draft: PassDraft,
  observed: Observed,
  { of, heir, nodes }: KeptRoom,
  without: ReadonlySet<string> = NOBODY,
): readonly KeptOnNode[] {
  let left = nodes;
  for (const id of heir === null ? [of] : [of, heir]) {
    const doc = draft.replica(id);
    if (doc === undefined || isGone(doc) || without.has(id)) continue;
    // A shard may be gone while others of its replica are not: it holds nothing any more.
    const its = holdOf(draft, doc).filter(({ nodeId }, at) => {
      const sight = sightOf(doc, at, draft.snapshot.fleet, observed);
      const isOver = sight.kind === "reported" && isGone(sight.shard);
      return !isOver && left.some((node) => node.nodeId === nodeId);
    });
    left = combine(left, its, (kept, held) => Math.max(0, kept - held));
  }
  return left
    .map((node) => ({ ...node, cards: Object.fromEntries(Object.entries(node.cards).filter(([, mib]) => mib > 0)) }))
    .filter(({ cards, cores, memoryMib }) => !isEmpty(cards) || cores > 0 || memoryMib > 0);
}

function combine(
  a: readonly KeptOnNode[],
  b: readonly KeptOnNode[],
  of: (a: number, b: number) => number,
): readonly KeptOnNode[] {
  const nodeIds = new Set([...a, ...b].map(({ nodeId }) => nodeId));
  return [...nodeIds].map((nodeId) => {
    const [x, y] = [a, b].map((nodes) => nodes.find((node) => node.nodeId === nodeId));
    const uuids = Object.keys({ ...x?.cards, ...y?.cards });
    return {
      nodeId,
      cards: Object.fromEntries(uuids.map((uuid) => [uuid, of(x?.cards[uuid] ?? 0, y?.cards[uuid] ?? 0)])),
      cores: of(x?.cores ?? 0, y?.cores ?? 0),
      memoryMib: of(x?.memoryMib ?? 0, y?.memoryMib ?? 0),
    };
  });
}

/** Cards of which equally much is kept are held together, and the host's part with the first of them. */
function holdingsOn(model: string, room: KeptRoom, { nodeId, cards, cores, memoryMib }: KeptOnNode): Holding[] {
  const held = [...Map.groupBy(Object.entries(cards), ([, mib]) => mib)].map(([mib, group]) => ({
    gpuUuids: group.map(([uuid]) => uuid),
    perGpuMib: mib,
  }));
  if (held.length === 0) held.push({ gpuUuids: [], perGpuMib: 0 });
  return held.map((cardsHeld, at) => ({
    replicaId: roomId(room),
    model,
    nodeId,
    ...cardsHeld,
    cores: at === 0 ? cores : 0,
    memoryMib: at === 0 ? memoryMib : 0,
    diskMib: 0,
    weightsName: null,
    settled: false,
    gpuUsedMib: null,
    hostUsedMib: null,
    leaves: false,
  }));
}
