import type { AdmissionPool } from "../decide/admission/admission-pool.ts";
import { ALONE, type Elsewhere, type Gate } from "../decide/admission/gate.ts";
import type { Rank } from "../decide/admission/ranks.ts";
import type { BookEffects, BookEndpoint, BookFrame, BookLimits, BookView } from "../decide/coordination/book-view.ts";
import { LeaseBook } from "../decide/coordination/lease-book.ts";
import { STEP_MS_MIN } from "../decide/coordination/step-budget.ts";
import { asMono, type Clock, type MonoMs, type Timer } from "../kernel/clock.ts";
import type { Logger } from "../kernel/log.ts";
import type { Random } from "../kernel/random.ts";
import type { SlotStore } from "./slot-store.ts";
import type { StoreWatch } from "./store-watch.ts";

/** The upstream as the sharer sees it. */
export interface SharedUpstream {
  readonly id: string;
  readonly pool: AdmissionPool;
  limits(): BookLimits;
  /** Endpoints that could take a request of the group now, by what is known here. */
  usable(group: string): readonly BookEndpoint[];
  /** 0 for an endpoint that is no longer configured. */
  slotsOf(endpoint: string): number;
  /** For each of the first `count` of the class that wait for the group the endpoints that can take it, the best first. */
  plan(group: string, count: number, rank: Rank): readonly (readonly string[])[];
  /** Somebody who waits may go now: lets the pool admit, and hands out what it decided. */
  admit(): void;
}

export interface SharerPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly store: SlotStore;
  readonly watch: StoreWatch;
  /** Does something a moment later, when what came in together has been seen. */
  readonly defer: (callback: () => void) => void;
  readonly onLost: (upstream: string, leases: number) => void;
}

/** A waiter that was told no asks again within this time, if nobody told it that something is free. */
const POLL_MS = 1_000;
/** From a failed step to the first try to come back to the store, doubled with each that fails; nobody waits for these. */
const REJOIN_MS_MIN = 60;
const REJOIN_MS_MAX = 1_000;
/** While other gateways use the upstream, what they hold is asked for this often: the share without them is reckoned from it. */
const LOOK_MS = 1_000;
/** While the store is away the share grows and shrinks by itself. */
const RAMP_LOOK_MS = 50;

/**
 * Lets one upstream's pool share its slots with other gateways: asks the store for leases when somebody waits, gives them
 * back when calls end, and goes on by its own share while the store is away.
 *
 * Invariants:
 *   S1. One step at a time is under way; what comes up meanwhile goes with the next.
 *   S2. Nobody waits for an answer that does not come: a step that fails lets the pool go on by its share at once.
 *       Nor for one that takes longer than somebody has who waits (`hurry`).
 *   S3. While somebody waits, the store is asked at least every POLL_MS, whether or not a message came.
 */
export class SlotSharer implements Gate {
  readonly book: LeaseBook;
  readonly #upstream: SharedUpstream;
  readonly #ports: SharerPorts;
  readonly #subscriptions: readonly Disposable[];
  #planned = false;
  #timer: Timer | undefined;
  #renewAt: MonoMs;
  #pollAt: MonoMs;
  #rejoinAt: MonoMs;
  #rejoinMs = REJOIN_MS_MIN;
  #elsewhere: Elsewhere = ALONE;
  #closed = false;
  #askedAt: MonoMs;
  #hurry: { readonly at: MonoMs; readonly timer: Timer } | null = null;

  constructor(upstream: SharedUpstream, ttlMs: number, ports: SharerPorts) {
    this.#upstream = upstream;
    this.#ports = ports;
    const now = ports.clock.mono();
    this.book = new LeaseBook({ gateway: ports.watch.gateway, ttlMs });
    this.#renewAt = this.#pollAt = this.#rejoinAt = this.#askedAt = now;
    this.#subscriptions = [
      ports.watch.onChange((change) => this.#onStore(change)),
      ports.store.onFree(upstream.id, ports.watch.gateway, () => {
        this.book.retryDenied();
        this.#pump();
      }),
    ];
    this.changed();
  }

  // What the upstream asks and tells

