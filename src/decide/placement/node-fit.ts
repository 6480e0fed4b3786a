import type { Model, Profile } from "../../contract/catalog.ts";
import type { Exclusion } from "./exclusion.ts";
import { gpuNeedMib, type MemoryTruth } from "./memory-need.ts";
import type { CardFit, CardRoom, NodeRoom } from "./node-room.ts";

/** What one shard of a model asks of a node. */
export interface ShardNeed {
  readonly model: Model;
  readonly profile: Profile;
  readonly require: readonly (readonly [label: string, value: string])[];
  readonly avoid: readonly (readonly [label: string, value: string])[];
  /** The GPU classes it may run on, in the order of preference, with what is known of its memory there. */
  readonly classes: readonly { readonly gpuClass: string; readonly truth: MemoryTruth | undefined }[];
  /** A small number, the same for needs that ask the same of cards. */
  readonly cardsKey: number;
  /** Nodes that a replacement must not go to. */
  readonly avoidNodes: ReadonlySet<string>;
  /** Failed starts and crashes of the model by node. */
  readonly failedOn: Readonly<Record<string, number>>;
  readonly failuresPerNodeMax: number;
  /** Enough nodes were tried: another one is taken only where none of these can take it. */
  readonly untriedLast: boolean;
}

export interface NodeFit {
  readonly kind: "fits";
  readonly room: NodeRoom;
  readonly cards: CardFit;
  /** Replicas of the model that are here already. */
  readonly sameModel: number;
  /** Failures of the model here; of a node that comes last, as many as no other has. */
  readonly failures: number;
  readonly holdsWeights: boolean;
}

/** Whether the node can take the shard now, and with which cards; else the first thing that is missing. */
export function fitOn(room: NodeRoom, need: ShardNeed): NodeFit | Exclusion {
  const unusable = room.closed ?? unwantedWhy(room, need);
  if (unusable !== null) return unusable;
  // Cards are the long part, many models ask the same of them, and they change only where something is placed.
  const cards = (room.cardFits[need.cardsKey] ??= fitOnCards(room, need));
  if (cards.kind !== "cards") return cards;
  const { weightsName } = need.profile;
  const holdsWeights = weightsName !== null && (room.weights.has(weightsName) || room.coming.has(weightsName));
  return (
    hostLacks(room, need.profile, holdsWeights) ?? {
      kind: "fits",
      room,
      cards,
      sameModel: room.models.get(need.model.name) ?? 0,
      failures: need.failedOn[room.node.nodeId] ?? (need.untriedLast ? need.failuresPerNodeMax : 0),
      holdsWeights,
    }
  );
}

function unwantedWhy({ node }: NodeRoom, need: ShardNeed): Exclusion | null {
  const report = node.report!;
  const { profile } = need;
  for (const [label, wanted] of need.require) {
    const found = report.labels[label] ?? null;
    if (found !== wanted) return { kind: "labelMissing", label, wanted, found };
  }
  for (const [label, value] of need.avoid)
    if (report.labels[label] === value) return { kind: "labelAvoided", label, value };
  if (need.avoidNodes.has(node.nodeId)) return { kind: "avoided" };
  const failures = need.failedOn[node.nodeId] ?? 0;
  const { failuresPerNodeMax } = need;
  if (failures >= failuresPerNodeMax) return { kind: "failedTooOften", failures, failuresMax: failuresPerNodeMax };
  if (!report.engines.includes(profile.engine)) return { kind: "engineMissing", engine: profile.engine };
  const command = profile.command?.[0];
  if (command !== undefined && !report.commands.includes(command)) return { kind: "commandNotAllowed", command };
  return null;
}

function hostLacks(room: NodeRoom, profile: Profile, holdsWeights: boolean): Exclusion | null {
  if (profile.cpu !== null) {
    const { cores, memoryMib } = profile.cpu;
    if (room.coresFree < cores) return { kind: "cores", needed: cores, free: room.coresFree };
    if (room.memoryFreeMib === null) return { kind: "memoryUnknown" };
    if (room.memoryFreeMib < memoryMib) return { kind: "memory", neededMib: memoryMib, freeMib: room.memoryFreeMib };
  }
  if (profile.diskMib === 0 || holdsWeights) return null;
  if (room.diskFreeMib === null) return { kind: "diskUnknown" };
  return room.diskFreeMib < profile.diskMib
    ? { kind: "disk", neededMib: profile.diskMib, freeMib: room.diskFreeMib }
    : null;
}

