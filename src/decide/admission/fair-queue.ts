import type { MonoMs } from "../../kernel/clock.ts";
import { type HeapEntry, IndexedHeap } from "./indexed-heap.ts";
import type { Rank } from "./ranks.ts";

/**
 * The waiting requests of one class: a start-time fair queue over keys.
 *
 * A flow is one key. Its `tag` is the virtual time at which its next request may start; being served moves it on by
 * 1 / weight. The lowest tag is served first, and the queue's virtual time is the tag served last.
 *
 * Invariants:
 *   F1. A key that starts to wait gets the current virtual time, or where its last service left it if that is later: it
 *       is behind every other key by one turn at most, and can't gain turns by waiting with one request at a time.
 *   F2. Requests of a key that ask for the same group are served first in, first out; of those with different groups the
 *       oldest whose group has room. An older one without room doesn't hold back the others of its key.
 *   F3. A flow passed over for want of room doesn't save up turns: its service counts from the current virtual time.
 *   F4. A flow without waiting requests is kept only while its tag is ahead of the virtual time, none when nobody waits.
 *   F5. A request that had a slot before (its order is below 0) goes before all others of its key.
 */

/** A waiting request. */
export interface Ticket extends HeapEntry {
  readonly id: number;
  readonly weight: number;
  readonly bytes: number;
  readonly arrivedAt: MonoMs;
  readonly deadline: MonoMs | undefined;
  expiresAt: MonoMs;
  expiry: "queueTimeout" | "startTimeout" | "deadline";
  /** Rises with each arrival of the pool; below 0 for one that had a slot before. */
  readonly order: number;
  /** Rises by one with each arrival of the key. */
  nth: number;
  readonly rank: Rank;
  lane: Lane | undefined;
  prev: Ticket | undefined;
  next: Ticket | undefined;
  /** The last position told to anyone; told positions only fall. */
  told: number;
}

/** The waiting requests of one key, over all groups. */
export interface Flow extends HeapEntry {
  readonly key: string;
  weight: number;
  tag: number;
  /** Breaks ties of `tag`: who got its tag first. */
  turn: number;
  waiting: number;
  bytes: number;
  /** The part of the queue that the flow fills, by count or by bytes, whichever is more, for its weight. */
  load: number;
  /** `order` of its newest request. */
  newest: number;
  arrived: number;
  readonly lanes: Lane[];
}

/** The waiting requests of one key that ask for one group: a list in order of arrival, never empty. */
interface Lane extends HeapEntry {
  readonly flow: Flow;
  readonly group: Group;
  head: Ticket | undefined;
  tail: Ticket | undefined;
}

interface Group {
  readonly name: string;
  waiting: number;
  readonly lanes: IndexedHeap<Lane>;
}

/** Flows above this number make a position an estimate: asking must not cost a walk over thousands of keys. */
const EXACT_FLOWS_MAX = 128;
/** Requests of the own key that are counted one by one for a position; beyond, those that left in between count too. */
const EXACT_AHEAD_MAX = 64;

const laneBefore = (a: Lane, b: Lane): boolean =>
  a.flow.tag < b.flow.tag || (a.flow.tag === b.flow.tag && a.flow.turn < b.flow.turn);
const heavierFlow = (a: Flow, b: Flow): boolean => a.load > b.load || (a.load === b.load && a.newest > b.newest);
const earlierTag = (a: Flow, b: Flow): boolean => a.tag < b.tag || (a.tag === b.tag && a.turn < b.turn);

export class FairQueue {
  #waiting = 0;
  #bytes = 0;
  #virtual = 0;
  #turns = 0;
  #countMax = 1;
  #bytesMax = 1;
  readonly #flows = new Map<string, Flow>();
  readonly #groups = new Map<string, Group>();
  /** Flows with waiting requests, the one that fills most of the queue first. */
  readonly #byLoad = new IndexedHeap<Flow>(heavierFlow);
  /** Flows without, whose tag is still ahead of the virtual time. */
  readonly #resting = new IndexedHeap<Flow>(earlierTag);

