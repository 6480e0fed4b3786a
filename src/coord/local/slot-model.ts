import { BATCH, RANKS, type Rank } from "../../decide/admission/ranks.ts";
import {
  BOOT_TTL_MS,
  WAITING_TTL_MS,
  type HeldLease,
  type LeaseGrant,
  type LeaseWant,
  type SlotAnswer,
  type SlotRequest,
} from "../../decide/coordination/slot-request.ts";

/**
 * What coord/redis/slots.lua does to one upstream, as a plain model: the two change together, and one suite of tests runs
 * against both. Time comes in with each request.
 */

interface Waiter {
  readonly gateway: string;
  readonly expiry: number;
  readonly ranks: readonly {
    readonly n: number;
    readonly since: number;
    readonly goesFirst: boolean;
    readonly tokens: readonly string[];
  }[];
}

interface Ahead {
  readonly n: number;
  readonly tokens: readonly string[];
  readonly batch: boolean;
}

export class SlotModel {
  #boot: { readonly nonce: string; readonly createdAt: number; expiry: number } | null = null;
  readonly #all = new Map<string, number>();
  readonly #batch = new Map<string, number>();
  readonly #at = new Map<string, Map<string, number>>();
  readonly #waiting = new Map<string, Waiter>();
  readonly #here = new Map<string, number>();

