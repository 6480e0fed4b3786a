import type { UpstreamSettings } from "../../contract/gateway-config.ts";
import type { SharedUpstream } from "../../coord/slot-sharer.ts";
import type { BookEndpoint, BookLimits } from "../../decide/coordination/book-view.ts";
import { chooseEndpoint, exclusionReason, type EndpointView } from "../../decide/routing/choose-endpoint.ts";
import type { AffinityView } from "../../decide/routing/prefer-warm.ts";
import type { Random } from "../../kernel/random.ts";
import type { AdmissionPool } from "../../decide/admission/admission-pool.ts";
import type { Rank } from "../../decide/admission/ranks.ts";
import type { PoolLimits } from "../../decide/admission/pool-limits.ts";
import type { Endpoint } from "./endpoint.ts";

/** The upstream, as far as its sharing looks at it. */
interface SharingUpstream {
  readonly settings: UpstreamSettings;
  readonly pool: AdmissionPool;
  readonly endpoints: readonly Endpoint[];
  othersOn(endpoint: Endpoint): number;
  views(group: string): { readonly endpoint: Endpoint; readonly view: EndpointView }[];
  /** What the first of the class that wait for the group would like to find warm; none where the upstream does not look for it. */
  affinities(group: string, rank: Rank, count: number): readonly (AffinityView | undefined)[];
  admit(): void;
}

/** Of more endpoints the best are named: a request to the store stays small, and those who are denied ask again. */
const NAMED_MAX = 16;

/**
 * One upstream as the sharing of its slots sees it. An endpoint is usable by what is known here alone: whether another gateway
 * has filled it is for the store to say, since what it said last may be old. For the order, what it said last is good enough.
 */
export class SharedEndpoints implements SharedUpstream {
  readonly #upstream: SharingUpstream;
  readonly #random: Random;
  #turn = 0;

  constructor(upstream: SharingUpstream, random: Random) {
    this.#upstream = upstream;
    this.#random = random;
  }

  get id(): string {
    return this.#upstream.settings.id;
  }

  get pool(): AdmissionPool {
    return this.#upstream.pool;
  }

  limits(): BookLimits {
    const { slots, batchMax } = this.#upstream.settings.limits;
    return { slots, batchMax };
  }

  usable(group: string): readonly BookEndpoint[] {
    return this.#eligible(group).map(({ endpoint }) => bookEndpoint(endpoint));
  }

  slotsOf(token: string): number {
    return this.#upstream.endpoints.find(({ url }) => url === token)?.slots ?? 0;
  }

  /** What is asked for is what is had: a request that likes a warm endpoint gets it only where its lease names it first. */
  plan(group: string, count: number, rank: Rank): readonly (readonly string[])[] {
    const eligible = this.#eligible(group);
    if (eligible.length === 0) return [];
    const urls = new Map(eligible.map(({ endpoint }) => [endpoint.id, endpoint.url]));
    const taken = new Map(eligible.map(({ endpoint, view }) => [view.id, this.#upstream.othersOn(endpoint)]));
    const affinities = this.#upstream.affinities(group, rank, count);
    return Array.from({ length: count }, (_, at) => {
      const views = eligible.map(({ view }) => withOthers(view, taken.get(view.id) ?? 0));
      const choice = chooseEndpoint({
        endpoints: views,
        policy: this.#upstream.settings.routing.policy,
        exclude: NONE_TRIED,
        cursor: (this.#turn += 1),
        random: this.#random,
        affinity: affinities[at],
      });
      const first = choice.kind === "chosen" ? choice.id : views[0]?.id;
      if (first !== undefined) taken.set(first, (taken.get(first) ?? 0) + 1);
      const rest = views
        .filter(({ id }) => id !== first)
        .toSorted((a, b) => b.slots - b.inFlight - (a.slots - a.inFlight));
      const order = [first ?? "", ...rest.map(({ id }) => id)].slice(0, NAMED_MAX);
      return order.flatMap((id) => urls.get(id) ?? []);
    });
  }

  admit(): void {
    this.#upstream.admit();
  }

  #eligible(group: string): { readonly endpoint: Endpoint; readonly view: EndpointView }[] {
    return this.#upstream.views(group).filter(({ view }) => exclusionReason(view, NONE_TRIED) === undefined);
  }
}

/** One that the others have filled, by what they said last, is the last choice, not none. */
const withOthers = (view: EndpointView, others: number): EndpointView => ({
  ...view,
  inFlight: Math.max(view.inFlight, Math.min(view.slots - view.external - 1, view.inFlight + others)),
});

/** For a request that likes what is warm: what is fair for an endpoint to bear goes by all of them, and by all gateways' load. */
export const sharedView = (view: EndpointView, others: number, isOpen: boolean): EndpointView => ({
  ...withOthers(view, others),
  closed: !isOpen,
});

export const bookEndpoint = ({ url, slots }: Endpoint): BookEndpoint => ({ token: url, slots });

/**
 * Where a slot is asked for at the store, a request waits for the answer in the queue: those that would go at once need room
 * there beside those that wait for longer.
 */
export const poolLimits = (
  { limits, catalog }: UpstreamSettings,
  shared: boolean,
  waitsForStart: boolean,
): PoolLimits => ({
  ...limits,
  queueMax: shared ? limits.queueMax + limits.slots : limits.queueMax,
  startTimeoutMs: waitsForStart ? (catalog?.coldStartMs ?? null) : null,
});

const NONE_TRIED: ReadonlySet<string> = new Set();