function fitOnCards(room: NodeRoom, need: ShardNeed): CardFit | Exclusion {
  const { gpu } = need.profile;
  const pinned = need.model.nodes.gpuUuids;
  const absent = pinned.length > 0 && (gpu === null || !room.cards.some((card) => pinned.includes(card.uuid)));
  if (absent) return { kind: "pinnedGpuAbsent", uuids: pinned };
  if (gpu === null) return NO_CARDS;
  const report = room.node.report!;
  if (report.gpuDiscovery === "failed") return { kind: "gpuDiscoveryFailed", why: report.gpuDiscoveryWhy };

  // The reason to tell is that of the first class that the node has at all.
  let why: Exclusion | undefined;
  for (const [classRank, { gpuClass, truth }] of need.classes.entries()) {
    const count = countCards(room, gpuClass, pinned, gpu.memoryMib, truth);
    if (count.found === 0) continue;
    if (count.fitting >= gpu.count) return chooseCards(room, gpu.count, count, gpuClass, classRank, pinned);
    why ??= cardsLack(gpu.count, count, truth);
  }
  return why ?? { kind: "gpuClass", wanted: gpu.classes, found: [...new Set(room.cards.map((card) => card.class))] };
}

const NO_CARDS: CardFit = {
  kind: "cards",
  gpuUuids: [],
  perGpuMib: 0,
  gpuClass: "",
  classRank: 0,
  isOpen: false,
  wholeCardsLeft: 0,
  leftMib: 0,
};

/** The cards of a class, and how many are left after each condition. */
interface CardCount {
  readonly perGpuMib: number;
  readonly found: number;
  readonly healthy: number;
  readonly known: number;
  readonly large: number;
  readonly fitting: number;
  readonly largestMib: number;
  readonly foreignMib: number;
  /** Free on each card that is large enough. */
  readonly freeMib: readonly number[];
}

function countCards(
  room: NodeRoom,
  gpuClass: string,
  pinned: readonly string[],
  profileMib: number,
  truth: MemoryTruth | undefined,
): CardCount {
  let [perGpuMib, found, healthy, known, large, fitting, largestMib, foreignMib] = [0, 0, 0, 0, 0, 0, 0, 0];
  const freeMib: number[] = [];
  for (const card of room.cards) {
    if (card.class !== gpuClass || (pinned.length > 0 && !pinned.includes(card.uuid))) continue;
    found += 1;
    if (card.sick) continue;
    healthy += 1;
    if (card.totalMib === null || card.freeMib === null) continue;
    known += 1;
    if (card.totalMib > largestMib) largestMib = card.totalMib;
    const needMib = gpuNeedMib(profileMib, truth, card.totalMib);
    if (needMib === null) continue;
    // Cards of one class are alike; where they are not, all are held as the one that needs most.
    if (needMib > perGpuMib) perGpuMib = needMib;
    large += 1;
    foreignMib += card.foreignMib ?? 0;
    freeMib.push(card.freeMib);
  }
  for (const free of freeMib) if (free >= perGpuMib) fitting += 1;
  return { perGpuMib, found, healthy, known, large, fitting, largestMib, foreignMib, freeMib };
}

function cardsLack(needed: number, count: CardCount, truth: MemoryTruth | undefined): Exclusion {
  if (count.found < needed) return { kind: "gpuCount", needed, found: count.found };
  if (count.healthy < needed)
    return { kind: "gpuSick", needed, healthy: count.healthy, sick: count.found - count.healthy };
  if (count.known < needed) return { kind: "gpuMemoryUnknown", needed, known: count.known };
  if (count.large < needed)
    return { kind: "gpuTooSmall", ranOutAtMib: truth?.oomAtMib ?? 0, largestMib: count.largestMib };
  return {
    kind: "gpuMemory",
    neededMib: count.perGpuMib,
    cardsNeeded: needed,
    cardsFitting: count.fitting,
    freeMib: count.freeMib.toSorted((a, b) => b - a)[needed - 1] ?? 0,
    foreignMib: count.foreignMib,
  };
}

function chooseCards(
  room: NodeRoom,
  needed: number,
  { perGpuMib, fitting }: CardCount,
  gpuClass: string,
  classRank: number,
  pinned: readonly string[],
): CardFit {
  const usable = room.cards.filter(
    (card) =>
      card.class === gpuClass &&
      !card.sick &&
      card.totalMib !== null &&
      card.freeMib !== null &&
      card.freeMib >= perGpuMib &&
      (pinned.length === 0 || pinned.includes(card.uuid)),
  );
  const chosen = fitting === needed ? usable : usable.toSorted(byTightness).slice(0, needed);
  let [wholeCardsLeft, leftMib] = [0, 0];
  for (const card of room.cards) if (card.tenants === 0 && !chosen.includes(card)) wholeCardsLeft += 1;
  for (const card of chosen) leftMib += card.freeMib! - perGpuMib;
  const gpuUuids = chosen.map((card) => card.uuid);
  const isOpen = room.cards.some((card) => card.tenants > 0);
  return { kind: "cards", gpuUuids, perGpuMib, gpuClass, classRank, isOpen, wholeCardsLeft, leftMib };
}

// Cards that are used already come first, the fullest of them: whole free cards stay for replicas that need whole cards.
const byTightness = (a: CardRoom, b: CardRoom): number =>
  Number(a.tenants === 0) - Number(b.tenants === 0) || a.freeMib! - b.freeMib! || (a.uuid < b.uuid ? -1 : 1);
