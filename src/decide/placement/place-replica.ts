import type { Model, Profile } from "../../contract/catalog.ts";
import type { Exclusion, ExclusionKind } from "./exclusion.ts";
import type { FleetRoom } from "./fleet-room.ts";
import type { MemoryTruth } from "./memory-need.ts";
import { fitOn, type NodeFit, type ShardNeed } from "./node-fit.ts";
import { type CardFit, holdRoom, type NodeRoom } from "./node-room.ts";

/**
 * Where a replica goes.
 *
 * Invariants:
 *   P1. A placement takes its room in the same step: the next one sees what is left.
 *   P2. The same rooms and wish give the same answer; what is equal goes to the lowest id.
 *   P3. Profiles are tried in order, the first that fits anywhere is used.
 */
export interface PlacementWish {
  readonly model: Model;
  readonly truth: (profile: Profile, gpuClass: string) => MemoryTruth | undefined;
  readonly avoidNodes: ReadonlySet<string>;
  readonly failedOn: Readonly<Record<string, number>>;
  readonly failuresPerNodeMax: number;
  /** Whether nodes where it has failed go before those where it was never tried. */
  readonly untriedLast: boolean;
}

export interface PlacedShard {
  readonly nodeId: string;
  readonly gpuUuids: readonly string[];
  readonly perGpuMib: number;
}

export type PlacementOutcome =
  | { readonly kind: "placed"; readonly profile: Profile; readonly shards: readonly PlacedShard[] }
  /** Of the profile that is tried first. */
  | ({ readonly kind: "noRoom" } & NoRoom);

export interface NoRoom {
  /** The nodes by what kept them out. */
  readonly nodes: Readonly<Partial<Record<ExclusionKind, number>>>;
  /** Of each of these, what kept the first node out. */
  readonly firsts: readonly { readonly nodeId: string; readonly why: Exclusion }[];
}

export function placeReplica(fleet: FleetRoom, wish: PlacementWish): PlacementOutcome {
  for (const profile of wish.model.profiles) {
    const fits = fitsOf(fleet, wish, profile);
    if (fits === undefined) continue;
    for (const { room, cards } of fits) holdRoom(room, wish.model.name, profile, cards.gpuUuids, cards.perGpuMib);
    const shards = fits.map(({ room, cards: { gpuUuids, perGpuMib } }) => ({
      nodeId: room.node.nodeId,
      gpuUuids,
      perGpuMib,
    }));
    return { kind: "placed", profile, shards };
  }
  return { kind: "noRoom", ...countExclusions(fleet, wish) };
}

/** Takes no room. */
export const fitsSomewhere = (fleet: FleetRoom, wish: PlacementWish): boolean =>
  wish.model.profiles.some((profile) => fitsOf(fleet, wish, profile) !== undefined);

function fitsOf(fleet: FleetRoom, wish: PlacementWish, profile: Profile): ReturnType<typeof oneNode> {
  const need = shardNeed(fleet.cardsKeys, wish, profile);
  const { multiNode } = wish.model;
  return multiNode === null ? oneNode(fleet, need) : sameFabric(fleet, need, multiNode.nodes);
}

export interface NodeExplanation {
  readonly nodeId: string;
  readonly verdict:
    | { readonly kind: "fits"; readonly gpuUuids: readonly string[]; readonly perGpuMib: number }
    | Exclusion;
}
export interface ProfileExplanation {
  readonly profile: Profile;
  /** In the order of preference where they fit, the others by id. */
  readonly nodes: readonly NodeExplanation[];
}

/** For each profile and node: whether a replica would fit there now, or the first thing that keeps it out. Takes no room. */
export function explainPlacement(fleet: FleetRoom, wish: PlacementWish): readonly ProfileExplanation[] {
  return wish.model.profiles.map((profile) => {
    const verdicts = examine(fleet, wish, profile);
    const fits = verdicts.filter((verdict) => verdict.fit.kind === "fits");
    const preferred = fits.toSorted((a, b) => compareFits(a.fit as NodeFit, b.fit as NodeFit));
    return { profile, nodes: [...preferred, ...verdicts.filter(({ fit }) => fit.kind !== "fits")].map(explanation) };
  });
}

function explanation({ room, fit }: Verdict): NodeExplanation {
  const { nodeId } = room.node;
  if (fit.kind !== "fits") return { nodeId, verdict: fit };
  const { gpuUuids, perGpuMib } = fit.cards;
  return { nodeId, verdict: { kind: "fits", gpuUuids, perGpuMib } };
}

interface Verdict {
  readonly room: NodeRoom;
  readonly fit: NodeFit | Exclusion;
}

function examine(fleet: FleetRoom, wish: PlacementWish, profile: Profile): readonly Verdict[] {
  const need = shardNeed(fleet.cardsKeys, wish, profile);
  const verdicts = fleet.rooms.map((room) => ({ room, fit: fitOn(room, need) }));
  const { multiNode } = wish.model;
  if (multiNode === null) return verdicts;
  const groups = groupByFabric(verdicts.flatMap(({ fit }) => (fit.kind === "fits" ? fit : [])));
  return verdicts.map(({ room, fit }) => {
    if (fit.kind !== "fits") return { room, fit };
    const fabric = room.node.report?.fabric ?? null;
    if (fabric === null) return { room, fit: { kind: "fabricMissing" } };
    const fitting = groups.get(fabricKey(fabric, fit))?.length ?? 0;
    if (fitting >= multiNode.nodes) return { room, fit };
    return { room, fit: { kind: "fabricTooSmall", fabric, needed: multiNode.nodes, fitting } };
  });
}