  permits(rank: Rank, group: string, now: MonoMs): boolean {
    return this.book.permits(rank, this.#upstream.usable(group), this.#upstream.limits(), now);
  }

  mayBook(rank: Rank, endpoint: BookEndpoint): boolean {
    return this.book.mayBook(rank, endpoint, this.#ports.clock.mono());
  }

  took(call: number, rank: Rank, endpoint: string): void {
    this.book.take(call, rank, endpoint, this.#ports.clock.mono());
    this.changed();
  }

  moved(call: number, endpoint: string): void {
    this.book.move(call, endpoint);
    this.changed();
  }

  ended(call: number): void {
    this.book.end(call, this.#ports.clock.mono());
    this.changed();
  }

  /** Somebody came to wait, left, or there is something to tell. */
  changed(): void {
    if (this.#planned || this.#closed) return;
    this.#planned = true;
    this.#ports.defer(() => {
      this.#planned = false;
      this.#pump();
    });
  }

  /** Somebody who waits has spent most of their time for stores elsewhere: the step under way has `ms` left, or a little. */
  hurry(ms: number): void {
    if (this.#closed || this.book.mode === "open") return;
    const { clock, defer } = this.#ports;
    const at = asMono(clock.mono() + Math.max(ms, STEP_MS_MIN));
    if (this.#hurry !== null && this.#hurry.at <= at) return;
    this.#hurry?.timer.cancel();
    // Judged after the sockets were read, so that a gateway that was busy itself does not blame the store.
    this.#hurry = { at, timer: clock.after(at - clock.mono(), () => defer(() => this.#onHurry())) };
  }

  /** Endpoints or limits are others now, so who was told no may be told yes. */
  roomChanged(): void {
    this.book.retryDenied();
    this.changed();
  }

  /** Gives back what is left, without waiting for an answer. */
  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#hurry?.timer.cancel();
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    const now = this.#ports.clock.mono();
    this.book.endAll(now);
    const request = this.book.compose(this.#view(now), now);
    if (request !== null) void this.#ports.store.ask(this.#upstream.id, request, true);
  }

  // Inside

  #frame(): BookFrame {
    return { limits: this.#upstream.limits(), store: this.#ports.watch.view() };
  }

  /** Goes through the queue: for requests alone. */
  #view(now: MonoMs): BookView {
    const upstream = this.#upstream;
    return {
      ...this.#frame(),
      waiting: upstream.pool.gateWaiting(now),
      slotsOf: (endpoint) => upstream.slotsOf(endpoint),
      plan: (group, count, rank) => upstream.plan(group, count, rank),
    };
  }

  #onStore(change: "up" | "down" | "reconnected"): void {
    const now = this.#ports.clock.mono();
    // Not all gateways at once, which come back at the same moment.
    if (change === "up") this.#rejoinAt = asMono(now + this.#ports.random.next() * 50);
    if (change === "reconnected") this.book.renew();
    this.#pump();
  }

  #pump(): void {
    if (this.#closed || this.book.asking) return;
    const now = this.#ports.clock.mono();
    const frame = this.#frame();
    const { up } = frame.store;
    if (!up && this.book.mode !== "open") this.#apply(this.book.fail(this.#ports.watch.reason, frame, now), now);
    if (now >= this.#renewAt) {
      this.book.renew();
      const everyMs = Math.min(
        this.book.settings.ttlMs / 3,
        (this.book.others ?? 0) > 0 ? LOOK_MS : Number.POSITIVE_INFINITY,
      );
      this.#renewAt = this.#soon(now, everyMs);
    }
    if (this.book.mode === "open" && now >= this.#rejoinAt && (up || this.book.unreleased > 0)) {
      this.book.renew();
      this.#rejoinAt = this.#soon(now, REJOIN_MS_MAX);
    }
    const request = this.book.compose(this.#view(now), now);
    if (request !== null) void this.#ask(request, !up);
    this.#arm(now);
  }

  #onHurry(): void {
    this.#hurry = null;
    if (this.#closed || this.book.mode === "open" || !this.book.asking) return;
    const now = this.#ports.clock.mono();
    const underWayMs = now - this.#askedAt;
    if (underWayMs < STEP_MS_MIN) return this.hurry(0);
    this.#rejoinAt = this.#soon(now, this.#rejoinMs);
    this.#apply(this.book.fail(`no answer within ${Math.round(underWayMs)} ms`, this.#frame(), now), now);
    this.#arm(now);
  }

  async #ask(request: Parameters<SlotStore["ask"]>[1], evenIfAway: boolean): Promise<void> {
    this.#askedAt = this.#ports.clock.mono();
    const answer = await this.#ports.store.ask(this.#upstream.id, request, evenIfAway);
    if (this.#closed) return;
    const now = this.#ports.clock.mono();
    const frame = this.#frame();
    this.#pollAt = this.#soon(now, POLL_MS);
    if (answer.kind === "failed" || answer.kind === "unknown") {
      this.#rejoinAt = this.#soon(now, this.#rejoinMs);
      this.#rejoinMs = Math.min(REJOIN_MS_MAX, this.#rejoinMs * 2);
      this.#apply(this.book.unanswered(answer.reason, frame, now), now);
      this.#arm(now);
      return;
    }
    this.#rejoinMs = REJOIN_MS_MIN;
    this.#apply(this.book.answered(answer, frame, now), now);
    this.#pump();
  }

  #apply(effects: BookEffects, now: MonoMs): void {
    const { elsewhere, lost } = effects;
    if (lost > 0) {
      this.#ports.log.warn("coordination.leases_lost", { upstream: this.#upstream.id, leases: lost });
      this.#ports.onLost(this.#upstream.id, lost);
    }
    if (elsewhere !== null && !sameAs(elsewhere, this.#elsewhere)) {
      this.#elsewhere = elsewhere;
      this.#upstream.pool.setElsewhere(elsewhere, now);
    }
    if (effects.mayAdmit) this.#upstream.admit();
    if (this.book.mode === "shared") this.book.returnHand(now);
  }

  /** At most so long from now, and not in step with the other gateways. */
  #soon(now: MonoMs, ms: number): MonoMs {
    return asMono(now + ms * (0.75 + this.#ports.random.next() / 4));
  }

  /** One timer for what comes next by itself. */
  #arm(now: MonoMs): void {
    this.#timer?.cancel();
    if (this.#closed) return;
    const open = this.book.mode === "open";
    const waits = this.#upstream.pool.waits;
    let at: number = this.#renewAt;
    if (open) at = Math.min(at, this.#ports.watch.view().up || this.book.unreleased > 0 ? this.#rejoinAt : at);
    if (waits) at = Math.min(at, open ? now + RAMP_LOOK_MS : this.#pollAt);
    this.#timer = this.#ports.clock.after(Math.max(1, at - now), () => this.#onTime());
  }

  #onTime(): void {
    const now = this.#ports.clock.mono();
    if (this.book.mode === "open") this.#upstream.admit();
    else if (now >= this.#pollAt) {
      this.book.retryDenied();
      this.#pollAt = this.#soon(now, POLL_MS);
    }
    this.#pump();
  }
}

const sameAs = (a: Elsewhere, b: Elsewhere): boolean =>
  a.crowded.every((flag, rank) => flag === b.crowded[rank]) &&
  a.sharers.every((count, rank) => count === b.sharers[rank]);
