import type { OverflowPolicy, Tier } from "../../contract/overflow-settings.ts";
import type { ProviderSettings } from "../../contract/provider-settings.ts";
import type { Ledger } from "../../coord/overflow/ledger.ts";
import { judgeCard, judgeTier, type OverflowView, type TierVerdict } from "../../decide/overflow/decide-overflow.ts";
import type { SignalReading } from "../../decide/overflow/judge-signal.ts";
import { massFailure } from "../../decide/overflow/mass-failure.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import type { Provider } from "./providers/provider.ts";
import { placeOf } from "./providers/make-provider.ts";
import { SignalReader } from "./signal-reader.ts";
import { TierState } from "./tier-state.ts";

export interface OverflowDeskDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly client: UpstreamClient;
  readonly registry: UpstreamRegistry;
  readonly ledger: () => Ledger | null;
  readonly makeProvider: (settings: ProviderSettings) => Provider;
  readonly utilization: (gpu: string) => number | null;
  /** Jobs that wait for the upstream in their store; null: it can't be asked. */
  readonly jobsWaiting: (upstream: Upstream) => Promise<number | null>;
  /** Whether the key that asks may send its data out of the house, now. */
  readonly allowsExternal: (keyId: string) => boolean;
  /** A control plane is followed, and none is heard. */
  readonly controlAway: () => boolean;
}

export interface Look {
  readonly at: number;
  readonly readings: readonly SignalReading[];
  readonly view: OverflowView;
}

/** Who wants something sent, and what it may cost. */
export interface TierQuestion {
  /** Null: one whose data may leave the house. */
  readonly keyId: string | null;
  /** As the key was when the work was accepted. */
  readonly allowedThen: boolean;
  /** Null: nobody can say. */
  readonly priceMicros: number | null;
}

/** What jobs may be claimed for an upstream besides those that it has slots for. */
export interface OverflowRoom {
  /** So many could go to tiers. */
  readonly spare: number;
  /** Its card is busy and no tier may take anything: its jobs are left where they are, but for one now and then. */
  readonly held: boolean;
}

/**
 * Knows which upstreams may overflow to which tiers, how their cards are, and what each tier lacks. Spends nothing and sends nothing.
 *
 * Invariants:
 *   D1. A reload changes the rules at once and disturbs no errand: a tier's state outlives it while something is there.
 *   D2. What is told of room is the last look's; it costs nothing to ask.
 */
export class OverflowDesk {
  readonly #deps: OverflowDeskDeps;
  #policies = new Map<string, OverflowPolicy>();
  readonly #tiers = new Map<string, TierState>();
  /** Of tiers that a reload has moved while something was there: it goes on at the place that it was given to. */
  #moved: TierState[] = [];
  readonly #readers = new Map<string, SignalReader>();
  readonly #rooms = new Map<string, OverflowRoom>();
  readonly #last = new Map<string, Look>();

  constructor(deps: OverflowDeskDeps) {
    this.#deps = deps;
  }

