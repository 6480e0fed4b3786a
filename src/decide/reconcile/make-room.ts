import type { Model } from "../../contract/catalog.ts";
import type { KeptRoom, ReplicaDoc } from "../../contract/fleet.ts";
import { fitOn } from "../placement/node-fit.ts";
import { type Holding, nodeRoom, type NodeRoom } from "../placement/node-room.ts";
import { placeReplica, shardNeed } from "../placement/place-replica.ts";
import { isIdleReplica, noteIdle, readyForMs } from "./idle-stop.ts";
import { giveUp, giveUpRoomOf, roomId, takeUpRoom, unfilledRooms } from "./kept-rooms.ts";
import type { Observed } from "./observe.ts";
import { aboutReplica, type PassDraft } from "./pass-draft.ts";
import { addReplica, type PassRoom, wishFor } from "./placing.ts";
import { stopReplica } from "./replica-life.ts";
import { isHeard, isServing } from "./restart-queue.ts";

/** Models that one pass makes room for: each costs a look at every node. */
const MADE_MAX = 4;
/** Of a node's replicas, those that are thought of as making room. */
const VICTIMS_MAX = 32;

/**
 * Room for a model that has no replica and fits nowhere: idle replicas make it, and those of lower priority.
 *
 * Invariants:
 *   M1. Only a strictly lower priority is displaced, and only after `minRunMs` of service; so of two models none displaces the other in
 *       turn, and however many there are each displacement leaves the higher one placed.
 *   M2. A model that was displaced displaces nobody before it has served again: one move never causes the next.
 *   M3. The replica that is to have the room is written down with the end of those that have it, and waits for it.
 *   M4. Room that a lower priority keeps for a replica it lacks is displaced like one that serves: after `minRunMs`.
 *   M5. Only known idleness counts as idle.
 */
export class RoomMaker {
  readonly #draft: PassDraft;
  readonly #room: PassRoom;
  readonly #observed: Observed;
  #made = 0;

  constructor(draft: PassDraft, room: PassRoom, observed: Observed) {
    this.#draft = draft;
    this.#room = room;
    this.#observed = observed;
  }

