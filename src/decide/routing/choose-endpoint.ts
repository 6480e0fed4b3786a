import type { Random } from "../../kernel/random.ts";
import type { BreakerState } from "./breaker.ts";
import { preferWarm, type AffinityOutcome, type AffinityView, type Preference } from "./prefer-warm.ts";

/** What the engine said of itself. A missing value is unknown, never 0. */
export interface LoadView {
  readonly running: number | undefined;
  readonly waiting: number | undefined;
  /** 0 to 1. */
  readonly kvUse: number | undefined;
  readonly ageMs: number;
}

export interface EndpointView {
  readonly id: string;
  readonly slots: number;
  /** Slots that this system holds there: booked, running, lingering. */
  readonly inFlight: number;
  /** Work the engine does for others: its busy count above ours, while fresh. */
  readonly external: number;
  readonly draining: boolean;
  readonly guard: "pass" | "fail";
  readonly breaker: BreakerState;
  /** In "halfOpen": no probe is under way. */
  readonly probeFree: boolean;
  readonly stalled: boolean;
  /** Its error rate is bad, but it may not be ejected, since most others are worse: taken only when no other has room. */
  readonly suspect: boolean;
  readonly health: "unknown" | "healthy" | "unhealthy" | "loading";
  /** Whether it serves the model that is asked for, as far as is known. */
  readonly serves: boolean;
  readonly load: LoadView | null;
  /** It bears load, but the request may not have it now: no lease of a slot that gateways share names it. */
  readonly closed?: boolean;
}

export type RoutingPolicy = "least_loaded" | "round_robin" | "random_two";

export interface ChoiceView {
  readonly endpoints: readonly EndpointView[];
  readonly policy: RoutingPolicy;
  /** Endpoints that this request has tried. */
  readonly exclude: ReadonlySet<string>;
  /** Rises by one with each choice: equal endpoints take turns. */
  readonly cursor: number;
  readonly random: Random;
  /** Whether the scores are told with the choice. */
  readonly explain?: boolean;
  /** What would like to be where something is warm; absent where nothing is asked for. */
  readonly affinity?: AffinityView | undefined;
}

export type ExclusionReason =
  | "tried"
  | "draining"
  | "guard"
  | "stalled"
  | "breakerOpen"
  | "probing"
  | "unhealthy"
  | "loading"
  | "modelNotServed"
  | "noSlot";

export interface Exclusion {
  readonly id: string;
  readonly why: ExclusionReason;
}

/** The parts of a score; the lowest total is chosen. Parts are null where the engine's report does not tell. */
export interface EndpointScore {
  readonly id: string;
  /** Slots that this system holds, as a part of all. */
  readonly own: number;
  /** The engine's work beyond that, as a part of the slots. */
  readonly others: number | null;
  /** Requests in the engine's own queue, as a part of the slots. */
  readonly waiting: number | null;
  readonly kvUse: number | null;
  /** Of the report: 1 when fresh, 0 when stale. */
  readonly weight: number;
  readonly total: number;
}

export type EndpointChoice =
  | {
      readonly kind: "chosen";
      readonly id: string;
      /** Absent where nothing was asked for. `part`: of the prompt, what is believed to be warm there. */
      readonly affinity?: { readonly outcome: AffinityOutcome; readonly part: number };
      readonly scores?: readonly EndpointScore[];
      readonly excluded?: readonly Exclusion[];
    }
  | { readonly kind: "none"; readonly why: readonly Exclusion[] };

/** A report's weight falls in a straight line to nothing at this age. */
export const LOAD_STALE_MS = 10_000;
/** A full KV cache weighs as much as half of the slots: it slows an engine, and preemption costs more than a busy slot. */
const KV_WEIGHT = 0.5;
const EQUAL = 1e-9;

