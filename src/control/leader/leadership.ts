import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import {
  type ClaimEffect,
  type ClaimEvent,
  type LeaderTerm,
  type LeaseClaim,
  type LeaseSettings,
  mayAct,
  newClaim,
  stepClaim,
  wakeAt,
} from "../../decide/leader/lease-claim.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { LeaseAnswer, LeaseRequest } from "../store/lease.ts";

/** One stretch of leading. What is done in it ends with its signal. */
export interface Term extends LeaderTerm {
  /** Agents had obeyed this epoch, and the store did not know it; null in the everyday case. */
  readonly raisedAbove: number | null;
  readonly signal: AbortSignal;
}

export interface LeaseStore {
  askLease(request: LeaseRequest): Promise<LeaseAnswer>;
  releaseLease(term: LeaderTerm): Promise<void>;
}

export interface LeadershipPorts {
  readonly store: LeaseStore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly settings: LeaseSettings;
  /** Random for each process: a name that comes back after a restart would take the old lease for its own. */
  readonly self: string;
  /** No other process can reach the store. */
  readonly alone: boolean;
  readonly onEvent: (event: NewEvent) => void;
}

export interface LeaderView {
  readonly self: string;
  readonly role: LeaseClaim["role"];
  readonly epoch: number | null;
  /** Who leads by the store's last word; null: not known. */
  readonly leader: LeaderTerm | null;
  /** For how long the store has not answered, in ms; null: it does. */
  readonly storeSilentMs: number | null;
}

/** A request of the lease that takes this part of it is given up, so that the next one has its time as well. */
const ASK_PART = 0.3;

/**
 * The claim to lead, kept up against the store until `stop`. All choices are `stepClaim`'s; this asks, waits and tells.
 * Only one thing is decided by it alone: an answer that comes after its request was given up counts for nothing.
 */
export class Leadership {
  readonly #ports: LeadershipPorts;
  readonly #listeners = new Set<() => void>();
  #claim: LeaseClaim;
  #term: { readonly term: Term; readonly end: AbortController } | null = null;
  #timer: Timer | undefined;
  #asks = 0;
  #released: Promise<void> = Promise.resolve();
  /** The last request, and what had to be given back of it. */
  #asking: Promise<void> = Promise.resolve();

  constructor(ports: LeadershipPorts) {
    this.#ports = ports;
    this.#claim = newClaim(ports.self, ports.clock.mono());
    this.#tell({ kind: "tick" });
  }

  /** The running term; null on a standby. Its epoch goes into every command and write. */
  get term(): Term | null {
    return this.#term?.term ?? null;
  }

  /** Whether an effect on the world may start at this moment. */
  mayAct(): boolean {
    return mayAct(this.#claim, this.#ports.clock.mono(), this.#ports.settings);
  }

  view(): LeaderView {
    const { self, role, epoch, leader, unreachableSince } = this.#claim;
    const storeSilentMs = unreachableSince === null ? null : this.#ports.clock.mono() - unreachableSince;
    return { self, role, epoch, leader, storeSilentMs };
  }

  /** Calls back after each change of the term. */
  onChange(listener: () => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  /** The highest term that an agent of this cluster has obeyed. */
  reported(term: LeaderTerm): void {
    this.#tell({ kind: "reported", term });
  }

  /** The store refused a write under this epoch. */
  fenced(epoch: number): void {
    this.#tell({ kind: "fenced", epoch });
  }

  /** Ends the term and hands the lease over. Never rejects. */
  async stop(): Promise<void> {
    this.#tell({ kind: "stop" });
    await this.#released;
    await this.#patiently(this.#asking);
  }

  #tell(event: ClaimEvent): void {
    const { clock, settings } = this.#ports;
    const step = stepClaim(this.#claim, event, clock.mono(), settings);
    this.#claim = step.claim;
    this.#timer?.cancel();
    const at = wakeAt(step.claim, settings);
    if (at !== null) this.#timer = clock.after(Math.max(0, at - clock.mono()), () => this.#tell({ kind: "tick" }));
    for (const effect of step.effects) this.#carryOut(effect);
  }

  #carryOut(effect: ClaimEffect): void {
    switch (effect.kind) {
      case "ask":
        return this.#ask(effect.floor);
      case "lead":
        return this.#begin(effect.epoch, effect.raisedAbove);
      case "standDown":
        return this.#end(effect.epoch, effect.why);
      case "release":
        this.#released = this.#release({ holder: this.#ports.self, epoch: effect.epoch });
        return undefined;
      default:
        return assertNever(effect, "claim effect");
    }
  }

  #ask(floor: number): void {
    const { store, clock, settings, self, alone } = this.#ports;
    const ask = ++this.#asks;
    const answer = (event: ClaimEvent): void => {
      timer.cancel();
      if (ask !== this.#asks) return;
      this.#asks += 1;
      this.#tell(event);
    };
    const wasReachable = this.#claim.unreachableSince === null;
    const fail = (why: string): void => {
      if (wasReachable && ask === this.#asks) this.#ports.log.warn("leader.storeUnreachable", { why });
      answer({ kind: "unreachable" });
    };
    const timer = clock.after(settings.leaseMs * ASK_PART, () => fail("no answer in time"));
    this.#asking = store.askLease({ holder: self, leaseMs: settings.leaseMs, floor, alone }).then(
      async (verdict) => {
        if (!wasReachable && ask === this.#asks) this.#ports.log.info("leader.storeReachable");
        answer(verdict);
        // The store gave it to one that stops: nobody else would get it before its time is over.
        if (this.#claim.role === "ended" && verdict.kind === "held")
          await this.#release({ holder: self, epoch: verdict.epoch });
      },
      (error: unknown) => fail(messageOf(error)),
    );
  }

  #begin(epoch: number, raisedAbove: number | null): void {
    const { self, log, onEvent } = this.#ports;
    this.#term?.end.abort(new Error("another term began"));
    const end = new AbortController();
    this.#term = { term: { holder: self, epoch, raisedAbove, signal: end.signal }, end };
    log.info("leader.leads", { epoch, self });
    onEvent(controlEvent("leaderChanged", `${self} leads under epoch ${epoch}`));
    if (raisedAbove !== null) {
      const why = `agents had obeyed epoch ${raisedAbove}, which the store did not know of: it may be a restored backup, or have lost its last writes`;
      log.warn("leader.epochRaised", { epoch, raised_above: raisedAbove });
      onEvent(controlEvent("epochRaised", why));
    }
    this.#changed();
  }

  #end(epoch: number, why: string): void {
    const { self, log, onEvent } = this.#ports;
    this.#term?.end.abort(new Error(`the term is over: ${why}`));
    this.#term = null;
    log.warn("leader.stoodDown", { epoch, why });
    onEvent(controlEvent("leaderStoodDown", `${self} no longer leads under epoch ${epoch}: ${why}`));
    this.#changed();
  }

  async #release(term: LeaderTerm): Promise<void> {
    const { store, log } = this.#ports;
    try {
      await this.#patiently(store.releaseLease(term));
    } catch (error) {
      log.warn("leader.notHandedOver", { why: messageOf(error) });
    }
  }

  async #patiently(work: Promise<void>): Promise<void> {
    const { clock, settings } = this.#ports;
    const end = new AbortController();
    const patience = clock.sleep(settings.leaseMs * ASK_PART, end.signal).catch(() => {});
    try {
      await Promise.race([work, patience]);
    } finally {
      end.abort();
    }
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