function countExclusions(fleet: FleetRoom, wish: PlacementWish): NoRoom {
  const nodes: Partial<Record<ExclusionKind, number>> = {};
  const firsts: { readonly nodeId: string; readonly why: Exclusion }[] = [];
  const [profile] = wish.model.profiles;
  if (profile === undefined) return { nodes, firsts };
  for (const { room, fit } of examine(fleet, wish, profile)) {
    if (fit.kind === "fits") continue;
    if (nodes[fit.kind] === undefined) firsts.push({ nodeId: room.node.nodeId, why: fit });
    nodes[fit.kind] = (nodes[fit.kind] ?? 0) + 1;
  }
  return { nodes, firsts };
}

/** `cardsKeys`: of the rooms that it is to be compared with. */
export function shardNeed(cardsKeys: FleetRoom["cardsKeys"], wish: PlacementWish, profile: Profile): ShardNeed {
  const { nodes } = wish.model;
  const { gpu } = profile;
  const classes = (gpu?.classes ?? []).map((gpuClass) => ({ gpuClass, truth: wish.truth(profile, gpuClass) }));
  const known = classes.map(({ gpuClass, truth }) => [gpuClass, truth?.perGpuMib ?? null, truth?.oomAtMib ?? null]);
  const asked = JSON.stringify([gpu?.count ?? 0, gpu?.memoryMib ?? 0, known, nodes.gpuUuids]);
  const cardsKey = cardsKeys.get(asked) ?? cardsKeys.size;
  cardsKeys.set(asked, cardsKey);
  return {
    model: wish.model,
    profile,
    require: Object.entries(nodes.require),
    avoid: Object.entries(nodes.avoid),
    classes,
    cardsKey,
    avoidNodes: wish.avoidNodes,
    failedOn: wish.failedOn,
    failuresPerNodeMax: wish.failuresPerNodeMax,
    untriedLast: wish.untriedLast,
  };
}

function oneNode(fleet: FleetRoom, need: ShardNeed): readonly NodeFit[] | undefined {
  let best: NodeFit | undefined;
  for (const rooms of candidates(fleet, need)) {
    for (const room of rooms) {
      const fit = fitOn(room, need);
      if (fit.kind === "fits" && (best === undefined || compareFits(fit, best) < 0)) best = fit;
    }
  }
  return best === undefined ? undefined : [best];
}

/** All shards on one fabric, on cards of one class; of several fabrics the one with the fewest fitting nodes. */
function sameFabric(fleet: FleetRoom, need: ShardNeed, nodes: number): readonly NodeFit[] | undefined {
  const fits = new Map<NodeRoom, NodeFit>();
  for (const rooms of candidates(fleet, need)) {
    for (const room of rooms) {
      const fit = fitOn(room, need);
      if (fit.kind === "fits") fits.set(room, fit);
    }
  }
  let best: { readonly key: string; readonly group: readonly NodeFit[] } | undefined;
  for (const [key, group] of groupByFabric(fits.values())) {
    if (group.length < nodes) continue;
    if (best !== undefined && (group.length - best.group.length || (key < best.key ? -1 : 1)) > 0) continue;
    best = { key, group };
  }
  return best?.group.toSorted(compareFits).slice(0, nodes);
}

/** Rooms may stand in several of the lists. */
function candidates(fleet: FleetRoom, { profile }: ShardNeed): readonly (readonly NodeRoom[])[] {
  if (profile.gpu === null) return [fleet.rooms];
  return profile.gpu.classes.map((gpuClass) => fleet.byClass.get(gpuClass) ?? []);
}

const fabricKey = (fabric: string, fit: NodeFit): string => `${fabric}\n${fit.cards.gpuClass}`;

function groupByFabric(fits: Iterable<NodeFit>): Map<string, NodeFit[]> {
  const groups = new Map<string, NodeFit[]>();
  for (const fit of fits) {
    const fabric = fit.room.node.report?.fabric ?? null;
    if (fabric === null) continue;
    const key = fabricKey(fabric, fit);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [fit]);
    else group.push(fit);
  }
  return groups;
}

/**
 * Which of two fitting nodes comes first. Another replica of the model on the node counts most, since one dead machine should
 * not take both; then failures of this model there; then the class; then weights that need no fetching: loading takes minutes,
 * while a loose fit costs nothing until the next placement. Then GPU replicas are packed and the others are spread.
 */
function compareFits(a: NodeFit, b: NodeFit): number {
  return (
    a.sameModel - b.sameModel ||
    a.failures - b.failures ||
    a.cards.classRank - b.cards.classRank ||
    Number(b.holdsWeights) - Number(a.holdsWeights) ||
    (a.cards.gpuUuids.length === 0 ? bySpread(a, b) : byPacking(a.cards, b.cards)) ||
    (a.room.node.nodeId < b.room.node.nodeId ? -1 : Number(a.room.node.nodeId > b.room.node.nodeId))
  );
}

const byPacking = (a: CardFit, b: CardFit): number =>
  Number(b.isOpen) - Number(a.isOpen) || a.wholeCardsLeft - b.wholeCardsLeft || a.leftMib - b.leftMib;

const bySpread = (a: NodeFit, b: NodeFit): number =>
  freeShare(b.room) - freeShare(a.room) || a.room.replicas - b.room.replicas;
const freeShare = ({ coresFree, node }: NodeRoom): number => coresFree / Math.max(1, node.report?.cores ?? 1);