  get waiting(): number {
    return this.#waiting;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Keys remembered, waiting or not. */
  get flowCount(): number {
    return this.#flows.size;
  }

  setLimits(countMax: number, bytesMax: number): void {
    this.#countMax = Math.max(1, countMax);
    this.#bytesMax = Math.max(1, bytesMax);
    const flows = [...this.#byLoad.items];
    this.#byLoad.clear();
    for (const flow of flows) {
      flow.load = this.loadOf(flow.waiting, flow.bytes, flow.weight);
      this.#byLoad.push(flow);
    }
  }

  loadOf(waiting: number, bytes: number, weight: number): number {
    return Math.max(waiting / this.#countMax, bytes / this.#bytesMax) / weight;
  }

  add(ticket: Ticket, key: string, groupName: string): void {
    const flow = this.#flowFor(key);
    const goesFirst = ticket.order < 0 && flow.waiting > 0;
    ticket.nth = goesFirst ? oldestOf(flow) - 1 : flow.arrived++;
    insert(ticket, this.#laneFor(flow, groupName));
    flow.weight = ticket.weight;
    flow.newest = Math.max(flow.newest, ticket.order);
    this.#waiting += 1;
    this.#bytes += ticket.bytes;
    this.#changeLoad(flow, 1, ticket.bytes);
  }

  /** The request whose turn it is among those with room. */
  next(canTake: (group: string) => boolean): Ticket | undefined {
    let best: Lane | undefined;
    for (const group of this.#groups.values()) {
      const lane = group.lanes.top;
      if (lane === undefined || !canTake(group.name)) continue;
      if (
        best === undefined ||
        laneBefore(lane, best) ||
        (lane.flow === best.flow && orderOf(lane.head) < orderOf(best.head))
      )
        best = lane;
    }
    return best?.head;
  }

  /** Each group that somebody waits for, and how many do. */
  eachGroup(visit: (group: string, waiting: number) => void): void {
    for (const { name, waiting } of this.#groups.values()) visit(name, waiting);
  }

  /** Sorts those that wait into groups anew; order, turns and loads stay as they are. */
  regroup(groupOf: (id: number) => string): void {
    this.#groups.clear();
    for (const flow of this.#byLoad.items) {
      const tickets = flow.lanes.flatMap(ticketsOf).toSorted((a, b) => a.order - b.order);
      flow.lanes.length = 0;
      for (const ticket of tickets) insert(ticket, this.#laneFor(flow, groupOf(ticket.id)));
    }
  }

  /** Takes the request out and charges its key for it. */
  serve(ticket: Ticket): void {
    const { flow } = laneOf(ticket);
    this.#virtual = Math.max(this.#virtual, flow.tag);
    flow.tag = this.#virtual + 1 / ticket.weight;
    flow.turn = this.#turns++;
    this.remove(ticket);
    for (const lane of flow.lanes) lane.group.lanes.update(lane);
    for (
      let rested = this.#resting.top;
      rested !== undefined && rested.tag <= this.#virtual;
      rested = this.#resting.top
    ) {
      this.#resting.remove(rested);
      this.#flows.delete(rested.key);
    }
  }

  /** Takes the request out at no charge. */
  remove(ticket: Ticket): void {
    const lane = laneOf(ticket);
    const { flow } = lane;
    if (ticket.prev === undefined) lane.head = ticket.next;
    else ticket.prev.next = ticket.next;
    if (ticket.next === undefined) lane.tail = ticket.prev;
    else ticket.next.prev = ticket.prev;
    ticket.lane = ticket.prev = ticket.next = undefined;
    lane.group.waiting -= 1;
    this.#waiting -= 1;
    this.#bytes -= ticket.bytes;
    if (lane.head === undefined) this.#dropLane(lane);
    if (ticket.order === flow.newest) flow.newest = orderOf(this.newestOf(flow));
    this.#changeLoad(flow, -1, -ticket.bytes);
    if (this.#waiting === 0) this.#reset();
  }

  /** The flow that fills most of the queue. */
  heaviest(): Flow | undefined {
    return this.#byLoad.top;
  }

  newestOf(flow: Flow): Ticket | undefined {
    let newest: Ticket | undefined;
    for (const lane of flow.lanes) if (newest === undefined || orderOf(lane.tail) > newest.order) newest = lane.tail;
    return newest;
  }

  /** The load that one more request would give the key. */
  loadWith(key: string, bytes: number, weight: number): number {
    const flow = this.#flows.get(key);
    return this.loadOf((flow?.waiting ?? 0) + 1, (flow?.bytes ?? 0) + bytes, weight);
  }

  /**
   * Place in the order of service if nobody else comes, 1 for the next: exact for up to 128 keys that have room, else an
   * upper estimate. Never above the last one told.
   */
  position(ticket: Ticket): number {
    const { flow } = laneOf(ticket);
    const ahead = this.#aheadInFlow(ticket, flow);
    const flows = this.#byLoad.items;
    let position = ahead + 1;
    if (flows.length > EXACT_FLOWS_MAX) position = Math.min(this.#waiting, flows.length * (ahead + 1));
    else {
      const start = flow.tag + ahead / ticket.weight;
      for (const other of flows) {
        if (other === flow) continue;
        const turns = (start - other.tag) * other.weight;
        const first = Number.isInteger(turns) && turns >= 0 && hasTie(other, turns, flow, ahead) ? 1 : 0;
        if (turns + first > 0) position += Math.min(other.waiting, Math.ceil(turns) + first);
      }
    }
    ticket.told = Math.min(ticket.told, position);
    return ticket.told;
  }

  #aheadInFlow(ticket: Ticket, flow: Flow): number {
    const oldest = oldestOf(flow);
    if (ticket.nth === flow.arrived - 1) return flow.waiting - 1;
    const ahead = Math.min(ticket.nth - oldest, flow.waiting - 1);
    if (ahead > EXACT_AHEAD_MAX) return ahead;
    let counted = 0;
    for (const lane of flow.lanes) {
      for (let other = lane.head; other !== undefined && other.nth < ticket.nth; other = other.next) counted += 1;
    }
    return counted;
  }

  #flowFor(key: string): Flow {
    const known = this.#flows.get(key);
    if (known === undefined) {
      const flow: Flow = {
        at: -1,
        key,
        weight: 1,
        tag: this.#virtual,
        turn: this.#turns++,
        waiting: 0,
        bytes: 0,
        load: 0,
        newest: -1,
        arrived: 0,
        lanes: [],
      };
      this.#flows.set(key, flow);
      return flow;
    }
    if (known.waiting === 0) {
      this.#resting.remove(known); // Its tag is ahead of the virtual time (F4), so it keeps it.
      known.turn = this.#turns++;
    }
    return known;
  }

  #laneFor(flow: Flow, groupName: string): Lane {
    for (const lane of flow.lanes) if (lane.group.name === groupName) return lane;
    let group = this.#groups.get(groupName);
    if (group === undefined) {
      group = { name: groupName, waiting: 0, lanes: new IndexedHeap(laneBefore) };
      this.#groups.set(groupName, group);
    }
    const lane: Lane = { at: -1, flow, group, head: undefined, tail: undefined };
    group.lanes.push(lane);
    flow.lanes.push(lane);
    return lane;
  }

  #dropLane(lane: Lane): void {
    lane.group.lanes.remove(lane);
    if (lane.group.lanes.size === 0) this.#groups.delete(lane.group.name);
    lane.flow.lanes.splice(lane.flow.lanes.indexOf(lane), 1);
  }

  #changeLoad(flow: Flow, count: number, bytes: number): void {
    flow.waiting += count;
    flow.bytes += bytes;
    flow.load = this.loadOf(flow.waiting, flow.bytes, flow.weight);
    if (flow.waiting === 0) {
      this.#byLoad.remove(flow);
      if (flow.tag > this.#virtual) this.#resting.push(flow);
      else this.#flows.delete(flow.key);
    } else if (flow.at === -1) this.#byLoad.push(flow);
    else this.#byLoad.update(flow);
  }

  #reset(): void {
    this.#flows.clear();
    this.#resting.clear();
    this.#virtual = 0;
  }
}

/**
 * Whether the `nth` request of one flow goes before the `mth` of the other when both will have the same tag: the one that
 * gets the tag first, which is when the request before it is served.
 */
function hasTie(flow: Flow, nth: number, other: Flow, mth: number): boolean {
  if (nth === 0 || mth === 0 || flow.weight === other.weight) return nth === mth ? flow.turn < other.turn : nth < mth;
  return flow.weight < other.weight;
}

/** In the order of arrival: behind the others, unless it was in use before (F5). */
function insert(ticket: Ticket, lane: Lane): void {
  let next = ticket.order < 0 ? lane.head : undefined;
  while (next !== undefined && next.order < ticket.order) next = next.next;
  ticket.lane = lane;
  ticket.next = next;
  ticket.prev = next === undefined ? lane.tail : next.prev;
  if (ticket.prev === undefined) lane.head = ticket;
  else ticket.prev.next = ticket;
  if (next === undefined) lane.tail = ticket;
  else next.prev = ticket;
  lane.group.waiting += 1;
}

const oldestOf = ({ lanes }: Flow): number =>
  lanes.reduce((least, { head }) => Math.min(least, head?.nth ?? least), Infinity);

function ticketsOf(lane: Lane): Ticket[] {
  const tickets: Ticket[] = [];
  for (let ticket = lane.head; ticket !== undefined; ticket = ticket.next) tickets.push(ticket);
  return tickets;
}

function laneOf(ticket: Ticket): Lane {
  if (ticket.lane === undefined) throw new Error(`admission: request ${ticket.id} does not wait`);
  return ticket.lane;
}

const orderOf = (ticket: Ticket | undefined): number => ticket?.order ?? -1;