/** Why the endpoint can't take a request now; `undefined` when it can. */
export function exclusionReason(view: EndpointView, exclude: ReadonlySet<string>): ExclusionReason | undefined {
  if (exclude.size > 0 && exclude.has(view.id)) return "tried";
  if (view.draining) return "draining";
  if (view.guard === "fail") return "guard";
  if (view.stalled) return "stalled";
  if (view.breaker === "open") return "breakerOpen";
  if (view.breaker === "halfOpen" && !view.probeFree) return "probing";
  if (view.health === "unhealthy" || view.health === "loading") return view.health;
  if (!view.serves) return "modelNotServed";
  return view.closed === true || view.inFlight + view.external >= view.slots ? "noSlot" : undefined;
}

/** The same view and random numbers always give the same choice. */
export function chooseEndpoint(view: ChoiceView): EndpointChoice {
  const preference = view.affinity === undefined ? undefined : prefer(view, view.affinity);
  const chosen = preference?.endpoint ?? pick(view);
  if (chosen === undefined) return { kind: "none", why: exclusions(view) };
  const { id } = chosen;
  const affinity = preference && { affinity: { outcome: preference.outcome, part: preference.part } };
  if (view.explain !== true)
    return affinity === undefined ? { kind: "chosen", id } : { kind: "chosen", id, ...affinity };
  const mean = meanOf(view);
  const eligible = view.endpoints.filter((endpoint) => exclusionReason(endpoint, view.exclude) === undefined);
  return {
    kind: "chosen",
    id,
    ...affinity,
    scores: eligible.map((endpoint) => explain(endpoint, mean)),
    excluded: exclusions(view),
  };
}

/** Among the endpoints that are in rotation: those that have no slot now bear a part of the load too. */
function prefer({ endpoints, exclude }: ChoiceView, affinity: AffinityView): Preference<EndpointView> {
  const reasons = new Map(endpoints.map((endpoint) => [endpoint, exclusionReason(endpoint, exclude)]));
  const inRotation = endpoints.filter((endpoint) => {
    const why = reasons.get(endpoint);
    return why === undefined || why === "noSlot" || why === "tried";
  });
  const good = inRotation.filter(({ suspect }) => !suspect);
  return preferWarm(good, (endpoint) => reasons.get(endpoint) === undefined, affinity);
}

function pick(view: ChoiceView): EndpointView | undefined {
  if (!view.endpoints.some((endpoint) => endpoint.suspect)) return pickBy(view);
  // An endpoint that fails fast looks idle, and would draw most of the load if it were weighed against the good ones.
  const good = view.endpoints.filter((endpoint) => !endpoint.suspect);
  return pickBy({ ...view, endpoints: good }) ?? pickBy(view);
}

function pickBy(view: ChoiceView): EndpointView | undefined {
  switch (view.policy) {
    case "round_robin":
      return nextEligible(view, view.cursor);
    case "random_two":
      return betterOfTwo(view);
    case "least_loaded":
      return leastLoaded(view);
  }
}

function leastLoaded(view: ChoiceView): EndpointView | undefined {
  const { endpoints } = view;
  const mean = meanOf(view);
  let best: EndpointView | undefined;
  let bestTotal = Number.POSITIVE_INFINITY;
  for (let step = 0; step < endpoints.length; step++) {
    const endpoint = endpoints[(view.cursor + step) % endpoints.length]!;
    if (exclusionReason(endpoint, view.exclude) !== undefined) continue;
    const total = totalOf(endpoint, mean);
    if (total >= bestTotal - EQUAL) continue;
    best = endpoint;
    bestTotal = total;
  }
  return best;
}

function nextEligible(view: ChoiceView, from: number): EndpointView | undefined {
  const { endpoints } = view;
  for (let step = 0; step < endpoints.length; step++) {
    const endpoint = endpoints[(from + step) % endpoints.length]!;
    if (exclusionReason(endpoint, view.exclude) === undefined) return endpoint;
  }
  return undefined;
}

