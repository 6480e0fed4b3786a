import type { Profile } from "../../contract/catalog.ts";
import type { NodeReport, NodeState } from "../../contract/fleet.ts";
import type { Exclusion } from "./exclusion.ts";

/**
 * What is free on each node, for one pass: built from the last reports and from what is held, then reduced with every placement,
 * so that two placements of a pass never count on the same memory.
 *
 * Invariants:
 *   R1. What nobody measured is not free: a card or disk with unknown use takes nothing new.
 *   R2. What others use counts as used. On a card that is whatever is used beyond what our engines there are known to use; an
 *       engine that is still starting, and whose use nobody measured, is known to use nothing yet.
 *   R3. One of our engines takes the larger of what it was given and what it was seen to use.
 *   R4. An engine that the store does not know takes what it was seen to use, and the whole card when nobody measured it.
 */
export interface PlacementNode {
  readonly nodeId: string;
  readonly state: NodeState;
  readonly silentMs: number | null;
  readonly cordoned: boolean;
  /** Null: nothing is known of it now. */
  readonly report: NodeReport | null;
}

/** One shard's claim on its node, from its placement until it is seen gone. */
export interface Holding {
  readonly replicaId: string;
  readonly model: string;
  readonly nodeId: string;
  readonly gpuUuids: readonly string[];
  /** Given on each of its cards; null: whatever it uses (R4). */
  readonly perGpuMib: number | null;
  readonly cores: number;
  readonly memoryMib: number;
  /** Room that its weights will still take; 0 once they are there. */
  readonly diskMib: number;
  readonly weightsName: string | null;
  /** Whether it has loaded all it needs, so that its use is at least what it was given where nobody measured it. */
  readonly settled: boolean;
  readonly gpuUsedMib: Readonly<Record<string, number>> | null;
  readonly hostUsedMib: number | null;
  /** Taken for gone: what it uses now is nobody's, and will be free. */
  readonly leaves: boolean;
}

export interface CardRoom {
  readonly uuid: string;
  readonly class: string;
  readonly sick: boolean;
  readonly totalMib: number | null;
  /** Used by others; null: unknown. */
  readonly foreignMib: number | null;
  /** Null: unknown, so nothing is free. */
  freeMib: number | null;
  tenants: number;
}

/** Cards of a node that fit what is asked of cards. */
export interface CardFit {
  readonly kind: "cards";
  readonly gpuUuids: readonly string[];
  readonly perGpuMib: number;
  readonly gpuClass: string;
  /** Place of its class in the profile's order. */
  readonly classRank: number;
  /** Something runs on one of the node's cards already. */
  readonly isOpen: boolean;
  /** Cards that nothing runs on, once this is placed. */
  readonly wholeCardsLeft: number;
  /** Free memory that is left on the chosen cards. */
  readonly leftMib: number;
}

export interface NodeRoom {
  readonly node: PlacementNode;
  readonly cards: readonly CardRoom[];
  readonly weights: ReadonlySet<string>;
  /** Names of weights that placements of others bring here. */
  readonly coming: Set<string>;
  coresFree: number;
  /** Of the host; null: unknown. */
  memoryFreeMib: number | null;
  diskFreeMib: number | null;
  /** Replicas here, by model. */
  readonly models: Map<string, number>;
  replicas: number;
  /** Why it takes nothing at all; null where it may take something. */
  readonly closed: Exclusion | null;
  /** What was found out of the cards, by `ShardNeed.cardsKey`; void with the next placement here. */
  readonly cardFits: (CardFit | Exclusion | undefined)[];
}

