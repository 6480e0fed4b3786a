import { AdmissionPool, type Arrival, type PoolEvent, type Room } from "../decide/admission/admission-pool.ts";
import type { PoolLimits } from "../decide/admission/pool-limits.ts";
import { asMono, type MonoMs } from "../kernel/clock.ts";

export const someLimits = (over: Partial<PoolLimits> = {}): PoolLimits => ({
  slots: 2,
  batchMax: 1,
  batchMinShare: 0,
  queueMax: 100,
  queueBytesMax: 1_000_000,
  queueTimeoutMs: { interactive: 30_000, system: 30_000, batch: 900_000 },
  startTimeoutMs: null,
  ...over,
});

export const anArrival = (id: number, over: Partial<Arrival> = {}): Arrival => ({
  id,
  class: "interactive",
  key: "k",
  weight: 1,
  bytes: 10,
  group: "",
  deadline: undefined,
  ...over,
});

export const openRoom: Room = { canTake: () => true, book: () => undefined };

/**
 * Endpoints with slots of their own. Endpoint `i` serves the groups "" and "m<i>". Books on the first that fits, so that
 * two of them that are told the same stay the same.
 */
export class EndpointRoom implements Room {
  readonly capacity: number[];
  readonly #used: number[];
  readonly #at = new Map<number, number>();

  constructor(capacity: readonly number[]) {
    this.capacity = [...capacity];
    this.#used = capacity.map(() => 0);
  }

  canTake(group: string): boolean {
    return this.#pick(group) >= 0;
  }

  book(id: number, group: string): void {
    const endpoint = this.#pick(group);
    if (endpoint < 0) throw new Error(`no endpoint has room for ${id} (${group})`);
    this.#used[endpoint] = (this.#used[endpoint] ?? 0) + 1;
    this.#at.set(id, endpoint);
  }

  release(id: number): void {
    const endpoint = this.#at.get(id);
    if (endpoint === undefined) return;
    this.#at.delete(id);
    this.#used[endpoint] = (this.#used[endpoint] ?? 0) - 1;
  }

  #pick(group: string): number {
    return this.capacity.findIndex(
      (capacity, index) => (this.#used[index] ?? 0) < capacity && (group === "" || group === `m${index}`),
    );
  }
}

/** What the simulation calls back for. */
export interface SimulatedClient {
  /** The request holds a slot; the answer is the time it will hold it. */
  onAdmitted(id: number, waitedMs: number): number;
  onEnded?(id: number): void;
  onGone?(
    event: Exclude<PoolEvent, { kind: "admitted" }> | { kind: "refused"; id: number; retryAfterMs: number },
  ): void;
}

/** A pool on a virtual time: requests hold their slots for a time, wake-ups come as `nextDue` says. */
export class PoolSimulation {
  readonly pool: AdmissionPool;
  now: MonoMs = asMono(0);
  #id = 0;
  /** Things to come, sorted by time; few at a time, so a list will do. */
  readonly #agenda: { readonly at: number; readonly order: number; readonly act: () => void }[] = [];
  #order = 0;
  readonly #clients = new Map<number, { readonly client: SimulatedClient; readonly arrival: Arrival }>();
  readonly heldMs = { interactive: 0, system: 0, batch: 0 };

  constructor(limits: PoolLimits, room: Room = openRoom) {
    this.pool = new AdmissionPool(limits, room, this.now);
  }

  /** Does something in `ms`. */
  in(ms: number, act: () => void): void {
    const entry = { at: this.now + ms, order: this.#order++, act };
    let index = this.#agenda.length;
    while (index > 0 && (this.#agenda[index - 1]?.at ?? 0) > entry.at) index -= 1;
    this.#agenda.splice(index, 0, entry);
  }

  send(over: Partial<Arrival>, client: SimulatedClient): number {
    const arrival = anArrival(++this.#id, over);
    this.#clients.set(arrival.id, { client, arrival });
    const answer = this.pool.arrive(arrival, this.now);
    if (answer.kind === "admitted") this.#start(arrival.id, 0);
    if (answer.kind === "refused") this.#gone({ kind: "refused", id: arrival.id, retryAfterMs: answer.retryAfterMs });
    this.#handle();
    return arrival.id;
  }

  run(ms: number): void {
    const end = this.now + ms;
    for (;;) {
      const next = this.#agenda[0]?.at ?? Infinity;
      const due = this.pool.nextDue() ?? Infinity;
      const at = Math.min(next, due);
      if (at > end) break;
      this.#moveTo(at);
      if (next <= due) this.#agenda.shift()?.act();
      else this.pool.advance(this.now);
      this.#handle();
    }
    this.#moveTo(end);
  }

  #moveTo(at: number): void {
    const ms = Math.max(0, at - this.now);
    const { inUse } = this.pool.view();
    for (const name of ["interactive", "system", "batch"] as const) this.heldMs[name] += inUse[name] * ms;
    this.now = asMono(this.now + ms);
  }

  #handle(): void {
    for (let events = this.pool.takeEvents(); events.length > 0; events = this.pool.takeEvents()) {
      for (const event of events) {
        if (event.kind === "admitted") this.#start(event.id, event.waitedMs);
        else this.#gone(event);
      }
    }
  }

  #start(id: number, waitedMs: number): void {
    const entry = this.#clients.get(id);
    if (entry === undefined) throw new Error(`request ${id} was admitted twice, or never sent`);
    this.#clients.delete(id);
    this.in(entry.client.onAdmitted(id, waitedMs), () => {
      this.pool.end(id, this.now);
      entry.client.onEnded?.(id);
    });
  }

  #gone(event: Exclude<PoolEvent, { kind: "admitted" }> | { kind: "refused"; id: number; retryAfterMs: number }): void {
    const entry = this.#clients.get(event.id);
    this.#clients.delete(event.id);
    entry?.client.onGone?.(event);
  }
}

/** A pool whose time begins at 0. */
export const aPool = (limits: Partial<PoolLimits> = {}, room: Room = openRoom): AdmissionPool =>
  new AdmissionPool(someLimits(limits), room, asMono(0));

/** Sends requests 1, 2, … at time 0 and gives the answers' kinds. */
export const sendAll = (pool: AdmissionPool, overs: readonly Partial<Arrival>[], firstId = 1): string[] =>
  overs.map((over, index) => pool.arrive(anArrival(firstId + index, over), asMono(0)).kind);