function betterOfTwo(view: ChoiceView): EndpointView | undefined {
  const eligible = view.endpoints.filter((endpoint) => exclusionReason(endpoint, view.exclude) === undefined);
  if (eligible.length < 2) return eligible[0];
  const first = Math.floor(view.random.next() * eligible.length);
  const second = (first + 1 + Math.floor(view.random.next() * (eligible.length - 1))) % eligible.length;
  const mean = meanOf(view);
  const [a, b] = [eligible[first]!, eligible[second]!];
  return totalOf(b, mean) < totalOf(a, mean) ? b : a;
}

/**
 * What an endpoint of whom nothing is known is taken for: the mean of those that tell, each by its weight. So a missing or
 * aged report speaks neither for nor against an endpoint; with no report anywhere only our own counts decide.
 */
interface MeanLoad {
  readonly others: number;
  readonly waiting: number;
  readonly kvUse: number;
}

const NOTHING_KNOWN: MeanLoad = { others: 0, waiting: 0, kvUse: 0 };

const weightOf = (load: LoadView | null): number =>
  load === null ? 0 : Math.min(1, Math.max(0, 1 - load.ageMs / LOAD_STALE_MS));
const ownOf = (view: EndpointView): number => view.inFlight / view.slots;
const waitingOf = (view: EndpointView): number | undefined =>
  view.load?.waiting === undefined ? undefined : view.load.waiting / view.slots;

function othersOf(view: EndpointView): number | undefined {
  const { load } = view;
  if (load === null || load.running === undefined) return view.external > 0 ? view.external / view.slots : undefined;
  return Math.max(view.external, load.running + (load.waiting ?? 0) - view.inFlight) / view.slots;
}

function meanOf(view: ChoiceView): MeanLoad {
  let [others, othersWeight, waiting, waitingWeight, kvUse, kvWeight] = [0, 0, 0, 0, 0, 0];
  for (const endpoint of view.endpoints) {
    const weight = weightOf(endpoint.load);
    if (weight === 0 || endpoint.load === null || exclusionReason(endpoint, view.exclude) !== undefined) continue;
    const itsOthers = othersOf(endpoint);
    const itsWaiting = waitingOf(endpoint);
    if (itsOthers !== undefined) {
      others += weight * itsOthers;
      othersWeight += weight;
    }
    if (itsWaiting !== undefined) {
      waiting += weight * itsWaiting;
      waitingWeight += weight;
    }
    if (endpoint.load.kvUse !== undefined) {
      kvUse += weight * endpoint.load.kvUse;
      kvWeight += weight;
    }
  }
  if (othersWeight + waitingWeight + kvWeight === 0) return NOTHING_KNOWN;
  return {
    others: others / (othersWeight || 1),
    waiting: waiting / (waitingWeight || 1),
    kvUse: kvUse / (kvWeight || 1),
  };
}

const towards = (mean: number, value: number | undefined, weight: number): number =>
  value === undefined ? mean : mean + (value - mean) * weight;

function totalOf(view: EndpointView, mean: MeanLoad): number {
  const weight = weightOf(view.load);
  // What was found to be the work of others has an age limit of its own, and weighs in full until then.
  const others = towards(mean.others, othersOf(view), view.external > 0 ? 1 : weight);
  if (weight === 0) return ownOf(view) + others + mean.waiting + KV_WEIGHT * mean.kvUse;
  return (
    ownOf(view) +
    others +
    towards(mean.waiting, waitingOf(view), weight) +
    KV_WEIGHT * towards(mean.kvUse, view.load?.kvUse, weight)
  );
}

function explain(view: EndpointView, mean: MeanLoad): EndpointScore {
  return {
    id: view.id,
    own: ownOf(view),
    others: othersOf(view) ?? null,
    waiting: waitingOf(view) ?? null,
    kvUse: view.load?.kvUse ?? null,
    weight: weightOf(view.load),
    total: totalOf(view, mean),
  };
}

function exclusions(view: ChoiceView): Exclusion[] {
  const found: Exclusion[] = [];
  for (const endpoint of view.endpoints) {
    const why = exclusionReason(endpoint, view.exclude);
    if (why !== undefined) found.push({ id: endpoint.id, why });
  }
  return found;
}
