import { LocalSlots } from "../coord/local/local-slots.ts";
import { SlotSharer, type SharedUpstream } from "../coord/slot-sharer.ts";
import type { SlotStore, StoreFailure } from "../coord/slot-store.ts";
import type { StoreWatch } from "../coord/store-watch.ts";
import type { RequestClass } from "../contract/request-class.ts";
import { AdmissionPool, type Room } from "../decide/admission/admission-pool.ts";
import { RANK } from "../decide/admission/ranks.ts";
import type { BookEndpoint } from "../decide/coordination/book-view.ts";
import { GatewayCount } from "../decide/coordination/gateway-count.ts";
import { LinkBreaker, PROBE_MS } from "../decide/coordination/link-breaker.ts";
import type { SlotAnswer, SlotRequest } from "../decide/coordination/slot-request.ts";
import { asMono, type Clock } from "../kernel/clock.ts";
import { silentLogger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import { anArrival, someLimits } from "./admission.ts";
import { FreezableClock } from "./freezable-clock.ts";
import type { VirtualClock } from "./virtual-clock.ts";

// Several gateways that share the slots of one upstream, on a virtual clock: real pools and sharers, a store in memory behind
// links that can be hurt, and an engine that counts what truly runs.

const STEP_MS = 100;

/** What the store does to whoever asks. */
export type StoreState =
  | "well"
  /** Answers nothing; does what it was asked when it is well again. */
  | "frozen"
  /** Does what it is asked, and its answers get lost. */
  | "mute"
  | "dead";

/** The store that all gateways see, and its condition. */
export class SimulatedStore {
  readonly slots: LocalSlots;
  state: StoreState = "well";
  nonce = "store-0";
  bornAt: number;
  readonly #present = new Map<string, number>();
  #late: (() => void)[] = [];
  #births = 0;

  constructor(clock: VirtualClock) {
    this.slots = new LocalSlots(clock);
    this.bornAt = this.slots.now() - 3_600_000;
  }

  /** Commands that it took in while frozen come first. */
  become(state: StoreState): void {
    this.state = state;
    if (state === "dead") this.#late = [];
    if (state !== "well" && state !== "mute") return;
    for (const act of this.#late.splice(0)) act();
  }

  /** A restart without persistence. */
  restartEmpty(upstream: string): void {
    this.become("dead");
    this.slots.modelOf(upstream).empty();
    this.#present.clear();
    this.nonce = `store-${(this.#births += 1)}`;
    this.bornAt = this.slots.now();
    this.become("well");
  }

  later(act: () => void): void {
    this.#late.push(act);
  }

  hello(gateway: string): { readonly nonce: string; readonly ageMs: number; readonly gateways: number } {
    const now = this.slots.now();
    this.#present.set(gateway, now + 7_000);
    for (const [name, until] of this.#present) if (until <= now) this.#present.delete(name);
    return { nonce: this.nonce, ageMs: now - this.bornAt, gateways: this.#present.size };
  }
}

/** One gateway's way to the store: its deadline, its breaker and its hellos. */
export class SimulatedLink implements SlotStore, StoreWatch {
  readonly gateway: string;
  readonly #store: SimulatedStore;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #breaker: LinkBreaker;
  readonly #count: GatewayCount;
  readonly #listeners = new Set<(change: "up" | "down" | "reconnected") => void>();
  asked = 0;
  gone = false;

  constructor(gateway: string, store: SimulatedStore, ttlMs: number, clock: Clock, random: Random) {
    this.gateway = gateway;
    this.#store = store;
    this.#clock = clock;
    this.#random = random;
    this.#breaker = new LinkBreaker(clock.mono());
    this.#count = new GatewayCount(ttlMs);
    this.#hello();
  }

  get reason(): string {
    return this.#breaker.reason;
  }

  view(): ReturnType<StoreWatch["view"]> {
    const now = this.#clock.mono();
    return {
      up: this.#breaker.state === "closed",
      stepMs: STEP_MS,
      gateways: this.#count.gateways(now),
      settled: this.#count.settled,
    };
  }

  onChange(listener: (change: "up" | "down" | "reconnected") => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  onFree(upstream: string, gateway: string, listener: () => void): Disposable {
    return this.#store.slots.onFree(upstream, gateway, () => this.#clock.after(0.2, listener));
  }

  async ask(upstream: string, request: SlotRequest, evenIfAway: boolean): Promise<SlotAnswer | StoreFailure> {
    if (this.#breaker.state !== "closed" && !evenIfAway) return { kind: "failed", reason: "breakerOpen" };
    this.asked += 1;
    const never = new AbortController().signal;
    const { state } = this.#store;
    if (state === "dead") {
      await this.#clock.sleep(0.1, never);
      return this.#failed({ kind: "unknown", reason: "lost" }, 0.1);
    }
    await this.#clock.sleep(0.1 + this.#random.next(), never);
    if (state === "well" && this.#store.state === "well") {
      const answer = await this.#store.slots.ask(upstream, request);
      await this.#clock.sleep(0.1 + this.#random.next(), never);
      return answer;
    }
    if (state === "mute") await this.#store.slots.ask(upstream, request);
    else this.#store.later(() => void this.#store.slots.ask(upstream, request));
    await this.#clock.sleep(STEP_MS - 2, never);
    return this.#failed({ kind: "unknown", reason: "timeout" }, STEP_MS);
  }

  /** The connection was cut and is there again. */
  reconnect(): void {
    this.#count.reconnected();
    if (this.#breaker.state !== "closed") return;
    this.#hello();
    this.#tell("reconnected");
  }

  #failed(failure: StoreFailure, spentMs: number): StoreFailure {
    if (this.#breaker.failed(failure.reason, spentMs, this.#random.next(), this.#clock.mono())) {
      this.#tell("down");
      this.#probeLater();
    }
    return failure;
  }

  #probeLater(): void {
    const at = this.#breaker.probeAt ?? asMono(this.#clock.mono() + PROBE_MS);
    this.#clock.after(at - this.#clock.mono(), () => {
      if (this.gone || !this.#breaker.beginProbe(this.#clock.mono())) return;
      const works = this.#store.state === "well";
      this.#breaker.endProbe(works ? undefined : "no answer", this.#random.next(), this.#clock.mono());
      if (!works) return this.#probeLater();
      this.#count.reconnected();
      this.#hello();
      this.#tell("up");
    });
  }

  #hello(): void {
    if (this.gone) return;
    if (this.#store.state === "well") this.#count.heard(this.#store.hello(this.gateway), undefined, this.#clock.mono());
    this.#clock.after(2_000, () => this.#hello());
  }

  #tell(change: "up" | "down" | "reconnected"): void {
    for (const listener of this.#listeners) listener(change);
  }
}

/** What truly runs, by endpoint. */
export class SimulatedEngine {
  readonly running = new Map<string, Set<string>>();
  readonly batch = new Set<string>();

  get total(): number {
    let total = 0;
    for (const calls of this.running.values()) total += calls.size;
    return total;
  }

  begin(call: string, endpoint: string, isBatch: boolean): void {
    const calls = this.running.get(endpoint) ?? new Set();
    this.running.set(endpoint, calls);
    calls.add(call);
    if (isBatch) this.batch.add(call);
  }

  end(call: string): void {
    for (const calls of this.running.values()) calls.delete(call);
    this.batch.delete(call);
  }
}

export interface SimulatedGatewayOptions {
  readonly name: string;
  readonly clock: VirtualClock;
  readonly random: Random;
  readonly store: SimulatedStore;
  readonly engine: SimulatedEngine;
  readonly ttlMs: number;
  readonly slots: number;
  readonly batchMax: number;
  readonly batchMinShare?: number;
  readonly endpoints: readonly BookEndpoint[];
  readonly onAdmitted?: (of: {
    readonly class: RequestClass;
    readonly waitedMs: number;
    readonly gateway: string;
  }) => void;
}

interface SimulatedCall {
  readonly id: number;
  readonly class: RequestClass;
  readonly holdMs: number;
  endpoint: string;
}

/** A gateway's pool and sharer, and the calls that go through it. */
export class SimulatedGateway implements Room, SharedUpstream {
  readonly id = "u";
  readonly name: string;
  readonly pool: AdmissionPool;
  readonly sharer: SlotSharer;
  readonly link: SimulatedLink;
  readonly clock: FreezableClock;
  readonly #options: SimulatedGatewayOptions;
  readonly #calls = new Map<number, SimulatedCall>();
  readonly #held = new Map<string, number>();
  #ids = 0;
  #dead = false;

  constructor(options: SimulatedGatewayOptions) {
    this.#options = options;
    this.name = options.name;
    this.clock = new FreezableClock(options.clock);
    this.link = new SimulatedLink(options.name, options.store, options.ttlMs, this.clock, options.random);
    const { slots, batchMax, batchMinShare = 0 } = options;
    const limits = someLimits({ slots, batchMax, batchMinShare, queueMax: 10_000 });
    this.pool = new AdmissionPool(limits, this, this.clock.mono(), {
      permits: (rank, group, now) => this.sharer.permits(rank, group, now),
    });
    this.sharer = new SlotSharer(this, options.ttlMs, {
      clock: this.clock,
      random: options.random,
      log: silentLogger,
      store: this.link,
      watch: this.link,
      defer: (callback) => queueMicrotask(callback),
      onLost: () => {},
    });
  }

  get waiting(): number {
    const { interactive, system, batch } = this.pool.view().waiting;
    return interactive + system + batch;
  }

  send(requestClass: RequestClass, holdMs: number): void {
    if (this.#dead) return;
    const id = (this.#ids += 1);
    this.#calls.set(id, { id, class: requestClass, holdMs, endpoint: "" });
    const admission = this.pool.arrive(anArrival(id, { class: requestClass }), this.clock.mono());
    if (admission.kind === "refused") this.#calls.delete(id);
    if (admission.kind === "admitted") this.#begin(id, 0);
    this.#handOut();
    this.sharer.changed();
  }

  /** The process is gone, and with it its calls and everything that it would still have done. */
  kill(): void {
    this.#dead = true;
    this.link.gone = true;
    this.clock.freeze();
    for (const { id } of this.#calls.values()) this.#options.engine.end(this.#nameOf(id));
    this.#calls.clear();
  }

  limits(): { readonly slots: number; readonly batchMax: number } {
    return this.#options;
  }

  usable(): readonly BookEndpoint[] {
    return this.#options.endpoints.filter(({ token, slots }) => (this.#held.get(token) ?? 0) < slots);
  }

  slotsOf(endpoint: string): number {
    return this.#options.endpoints.find(({ token }) => token === endpoint)?.slots ?? 0;
  }

  plan(_group: string, count: number): readonly (readonly string[])[] {
    const tokens = this.usable().map(({ token }) => token);
    return Array.from({ length: count }, (_, i) => [
      ...tokens.slice(i % tokens.length),
      ...tokens.slice(0, i % tokens.length),
    ]);
  }

  admit(): void {
    this.pool.advance(this.clock.mono());
    this.#handOut();
  }

  canTake(): boolean {
    return this.usable().length > 0;
  }

  book(id: number): void {
    const call = this.#calls.get(id);
    if (call === undefined) throw new Error(`nobody asked for ${id}`);
    const rank = RANK[call.class];
    const endpoint = this.usable().find((candidate) => this.sharer.mayBook(rank, candidate));
    if (endpoint === undefined) throw new Error(`admitted ${id} without an endpoint`);
    call.endpoint = endpoint.token;
    this.#held.set(endpoint.token, (this.#held.get(endpoint.token) ?? 0) + 1);
    this.sharer.took(id, rank, endpoint.token);
    this.#options.engine.begin(this.#nameOf(id), endpoint.token, call.class === "batch");
  }

  #begin(id: number, waitedMs: number): void {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    this.#options.onAdmitted?.({ class: call.class, waitedMs, gateway: this.name });
    // The engine's time goes on though a gateway is frozen; only the end is seen late.
    this.#options.clock.after(call.holdMs, () => {
      if (this.#dead) return;
      this.#options.engine.end(this.#nameOf(id));
      this.clock.after(0, () => this.#end(id));
    });
  }

  #end(id: number): void {
    const call = this.#calls.get(id);
    if (call === undefined || this.#dead) return;
    this.#calls.delete(id);
    this.#held.set(call.endpoint, (this.#held.get(call.endpoint) ?? 0) - 1);
    this.sharer.ended(id);
    this.pool.end(id, this.clock.mono());
    this.#handOut();
  }

  #handOut(): void {
    for (const event of this.pool.takeEvents()) {
      if (event.kind === "admitted") this.#begin(event.id, event.waitedMs);
      else this.#calls.delete(event.id);
    }
  }

  #nameOf(id: number): string {
    return `${this.name}/${id}`;
  }
}