  apply(policies: readonly OverflowPolicy[]): void {
    this.#policies = new Map(policies.map((policy) => [policy.upstream, policy]));
    const wanted = new Map(policies.flatMap(({ tiers }) => tiers.map((tier) => [tier.id, tier] as const)));
    for (const [id, state] of this.#tiers) if (!wanted.has(id) && state.inFlight === 0) this.#tiers.delete(id);
    for (const [id, tier] of wanted) {
      const provider = this.#deps.makeProvider(tier.provider);
      const known = this.#stateAt(tier);
      if (known === undefined) this.#tiers.set(id, new TierState(tier, provider, this.#deps.clock));
      else Object.assign(known, { tier, provider });
    }
    for (const id of this.#readers.keys()) if (!this.#policies.has(id)) this.#readers.delete(id);
    for (const id of this.#last.keys()) if (!this.#policies.has(id)) this.#last.delete(id);
    this.#rooms.clear();
  }

  /** The state that the tier has at its place. One of another place makes way, and is kept for what is there. */
  #stateAt({ id, provider }: Tier): TierState | undefined {
    const place = placeOf(provider);
    const now = this.#tiers.get(id);
    if (now === undefined || now.place === place) return now;
    const before = this.#moved.find((state) => state.tier.id === id && state.place === place);
    this.#moved = [...this.#moved, now].filter((state) => state !== before && state.inFlight > 0);
    if (before === undefined) this.#tiers.delete(id);
    else this.#tiers.set(id, before);
    return before;
  }

  get policies(): readonly OverflowPolicy[] {
    return [...this.#policies.values()];
  }

  get tiers(): readonly Tier[] {
    return this.policies.flatMap((policy) => policy.tiers);
  }

  policyOf(upstreamId: string): OverflowPolicy | undefined {
    return this.#policies.get(upstreamId);
  }

  /** Also one that left the configuration while something is there. `place`: undefined unless the tier is, or was, there. */
  tierState(id: string, place?: string): TierState | undefined {
    const now = this.#tiers.get(id);
    if (place === undefined || now?.place === place) return now;
    return this.#moved.find((state) => state.tier.id === id && state.place === place);
  }

  lastLook(upstreamId: string): Look | null {
    return this.#last.get(upstreamId) ?? null;
  }

  /** `anew`: what was read before does not count. */
  async look(policy: OverflowPolicy, anew: boolean): Promise<Look> {
    const upstream = this.#deps.registry.byId(policy.upstream);
    const readings = await this.#readerOf(policy.upstream).read(policy, anew);
    const unreachable = upstream === undefined ? "it is not configured" : whyAway(upstream);
    const view = judgeCard(readings, { unreachable, brake: this.#brake() }, policy.onUnreachable);
    const look = { at: this.#deps.clock.wall(), readings, view };
    this.#say(policy.upstream, look);
    this.#last.set(policy.upstream, look);
    return look;
  }

  /** What the tier lacks, as far as can be told without the ledger. */
  verdict(tier: Tier, question: TierQuestion): TierVerdict {
    const state = this.#tiers.get(tier.id);
    return judgeTier({
      rules: tier,
      keyPresent: tier.keyPresent,
      externalAllowed: question.allowedThen && (question.keyId === null || this.#deps.allowsExternal(question.keyId)),
      breakerClosed: state?.mayTry ?? false,
      priceMicros: question.priceMicros,
      inFlight: state?.inFlight ?? 0,
      controlAway: this.#deps.controlAway(),
    });
  }

  /** The tier as the configuration has it now: what has changed since it was chosen counts. */
  currentTier(upstreamId: string, tierId: string): Tier | undefined {
    return this.#policies.get(upstreamId)?.tiers.find(({ id }) => id === tierId);
  }

  get ledger(): Ledger | null {
    return this.#deps.ledger();
  }

  /** Null: its work always stays here. */
  room(upstreamId: string): OverflowRoom | null {
    if (!this.#policies.has(upstreamId)) return null;
    return this.#rooms.get(upstreamId) ?? { spare: 0, held: false };
  }

  /** Looks at the cards, so that `room` is told anew. Resolves when all are known: whether any room is another one; never rejects. */
  async refresh(): Promise<boolean> {
    const changes = await Promise.all(
      this.policies.map(async (policy) => {
        const { view } = await this.look(policy, false);
        const before = this.room(policy.upstream);
        // The rules may have been changed meanwhile.
        if (this.#policies.get(policy.upstream) !== policy) return false;
        const room = this.#roomOf(policy, view);
        this.#rooms.set(policy.upstream, room);
        return before?.spare !== room.spare || before.held !== room.held;
      }),
    );
    return changes.includes(true);
  }

  #roomOf(policy: OverflowPolicy, view: OverflowView): OverflowRoom {
    const spare = policy.tiers
      .filter((tier) => this.#mightTake(tier))
      .reduce((sum, tier) => sum + tier.inFlightMax - (this.#tiers.get(tier.id)?.inFlight ?? 0), 0);
    if (view.wanted && spare > 0) return { spare, held: false };
    return { spare: 0, held: view.cardBusy && policy.holdMs > 0 };
  }

  /** Whether some job or other could go there. */
  #mightTake(tier: Tier): boolean {
    const state = this.#tiers.get(tier.id);
    return tier.approved && tier.keyPresent && state !== undefined && state.mayTry && state.inFlight < tier.inFlightMax;
  }

  /** By what is looked at: an endpoint that nobody probes says nothing of its host. */
  #brake(): string | null {
    const { registry, clock } = this.#deps;
    const now = clock.mono();
    return massFailure(
      registry
        .all()
        .filter(({ settings }) => settings.health === "active")
        .flatMap(({ endpoints }) =>
          endpoints.map((endpoint) => ({
            host: endpoint.target.hostname,
            good: endpoint.health === "healthy" && endpoint.whyAway(now, "", false, true) === null,
          })),
        ),
    );
  }

  #readerOf(upstreamId: string): SignalReader {
    const known = this.#readers.get(upstreamId);
    if (known !== undefined) return known;
    const { clock, client, utilization, registry, jobsWaiting } = this.#deps;
    const reader = new SignalReader({
      clock,
      client,
      utilization,
      depth: async () => {
        const upstream = registry.byId(upstreamId);
        if (upstream === undefined) return null;
        const stored = await jobsWaiting(upstream);
        const { interactive, system, batch } = upstream.pool.view().waiting;
        return stored === null ? null : interactive + system + batch + stored;
      },
      queueP90S: () => {
        const upstream = registry.byId(upstreamId);
        const ms = upstream === undefined ? null : queueP90Ms(upstream, clock.mono());
        return ms === null ? null : ms / 1000;
      },
    });
    this.#readers.set(upstreamId, reader);
    return reader;
  }

  /** A card's state and a signal's health are said when they change. */
  #say(upstream: string, look: Look): void {
    const before = this.#last.get(upstream);
    const { card, why } = look.view;
    if (before?.view.card !== card) this.#deps.log.info("overflow.card", { upstream, card, why });
    for (const [index, { kind, state, reason }] of look.readings.entries()) {
      const was = before?.readings[index]?.state;
      if (state === "broken" && was !== "broken")
        this.#deps.log.warn("overflow.signal", { upstream, signal: kind, state, reason });
      else if (state !== "broken" && was === "broken")
        this.#deps.log.info("overflow.signal", { upstream, signal: kind, state: "mended" });
    }
  }
}

/** Whoever waits now counts with the time so far, if that is longer: where nobody comes through, nobody tells. */
function queueP90Ms({ waits, oldestAskedAt }: Upstream, now: MonoMs): number | null {
  const p90 = waits.p90(now);
  return oldestAskedAt === undefined ? p90 : Math.max(p90 ?? 0, now - oldestAskedAt);
}

const whyAway = (upstream: Upstream): string | null => upstream.unavailable("", true)?.reason ?? null;