export function nodeRoom(node: PlacementNode, holdings: readonly Holding[]): NodeRoom {
  const { report } = node;
  const room: NodeRoom = {
    node,
    cards: report === null ? [] : report.gpus.map((gpu) => cardRoom(gpu, holdings)),
    weights: new Set(report?.weights.map((held) => held.name)),
    coming: new Set(),
    coresFree: report?.cores ?? 0,
    memoryFreeMib: report === null ? null : hostFreeMib(report, holdings),
    diskFreeMib: report?.diskFreeMib ?? null,
    models: new Map(),
    replicas: 0,
    closed: closedWhy(node),
    cardFits: [],
  };
  for (const holding of holdings) {
    if (holding.leaves) continue;
    room.coresFree -= holding.cores;
    takeDisk(room, holding.weightsName, holding.diskMib);
    countReplica(room, holding.model);
  }
  return room;
}

function closedWhy({ state, silentMs, cordoned, report }: PlacementNode): Exclusion | null {
  if (state === "never_seen") return { kind: "neverSeen" };
  if (state === "lost") return { kind: "lost", silentMs };
  if (state === "unreachable" || report === null) return { kind: "unreachable", silentMs };
  return cordoned ? { kind: "cordoned" } : null;
}

/** Takes what the profile needs; the same step that chooses must call it. */
export function holdRoom(
  room: NodeRoom,
  model: string,
  profile: Profile,
  gpuUuids: readonly string[],
  perGpuMib: number,
): void {
  for (const card of room.cards) {
    if (!gpuUuids.includes(card.uuid)) continue;
    if (card.freeMib === null || card.freeMib < perGpuMib)
      throw new Error(`placement: ${perGpuMib} MiB do not fit on ${card.uuid}`);
    card.freeMib -= perGpuMib;
    card.tenants += 1;
  }
  room.cardFits.length = 0;
  room.coresFree -= profile.cpu?.cores ?? 0;
  if (room.memoryFreeMib !== null) room.memoryFreeMib -= profile.cpu?.memoryMib ?? 0;
  takeDisk(room, profile.weightsName, profile.diskMib);
  countReplica(room, model);
}

/** Weights that several replicas share are fetched once. */
function takeDisk(room: NodeRoom, weightsName: string | null, diskMib: number): void {
  if (weightsName !== null) {
    if (room.weights.has(weightsName) || room.coming.has(weightsName)) return;
    room.coming.add(weightsName);
  }
  if (room.diskFreeMib !== null) room.diskFreeMib -= diskMib;
}

function countReplica(room: NodeRoom, model: string): void {
  room.models.set(model, (room.models.get(model) ?? 0) + 1);
  room.replicas += 1;
}

function cardRoom(gpu: NodeReport["gpus"][number], holdings: readonly Holding[]): CardRoom {
  let [given, seen, tenants] = [0, 0, 0];
  for (const holding of holdings) {
    if (!holding.gpuUuids.includes(gpu.uuid)) continue;
    const used = holding.gpuUsedMib?.[gpu.uuid] ?? null;
    const claim = holding.perGpuMib ?? used ?? Number.POSITIVE_INFINITY;
    seen += used ?? (holding.settled ? claim : 0);
    if (holding.leaves) continue;
    tenants += 1;
    given += Math.max(claim, used ?? 0);
  }
  const known = gpu.memoryMib !== null && gpu.usedMib !== null;
  const foreignMib = known ? Math.max(gpu.foreignMib ?? 0, gpu.usedMib - seen, 0) : null;
  return {
    uuid: gpu.uuid,
    class: gpu.class,
    sick: gpu.health === "sick",
    totalMib: gpu.memoryMib,
    foreignMib,
    freeMib: gpu.memoryMib === null || foreignMib === null ? null : Math.max(0, gpu.memoryMib - foreignMib - given),
    tenants,
  };
}

function hostFreeMib(report: NodeReport, holdings: readonly Holding[]): number | null {
  if (report.memoryFreeMib === null) return null;
  let [given, seen] = [0, 0];
  for (const { memoryMib, hostUsedMib, settled, leaves } of holdings) {
    if (!leaves) given += Math.max(memoryMib, hostUsedMib ?? 0);
    seen += hostUsedMib ?? (settled ? memoryMib : 0);
  }
  const foreign = Math.max(0, report.memoryMib - report.memoryFreeMib - seen);
  return Math.max(0, report.memoryMib - foreign - given);
}