  /** Leases that have not lapsed. */
  inUse(now: number): number {
    return [...this.#all.values()].filter((expiry) => expiry > now).length;
  }

  /** Everything is gone, as after a restart without persistence. */
  empty(): void {
    this.#boot = null;
    for (const map of [this.#all, this.#batch, this.#at, this.#waiting, this.#here]) map.clear();
  }

  /** `tell` is called with each gateway for which something is free. */
  ask(request: SlotRequest, now: number, tell: (gateway: string) => void): SlotAnswer {
    if (request.notAfter > 0 && now > request.notAfter) return { kind: "late", now };
    if (this.#boot !== null && this.#boot.expiry <= now) this.#boot = null;
    const known = request.boot === "" || request.reassert || request.boot === this.#boot?.nonce;
    if (!known) return { kind: "reset", now, boot: this.#boot?.nonce ?? "" };
    this.#boot ??= { nonce: request.nonce, createdAt: request.settled ? 0 : now, expiry: 0 };
    this.#boot.expiry = now + BOOT_TTL_MS;
    if (request.renews || request.wants.length === 0) {
      for (const [gateway, expiry] of this.#here) if (expiry <= now) this.#here.delete(gateway);
      this.#here.set(request.gateway, now + request.ttlMs);
    }
    return new Step(this.#setsOf(request, now), this.#waiting, request, now).run(this.#boot, this.#here.size, tell);
  }

  #setsOf({ endpoints }: SlotRequest, now: number): LeaseSets {
    const at = endpoints.map(({ token }) => {
      const known = this.#at.get(token) ?? new Map<string, number>();
      this.#at.set(token, known);
      return known;
    });
    for (const set of [this.#all, this.#batch, ...at])
      for (const [id, expiry] of set) if (expiry <= now) set.delete(id);
    return { all: this.#all, batch: this.#batch, at };
  }
}

interface LeaseSets {
  readonly all: Map<string, number>;
  readonly batch: Map<string, number>;
  /** By place in the request's list. */
  readonly at: readonly Map<string, number>[];
}

/** One request, carried out. */
class Step {
  readonly #sets: LeaseSets;
  readonly #waiting: Map<string, Waiter>;
  readonly #request: SlotRequest;
  readonly #now: number;
  readonly #others: readonly Waiter[];

  constructor(sets: LeaseSets, waiting: Map<string, Waiter>, request: SlotRequest, now: number) {
    this.#sets = sets;
    this.#waiting = waiting;
    this.#request = request;
    this.#now = now;
    for (const [gateway, waiter] of waiting) if (waiter.expiry <= now) waiting.delete(gateway);
    this.#others = [...waiting.values()]
      .filter(({ gateway }) => gateway !== request.gateway)
      .toSorted((a, b) => (a.gateway < b.gateway ? -1 : 1));
  }

  run(
    boot: { readonly nonce: string; readonly createdAt: number },
    here: number,
    tell: (gateway: string) => void,
  ): SlotAnswer {
    const { all, batch, at } = this.#sets;
    for (const { id, endpoints } of this.#request.release) {
      all.delete(id);
      batch.delete(id);
      for (const place of endpoints) at[place]?.delete(id);
    }
    const lost = this.#request.renew.filter((lease) => !this.#renew(lease)).map(({ id }) => id);
    const granted: LeaseGrant[] = [];
    const grantedOf = [0, 0, 0];
    for (const want of this.#request.wants) {
      const endpoint = this.#grant(want);
      if (endpoint === undefined) continue;
      granted.push({ id: want.id, endpoint });
      grantedOf[want.rank] = (grantedOf[want.rank] ?? 0) + 1;
    }
    const mine = this.#wait(grantedOf);
    for (const gateway of this.#turns()) tell(gateway);
    const waitsAt = (rank: Rank): number =>
      this.#others.filter(({ ranks }) => (ranks[rank]?.n ?? 0) > 0).length + Number((mine[rank]?.n ?? 0) > 0);
    const othersWait = (rank: Rank): boolean => this.#others.some(({ ranks }) => (ranks[rank]?.n ?? 0) > 0);
    return {
      kind: "done",
      now: this.#now,
      boot: boot.nonce,
      bootAgeMs: this.#now - boot.createdAt,
      inUse: all.size,
      batchInUse: batch.size,
      endpointsInUse: at.map(({ size }) => size),
      granted,
      lost,
      crowded: [false, othersWait(0), othersWait(0) || othersWait(1)],
      waitingGateways: [waitsAt(0), waitsAt(1), waitsAt(2)],
      here,
    };
  }

  #put(id: string, isBatch: boolean, place: number): void {
    const expiry = this.#now + this.#request.ttlMs;
    this.#sets.all.set(id, expiry);
    if (isBatch) this.#sets.batch.set(id, expiry);
    else this.#sets.batch.delete(id);
    this.#sets.at[place]?.set(id, expiry);
  }

  #slotsAt(place: number): number {
    return this.#request.endpoints[place]?.slots ?? 0;
  }

  #usedAt(place: number): number {
    return this.#sets.at[place]?.size ?? 0;
  }

  /** False when it had lapsed and there is no room for it. */
  #renew({ id, batch, endpoint, movedFrom }: HeldLease): boolean {
    const { slots, batchMax, reassert } = this.#request;
    const { all, batch: batchSet, at } = this.#sets;
    at[movedFrom]?.delete(id);
    const room =
      all.size < slots && (!batch || batchSet.size < batchMax) && this.#usedAt(endpoint) < this.#slotsAt(endpoint);
    if (!reassert && !all.has(id) && !room) return false;
    this.#put(id, batch, endpoint);
    return true;
  }

  /** The endpoint's place, or undefined when it must wait. */
  #grant({ id, rank, goesFirst, endpoints }: LeaseWant): number | undefined {
    const { slots, batchMax, waiting } = this.#request;
    const before = this.#ahead(rank, this.#now - waiting[rank].ageMs, goesFirst);
    let free = slots - this.#sets.all.size;
    let batchFree = batchMax - this.#sets.batch.size;
    for (const other of before) {
      const taken = Math.min(other.n, this.#roomOn(other.tokens));
      free -= taken;
      if (other.batch) batchFree -= taken;
    }
    if (free <= 0 || (rank === BATCH && batchFree <= 0)) return undefined;
    const place = endpoints.find((candidate) => this.#freeAt(candidate, before) > 0);
    if (place !== undefined) this.#put(id, rank === BATCH, place);
    return place;
  }

  /** What is left of the endpoint for somebody behind those. */
  #freeAt(place: number, before: readonly Ahead[]): number {
    const token = this.#request.endpoints[place]?.token ?? "";
    let free = this.#slotsAt(place) - this.#usedAt(place);
    for (const { n, tokens } of before)
      if (free > 0 && tokens.includes(token)) free -= Math.max(0, n - this.#roomOn(tokens, place));
    return free;
  }

  /** Those at other gateways who go before: higher classes, older ones of the same, and one of any class whose share is due. */
  #ahead(rank: Rank, since: number, goesFirst: boolean): Ahead[] {
    const mine = this.#request.gateway;
    return this.#others.flatMap(({ gateway, ranks }) =>
      RANKS.flatMap((above) => {
        const entry = ranks[above];
        if (entry === undefined || entry.n === 0) return [];
        const older = entry.since < since || (entry.since === since && gateway < mine);
        const all = (above < rank && !goesFirst) || (above === rank && older);
        const one = entry.goesFirst && (!goesFirst || older);
        return all || one ? [{ n: all ? entry.n : 1, tokens: entry.tokens, batch: above === BATCH }] : [];
      }),
    );
  }

  /** How many of those who could go to these endpoints could go now; one not named in the request has room for anyone. */
  #roomOn(tokens: readonly string[], without = -1): number {
    let room = 0;
    for (const token of tokens) {
      const place = this.#request.endpoints.findIndex((endpoint) => endpoint.token === token);
      if (place < 0) return Number.POSITIVE_INFINITY;
      if (place !== without) room += Math.max(0, this.#slotsAt(place) - this.#usedAt(place));
    }
    return room;
  }

  #wait(grantedOf: readonly number[]): Waiter["ranks"] {
    const { gateway, waiting, endpoints } = this.#request;
    const ranks = RANKS.map((rank) => {
      const n = Math.max(0, waiting[rank].count - (grantedOf[rank] ?? 0));
      return {
        n,
        since: this.#now - waiting[rank].ageMs,
        goesFirst: waiting[rank].goesFirst && n > 0,
        tokens: waiting[rank].endpoints.map((place) => endpoints[place]?.token ?? ""),
      };
    });
    if (ranks.some(({ n }) => n > 0))
      this.#waiting.set(gateway, { gateway, expiry: this.#now + WAITING_TTL_MS, ranks });
    else this.#waiting.delete(gateway);
    return ranks;
  }

  /** Whose turn it is elsewhere, if anything is free: those whose share is due, then by class, then by age. */
  #turns(): ReadonlySet<string> {
    const { slots, batchMax } = this.#request;
    let free = slots - this.#sets.all.size;
    const turns = this.#others
      .flatMap(({ gateway, ranks }) =>
        ranks.flatMap(({ n, since, goesFirst, tokens }, at) => {
          if (n === 0 || this.#roomOn(tokens) <= 0 || (at === BATCH && this.#sets.batch.size >= batchMax)) return [];
          const turn = { gateway, n, since, rank: at + 1 };
          return goesFirst ? [{ ...turn, n: 1, rank: 0 }, turn] : [turn];
        }),
      )
      .toSorted((a, b) => a.rank - b.rank || a.since - b.since || (a.gateway < b.gateway ? -1 : 1));
    const told = new Set<string>();
    for (const { gateway, n } of turns) {
      if (free <= 0) break;
      told.add(gateway);
      free -= n;
    }
    return told;
  }
}
