import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";
import { DrainMeter } from "./drain-meter.ts";
import { FairQueue, type Ticket } from "./fair-queue.ts";
import { ALONE, type Elsewhere, type Gate, type GateWaiting } from "./gate.ts";
import { IndexedHeap } from "./indexed-heap.ts";
import { type ClassQueues, type FullQueue, makeSpace } from "./make-space.ts";
import { checkLimits, type PoolLimits } from "./pool-limits.ts";
import { BATCH, type Rank, RANK, RANKS } from "./ranks.ts";
import { ShareAccount } from "./share-account.ts";

/**
 * Who may use an upstream's slots, who waits, and who is refused. Owns the slots' count and the queue; reads no clock and
 * does no I/O. The shell calls in with the time, then takes the events.
 *
 * Invariants:
 *   P1. No request is admitted at or above `slots` in use, nor a batch request at or above `batchMax`. Checked at each
 *       admission; a violation throws before the slot is taken.
 *   P2. Work-conserving: after each call nobody waits who could be admitted (slot free, class limit, room in its group).
 *   P3. Classes go in strict order (interactive, system, batch), except that system and batch, each by its own account
 *       (share-account.ts), get `batchMinShare` of the slots' time when a higher class always waits.
 *   P4. Nothing past its queue timeout or deadline is admitted, also not at the moment in which a slot comes free.
 *   P5. A full queue sheds the lowest class first (make-space.ts); what it can't shed it refuses.
 *   P6. Each id is in at most one place, waiting or holding one slot, and leaves it once.
 *   P7. With a gate, nobody is admitted whom it does not permit, and P2 holds among those whom it does.
 *
 *   P8. While something is being started that could serve, requests wait for that (`startTimeoutMs`) in the place of their class's
 *       queue timeout. Whoever waits when that begins or ends has the other time from then on, and never more than both together.
 *
 * Apart from that a class's queue timeout is fixed when a request starts to wait; `setLimits` changes it for later ones.
 */
export interface Arrival {
  /** Unique among the requests that wait or hold a slot. */
  readonly id: number;
  readonly class: RequestClass;
  /** Whose request it is: keys of a class take turns. */
  readonly key: string;
  /** Turns of the key relative to others, above 0. */
  readonly weight: number;
  /** Bytes of the body, held while it waits. */
  readonly bytes: number;
  /** Endpoint group: "" when any endpoint will do, else what names the endpoints that serve the request. */
  readonly group: string;
  /** The request's own deadline, absolute. */
  readonly deadline: MonoMs | undefined;
  /** It had a slot and gave it back with nothing done: it goes before the others of its key. Ids must rise with the time of arrival. */
  readonly again?: boolean;
}

export type Admission =
  | { readonly kind: "admitted" }
  | { readonly kind: "queued"; readonly position: number }
  | {
      readonly kind: "refused";
      readonly why: "queueFull" | "queueBytesFull" | "deadlineSpent";
      readonly retryAfterMs: number;
    };

/** What became of requests that waited. */
export type PoolEvent =
  | { readonly kind: "admitted"; readonly id: number; readonly waitedMs: number }
  | {
      readonly kind: "expired";
      readonly id: number;
      readonly why: "queueTimeout" | "startTimeout" | "deadline";
      readonly waitedMs: number;
      readonly retryAfterMs: number;
    }
  /** Had to leave the full queue for one with precedence: answered like a full queue. */
  | { readonly kind: "displaced"; readonly id: number; readonly waitedMs: number; readonly retryAfterMs: number };

/** The endpoints behind the pool. Neither function may call the pool. */
export interface Room {
  canTake(group: string): boolean;
  /** In the same step as the admission of `id`, and only after `canTake(group)`. A throw leaves the slot untaken. */
  book(id: number, group: string): void;
}

export interface PoolView {
  readonly slots: number;
  readonly batchMax: number;
  /** Slots held, lingering ones included. */
  readonly inUse: Readonly<Record<RequestClass, number>>;
  readonly lingering: number;
  readonly waiting: Readonly<Record<RequestClass, number>>;
  readonly waitingBytes: number;
  /** Slots that come free in a second, as measured; null before anything has ended. */
  readonly drainPerSecond: number | null;
}

const RETRY_AFTER_MS_MIN = 1_000;
const RETRY_AFTER_MS_MAX = 600_000;