  /**
   * "made": a replica of the model was placed in the room of others. "soon": one will be, if a later look finds the same; nobody who
   * asks for the model is to be turned away meanwhile.
   */
  makeFor(model: Model): "made" | "soon" | "none" {
    const draft = this.#draft;
    if (this.#made >= MADE_MAX || !draft.mayStop) return "none";
    const victims = this.#victims(model);
    if (victims.size === 0) return "none";
    this.#made += 1;
    const chosen = this.#cheapest(model, victims);
    if (chosen === null) return "none";
    const gone = new Set(chosen.map(({ id }) => id));
    const placed = placeReplica(this.#room.without(gone, model.name), wishFor(draft, model));
    if (placed.kind === "noRoom") return "none";
    if (!draft.confirmed(`room for ${model.name}`)) return "soon";
    const waitsFor = chosen.filter(({ kept }) => kept === null).map(({ id }) => id);
    const heir = addReplica(draft, model, placed, { replaces: null, waitsFor });
    takeUpRoom(draft, heir);
    for (const victim of chosen) this.#end(victim, model, heir);
    this.#room.renew();
    return "made";
  }

  #end({ id, model: name, isIdle, kept }: Victim, model: Model, heir: ReplicaDoc): void {
    const draft = this.#draft;
    const its = draft.snapshot.catalog.models.get(name);
    const priorities = `priority ${model.priority} over ${its?.priority ?? "none"}`;
    if (isIdle && its !== undefined) noteIdle(draft, its);
    else draft.writeModel({ ...draft.model(name), displacedBy: model.name });
    if (kept !== null) {
      giveUp(draft, draft.model(name), [kept], `${heir.id} of ${model.name} takes it (${priorities})`);
      return;
    }
    const doc = draft.replica(id)!;
    giveUpRoomOf(draft, doc);
    const why = isIdle
      ? `idle; its room goes to ${heir.id} of ${model.name}`
      : `displaced by ${heir.id} of ${model.name} (${priorities})`;
    draft.event("replicaDisplaced", aboutReplica(doc), why);
    stopReplica(draft, doc, why);
  }

  /** Who may have to go for the model, by node, the cheapest first. */
  #victims(model: Model): ReadonlyMap<string, readonly Victim[]> {
    const draft = this.#draft;
    const { catalog, use, demanded, settings } = draft.snapshot;
    const mayDisplace = (draft.model(model.name).displacedBy ?? null) === null;
    const byNode = new Map<string, Victim[]>();
    const add = (victim: Victim, nodeIds: ReadonlySet<string>): void => {
      for (const nodeId of nodeIds) byNode.set(nodeId, [...(byNode.get(nodeId) ?? []), victim]);
    };
    for (const doc of draft.replicas()) {
      if (!isServing(doc) || doc.model === model.name || !isHeard(draft, doc)) continue;
      if ((doc.restart?.state ?? "refused") !== "refused" || (doc.replaces ?? null) !== null) continue;
      const its = catalog.models.get(doc.model);
      if (its === undefined) continue;
      const mayIdle = its.replicas.min === 0 && !demanded.has(its.name);
      const isIdle = mayIdle && isIdleReplica(draft, its, doc, this.#observed);
      const isLower =
        mayDisplace && its.priority < model.priority && readyForMs(doc, this.#observed) >= settings.minRunMs;
      if (!isIdle && !isLower) continue;
      const known = use.get(doc.id);
      const victim = {
        id: doc.id,
        model: doc.model,
        kept: null,
        isIdle,
        priority: its.priority,
        idleMs: known?.idleMs ?? 0,
        inFlight: known?.inFlight ?? Number.MAX_SAFE_INTEGER,
      };
      add(victim, new Set(doc.shards.map((shard) => shard.nodeId)));
    }
    for (const { doc, room, keptMs } of unfilledRooms(draft)) {
      const its = catalog.models.get(doc.name);
      if (its === undefined || doc.name === model.name || !mayDisplace) continue;
      if (its.priority >= model.priority || keptMs < settings.minRunMs) continue;
      const victim = { id: roomId(room), model: doc.name, kept: room, isIdle: false, priority: its.priority };
      add({ ...victim, idleMs: keptMs, inFlight: 0 }, new Set(room.nodes.map(({ nodeId }) => nodeId)));
    }
    for (const [nodeId, its] of byNode) byNode.set(nodeId, its.toSorted(byCost).slice(0, VICTIMS_MAX));
    return byNode;
  }

  /** The smallest set whose end gives the model a place, of the profile that is tried first; null: there is none. */
  #cheapest(model: Model, victims: ReadonlyMap<string, readonly Victim[]>): readonly Victim[] | null {
    const holdings = this.#room.holdings(model.name);
    const wish = wishFor(this.#draft, model);
    for (const profile of model.profiles) {
      const need = shardNeed(new Map(), wish, profile);
      const sets: NodeSet[] = [];
      for (const node of this.#room.nodes()) {
        const its = victims.get(node.nodeId) ?? [];
        if (its.length === 0 && model.multiNode === null) continue;
        const roomWithout = (gone: readonly Victim[]): NodeRoom =>
          nodeRoom(node, leaving(holdings.get(node.nodeId) ?? [], gone));
        const set = smallestSet(its, (gone) => fitOn(roomWithout(gone), need).kind === "fits");
        if (set !== null && (set.length > 0 || model.multiNode !== null))
          sets.push({ victims: set, nodeId: node.nodeId, fabric: node.report?.fabric ?? null });
      }
      const best =
        model.multiNode === null ? sets.toSorted(compareSets)[0]?.victims : ofOneFabric(sets, model.multiNode.nodes);
      if (best !== undefined && best.length > 0) return best;
    }
    return null;
  }
}

interface Victim {
  /** As its holdings call it. */
  readonly id: string;
  readonly model: string;
  /** Room that a model keeps and nothing runs in; null: it is a replica. */
  readonly kept: KeptRoom | null;
  readonly isIdle: boolean;
  readonly priority: number;
  readonly idleMs: number;
  readonly inFlight: number;
}

interface NodeSet {
  readonly victims: readonly Victim[];
  readonly nodeId: string;
  readonly fabric: string | null;
}

/** Where nothing runs costs nobody an answer. */
const isFree = ({ isIdle, kept }: Victim): boolean => isIdle || kept !== null;

/** Those where nothing runs and idle ones, then the lowest priority, then who has been idle longest, then who has the least to do. */
const byCost = (a: Victim, b: Victim): number =>
  Number(b.kept !== null) - Number(a.kept !== null) ||
  Number(b.isIdle) - Number(a.isIdle) ||
  a.priority - b.priority ||
  b.idleMs - a.idleMs ||
  a.inFlight - b.inFlight ||
  (a.id < b.id ? -1 : 1);

/** As few as will do, and of these the cheapest; null where not even all of them do. */
function smallestSet(victims: readonly Victim[], fits: (gone: readonly Victim[]) => boolean): readonly Victim[] | null {
  if (fits([])) return [];
  const single = victims.find((victim) => fits([victim]));
  if (single !== undefined) return [single];
  let set: readonly Victim[] = [];
  for (const victim of victims) {
    set = [...set, victim];
    if (fits(set)) break;
  }
  if (!fits(set)) return null;
  // What was taken before the one that made the difference may not have been needed: the dearest goes first.
  for (const victim of set.toReversed()) {
    const without = set.filter((other) => other !== victim);
    if (fits(without)) set = without;
  }
  return set;
}

const compareSets = (a: NodeSet, b: NodeSet): number => {
  const [x, y] = [a.victims, b.victims];
  const highest = (set: readonly Victim[]): number => Math.max(...set.map(({ priority }) => priority));
  const busy = (set: readonly Victim[]): number => set.filter((victim) => !isFree(victim)).length;
  return (
    x.length - y.length ||
    busy(x) - busy(y) ||
    highest(x) - highest(y) ||
    byCost(x[0]!, y[0]!) ||
    (a.nodeId < b.nodeId ? -1 : 1)
  );
};

/** For a replica on several nodes: of each fabric the nodes that cost least. */
function ofOneFabric(sets: readonly NodeSet[], nodes: number): readonly Victim[] | undefined {
  let best: readonly Victim[] | undefined;
  for (const [fabric, its] of Map.groupBy(sets, (set) => set.fabric)) {
    if (fabric === null || its.length < nodes) continue;
    const cheapest = its.toSorted((a, b) => a.victims.length - b.victims.length || (a.nodeId < b.nodeId ? -1 : 1));
    const union = new Map(cheapest.slice(0, nodes).flatMap(({ victims }) => victims.map((each) => [each.id, each])));
    if (best === undefined || union.size < best.length) best = [...union.values()];
  }
  return best;
}

const leaving = (holdings: readonly Holding[], gone: readonly Victim[]): readonly Holding[] => {
  const ids = new Set(gone.map(({ id }) => id));
  return holdings.map((holding) => (ids.has(holding.replicaId) ? { ...holding, leaves: true } : holding));
};