const LOWER_RANKS = [1, 2] as const;
/** A holder of a slot is a number, its class's rank plus this while it lingers, so that holding one allocates nothing. */
const LINGERS = 4;

const ADMITTED: Admission = Object.freeze({ kind: "admitted" });
const earlierExpiry = (a: Ticket, b: Ticket): boolean =>
  a.expiresAt < b.expiresAt || (a.expiresAt === b.expiresAt && a.order < b.order);

export class AdmissionPool {
  #limits: PoolLimits;
  readonly #room: Room;
  readonly #canTake: (group: string) => boolean;
  /** By rank: room, and the gate's permission. Without a gate the same as `#canTake`. */
  readonly #mayGo: readonly [(group: string) => boolean, (group: string) => boolean, (group: string) => boolean];
  #elsewhere: Elsewhere = ALONE;
  #now: MonoMs;
  #order = 0;
  #events: PoolEvent[] = [];

  readonly #holders = new Map<number, number>();
  readonly #inUse = [0, 0, 0] as [number, number, number];
  #lingering = 0;

  readonly #tickets = new Map<number, Ticket>();
  readonly #queues: ClassQueues = [new FairQueue(), new FairQueue(), new FairQueue()];
  readonly #expiries = new IndexedHeap<Ticket>(earlierExpiry);

  readonly #displace = (ticket: Ticket): void => {
    const retryAfterMs = this.#retryAfterMs(ticket.rank);
    this.#leave(ticket);
    this.#events.push({ kind: "displaced", id: ticket.id, waitedMs: this.#now - ticket.arrivedAt, retryAfterMs });
  };

  /** By rank; the first is never asked, nothing is above interactive. */
  readonly #accounts = [new ShareAccount(), new ShareAccount(), new ShareAccount()] as const;
  readonly #drain: DrainMeter;

  constructor(limits: PoolLimits, room: Room, now: MonoMs, gate?: Gate) {
    this.#limits = limits;
    this.#room = room;
    const canTake = (group: string): boolean => room.canTake(group);
    const through = (rank: Rank) => (group: string) =>
      room.canTake(group) && gate?.permits(rank, group, this.#now) === true;
    this.#canTake = canTake;
    this.#mayGo = gate === undefined ? [canTake, canTake, canTake] : [through(0), through(1), through(2)];
    this.#now = now;
    this.#drain = new DrainMeter(now);
    this.#adopt(limits);
  }

  /** Admits at once when a slot and room are free and nobody with precedence waits; else queues or refuses. */
  arrive(arrival: Arrival, now: MonoMs): Admission {
    this.#pass(now);
    const rank = RANK[arrival.class];
    if (arrival.deadline !== undefined && arrival.deadline <= this.#now) return this.#refusal("deadlineSpent", rank);
    if (this.#tickets.size > 0) {
      if (this.#tickets.has(arrival.id)) throw new Error(`admission: request ${arrival.id} waits already`);
      // After this nobody who waits can be admitted, so whoever can has precedence over no one.
      this.#settle();
    }
    if (this.#hasSlot(rank) && this.#mayGo[rank](arrival.group)) {
      this.#take(arrival.id, rank, arrival.group);
      return ADMITTED;
    }
    if (this.#holders.has(arrival.id)) throw new Error(`admission: request ${arrival.id} holds a slot already`);
    const full = makeSpace(this.#queues, this.#limits, arrival, rank, this.#displace);
    if (full !== undefined) return this.#refusal(full, rank);
    return { kind: "queued", position: this.#enqueue(arrival, rank) };
  }

  /** The slot of an admitted request is free. A second end of the same id does nothing. */
  end(id: number, now: MonoMs): void {
    this.#pass(now);
    const holder = this.#holders.get(id);
    if (holder === undefined) return;
    this.#holders.delete(id);
    this.#inUse[(holder & ~LINGERS) as Rank] -= 1;
    if (holder >= LINGERS) this.#lingering -= 1;
    this.#drain.ended();
    if (this.#tickets.size > 0) this.#settle();
  }

  /** The client is gone but the engine may work on: the slot stays held, counted as lingering, until `end`. */
  linger(id: number, now: MonoMs): void {
    this.#pass(now);
    const holder = this.#holders.get(id);
    if (holder === undefined || holder >= LINGERS) return;
    this.#holders.set(id, holder | LINGERS);
    this.#lingering += 1;
  }

  /** Leaves the queue at once; false when it does not wait. */
  cancel(id: number, now: MonoMs): boolean {
    this.#pass(now);
    const ticket = this.#tickets.get(id);
    if (ticket === undefined) return false;
    this.#leave(ticket);
    return true;
  }

  /** Below what is in use, running requests go on and nothing new starts until there are fewer; waiting ones stay. */
  setLimits(limits: PoolLimits, now: MonoMs): void {
    this.#pass(now);
    const before = this.#limits.startTimeoutMs;
    this.#adopt(limits);
    if ((before === null) !== (limits.startTimeoutMs === null)) this.#retime(before ?? limits.startTimeoutMs ?? 0);
    this.#settle();
  }

  /**
   * Which endpoints serve what has changed: each of those that wait is from now on in the group that it would have if it came now. Before
   * any other call, since `Room` goes by the groups.
   */
  regroup(groupOf: (id: number) => string): void {
    if (this.#tickets.size > 0) for (const queue of this.#queues) queue.regroup(groupOf);
  }

  /** Endpoints have, or may have, more room. */
  roomChanged(now: MonoMs): void {
    this.advance(now);
  }

  /** Expires what is due and admits what may be admitted. */
  advance(now: MonoMs): void {
    this.#pass(now);
    this.#settle();
  }

  /**
   * When `advance` has something to do next if nothing else happens: the next expiry. The accounts of the lower classes need
   * no wake-up, since they decide only who takes a slot that comes free (P2).
   */
  nextDue(): MonoMs | undefined {
    return this.#expiries.top?.expiresAt;
  }

  get waits(): boolean {
    return this.#tickets.size > 0;
  }

  /** 1 for the next of its class, as far as known; told positions of a request only fall. Undefined when it does not wait. */
  position(id: number): number | undefined {
    const ticket = this.#tickets.get(id);
    return ticket === undefined ? undefined : this.#queues[ticket.rank].position(ticket);
  }

  /** Undefined when it does not wait or nothing was measured yet. */
  estimatedWaitMs(id: number): number | undefined {
    const position = this.position(id);
    const rank = this.#tickets.get(id)?.rank;
    if (position === undefined || rank === undefined) return undefined;
    let ahead = position;
    for (let higher = 0; higher < rank; higher += 1) ahead += this.#queues[higher as Rank].waiting;
    const perSecond = this.#drainPerSecond(rank);
    return perSecond === undefined ? undefined : (ahead / perSecond) * 1_000;
  }

  /** What to ask for at the gate, by rank; only for pools that have one. */
  gateWaiting(now: MonoMs): readonly [GateWaiting, GateWaiting, GateWaiting] {
    this.#pass(now);
    const open = RANKS.map((rank) => this.#openGroups(rank));
    let free = this.#limits.slots - this.#holders.size;
    const first = RANKS.map((rank) => {
      const goes = rank > 0 && free > 0 && (open[rank]?.count ?? 0) > 0 && this.#goesFirst(rank);
      if (goes) free -= 1;
      return goes;
    });
    const of = (rank: Rank): GateWaiting => {
      const { groups, count: mayGo } = open[rank] ?? { groups: [], count: 0 };
      const owed = first[rank] === true ? 1 : 0;
      const count = owed + Math.max(0, Math.min(free, mayGo - owed));
      free -= count - owed;
      const queue = this.#queues[rank];
      const since = queue.next(this.#canTake)?.arrivedAt ?? this.#now;
      return { waiting: queue.waiting, count, groups, since, goesFirst: owed > 0 };
    };
    return [of(0), of(1), of(2)];
  }

  /** The groups of the class's waiting requests that have room, and how many of these the class's own limit lets go. */
  #openGroups(rank: Rank): { readonly groups: GateWaiting["groups"]; readonly count: number } {
    const groups: { name: string; count: number }[] = [];
    let waiting = 0;
    this.#queues[rank].eachGroup((name, count) => {
      if (!this.#canTake(name)) return;
      groups.push({ name, count });
      waiting += count;
    });
    const most = rank === BATCH ? this.#limits.batchMax - this.#inUse[BATCH] : waiting;
    return { groups, count: Math.max(0, Math.min(waiting, most)) };
  }

  #goesFirst(rank: Rank): boolean {
    return this.#accounts[rank].goesFirst(this.#inUse[rank], this.#drain.holdMs());
  }

  /** What is known of other pools behind the same gate. */
  setElsewhere(elsewhere: Elsewhere, now: MonoMs): void {
    this.#pass(now);
    this.#elsewhere = elsewhere;
    this.#shareOut();
  }

  /** To be called after every other call; the array is the caller's. */
  takeEvents(): PoolEvent[] {
    const events = this.#events;
    if (events.length === 0) return [];
    this.#events = [];
    return events;
  }

  view(): PoolView {
    const [interactive, system, batch] = this.#queues;
    return {
      slots: this.#limits.slots,
      batchMax: this.#limits.batchMax,
      inUse: byClass(this.#inUse),
      lingering: this.#lingering,
      waiting: byClass([interactive.waiting, system.waiting, batch.waiting]),
      waitingBytes: interactive.bytes + system.bytes + batch.bytes,
      drainPerSecond: this.#drainPerSecond(0) ?? null,
    };
  }

  #adopt(limits: PoolLimits): void {
    checkLimits(limits);
    this.#limits = limits;
    for (const rank of RANKS) {
      this.#queues[rank].setLimits(limits.queueMax, limits.queueBytesMax);
    }
    this.#shareOut();
  }

  #shareOut(): void {
    const { batchMinShare, slots } = this.#limits;
    for (const rank of RANKS)
      this.#accounts[rank].setShare(batchMinShare / Math.max(1, this.#elsewhere.sharers[rank]), slots);
  }

  /** Books the time since the last call. A clock that went back counts as one that stood still. */
  #pass(now: MonoMs): void {
    const ms = now - this.#now;
    if (ms <= 0) return;
    this.#now = now;
    if (this.#holders.size > 0) this.#drain.ran(this.#holders.size, ms, now);
    const [interactive, system, batch] = this.#queues;
    const { crowded } = this.#elsewhere;
    this.#accounts[1].pass(ms, system.waiting > 0, crowded[1] || interactive.waiting > 0, this.#inUse[1]);
    const higher = interactive.waiting + system.waiting > 0;
    this.#accounts[2].pass(ms, batch.waiting > 0, crowded[2] || higher, this.#inUse[2]);
  }

  /** Drops what has expired, then admits for as long as somebody can be. */
  #settle(): void {
    for (
      let ticket = this.#expiries.top;
      ticket !== undefined && ticket.expiresAt <= this.#now;
      ticket = this.#expiries.top
    ) {
      const retryAfterMs = this.#retryAfterMs(ticket.rank);
      this.#leave(ticket);
      this.#events.push({
        kind: "expired",
        id: ticket.id,
        why: ticket.expiry,
        waitedMs: this.#now - ticket.arrivedAt,
        retryAfterMs,
      });
    }
    while (this.#tickets.size > 0 && this.#holders.size < this.#limits.slots) {
      const ticket = this.#next();
      if (ticket === undefined) return;
      const rank = ticket.rank;
      this.#take(ticket.id, rank, ticket.lane?.group.name ?? "");
      this.#queues[rank].serve(ticket);
      this.#forget(ticket);
      this.#events.push({ kind: "admitted", id: ticket.id, waitedMs: this.#now - ticket.arrivedAt });
    }
  }

  #next(): Ticket | undefined {
    const holdMs = this.#drain.holdMs();
    for (const rank of LOWER_RANKS) {
      if (!this.#accounts[rank].goesFirst(this.#inUse[rank], holdMs)) continue;
      const ticket = this.#nextOf(rank);
      if (ticket !== undefined) return ticket;
    }
    for (const rank of RANKS) {
      const ticket = this.#nextOf(rank);
      if (ticket !== undefined) return ticket;
    }
    return undefined;
  }

  #nextOf(rank: Rank): Ticket | undefined {
    const queue = this.#queues[rank];
    return queue.waiting > 0 && this.#hasSlot(rank) ? queue.next(this.#mayGo[rank]) : undefined;
  }

  #hasSlot(rank: Rank): boolean {
    return this.#holders.size < this.#limits.slots && (rank !== BATCH || this.#inUse[BATCH] < this.#limits.batchMax);
  }

  /** The only place where a slot is taken (P1). */
  #take(id: number, rank: Rank, group: string): void {
    this.#room.book(id, group);
    const before = this.#holders.size;
    if (before >= this.#limits.slots)
      throw new Error(
        `admission: ${before} of ${this.#limits.slots} slots in use, yet request ${id} was to be admitted`,
      );
    if (rank === BATCH && this.#inUse[BATCH] >= this.#limits.batchMax) {
      throw new Error(
        `admission: batch holds ${this.#inUse[BATCH]} of ${this.#limits.batchMax} slots, yet request ${id} was to be admitted`,
      );
    }
    this.#holders.set(id, rank);
    if (this.#holders.size === before) throw new Error(`admission: request ${id} holds a slot already`);
    this.#inUse[rank] += 1;
  }

  #enqueue(arrival: Arrival, rank: Rank): number {
    if (!(arrival.weight > 0 && arrival.bytes >= 0)) {
      throw new RangeError(`admission: request ${arrival.id} has weight ${arrival.weight} and ${arrival.bytes} bytes`);
    }
    const { id, weight, bytes, deadline, again } = arrival;
    const ticket: Ticket = {
      at: -1,
      id,
      weight,
      bytes,
      deadline,
      arrivedAt: this.#now,
      ...this.#expiryOf(rank, deadline, Number.POSITIVE_INFINITY),
      order: again === true ? id - Number.MAX_SAFE_INTEGER : this.#order++,
      nth: 0,
      rank,
      lane: undefined,
      prev: undefined,
      next: undefined,
      told: Infinity,
    };
    const queue = this.#queues[rank];
    queue.add(ticket, arrival.key, arrival.group);
    this.#tickets.set(ticket.id, ticket);
    this.#expiries.push(ticket);
    return queue.position(ticket);
  }

  /** When one that begins to wait gives up, and of what. */
  #expiryOf(rank: Rank, deadline: MonoMs | undefined, most: number): Pick<Ticket, "expiresAt" | "expiry"> {
    const { startTimeoutMs, queueTimeoutMs } = this.#limits;
    const at = asMono(Math.min(most, this.#now + (startTimeoutMs ?? queueTimeoutMs[REQUEST_CLASSES[rank]])));
    if (deadline !== undefined && deadline <= at) return { expiresAt: deadline, expiry: "deadline" };
    return { expiresAt: at, expiry: startTimeoutMs === null ? "queueTimeout" : "startTimeout" };
  }

  /** P8. */
  #retime(startTimeoutMs: number): void {
    for (const ticket of this.#tickets.values()) {
      const { rank, deadline, arrivedAt } = ticket;
      const most = arrivedAt + startTimeoutMs + this.#limits.queueTimeoutMs[REQUEST_CLASSES[rank]];
      Object.assign(ticket, this.#expiryOf(rank, deadline, most));
      this.#expiries.update(ticket);
    }
  }

  #leave(ticket: Ticket): void {
    this.#queues[ticket.rank].remove(ticket);
    this.#forget(ticket);
  }

  #forget(ticket: Ticket): void {
    this.#tickets.delete(ticket.id);
    this.#expiries.remove(ticket);
  }

  #refusal(why: FullQueue | "deadlineSpent", rank: Rank): Admission {
    return { kind: "refused", why, retryAfterMs: this.#retryAfterMs(rank) };
  }

  /** Time in which those who wait in this class and above will have gone; without a measured rate the class's queue timeout. */
  #retryAfterMs(rank: Rank): number {
    let ahead = 1;
    for (const other of RANKS) if (other <= rank) ahead += this.#queues[other].waiting;
    const perSecond = this.#drainPerSecond(rank);
    const ms =
      perSecond === undefined ? this.#limits.queueTimeoutMs[REQUEST_CLASSES[rank]] : (ahead / perSecond) * 1_000;
    return Math.ceil(Math.min(RETRY_AFTER_MS_MAX, Math.max(RETRY_AFTER_MS_MIN, ms)));
  }

  /** While requests wait, the slots in use are those that can be had (endpoints may be away); else all of them. */
  #drainPerSecond(rank: Rank): number | undefined {
    const busy = this.#tickets.size > 0 ? this.#holders.size : this.#limits.slots;
    return this.#drain.perSecond(Math.max(1, rank === BATCH ? Math.min(busy, this.#limits.batchMax) : busy));
  }
}

const byClass = ([interactive, system, batch]: readonly [number, number, number]): Record<RequestClass, number> => ({
  interactive,
  system,
  batch,
});
