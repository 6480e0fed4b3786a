import type { EndpointSettings, UpstreamSettings } from "../../contract/gateway-config.ts";
import type { SharedUpstream, SlotSharer } from "../../coord/slot-sharer.ts";
import { AdmissionPool, type Admission, type Room } from "../../decide/admission/admission-pool.ts";
import type { Gate } from "../../decide/admission/gate.ts";
import { RANK, type Rank } from "../../decide/admission/ranks.ts";
import type { EngineAdapter } from "../../decide/engines/adapter.ts";
import { adapterFor } from "../../decide/engines/engines.ts";
import { judgeStart, startNews, type StartVerdict } from "../../decide/feed/judge-start.ts";
import {
  chooseEndpoint,
  exclusionReason,
  type EndpointChoice,
  type EndpointView,
  type Exclusion,
} from "../../decide/routing/choose-endpoint.ts";
import { WaitMeter } from "../../decide/overflow/wait-meter.ts";
import type { BreakerState } from "../../decide/routing/breaker.ts";
import type { AffinityView } from "../../decide/routing/prefer-warm.ts";
import { RetryBudget } from "../../decide/routing/retry-budget.ts";
import { asMono, type Clock, type MonoMs } from "../../kernel/clock.ts";
import type { Random } from "../../kernel/random.ts";
import type { Deadline, TimerWheel } from "../../kernel/timer-wheel.ts";
import type { Logger } from "../../kernel/log.ts";
import type { GatewayMetrics } from "../metrics/gateway-metrics.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import { refreshEjections } from "./ejections.ts";
import { Endpoint, endpointKey, type RunningCall } from "./endpoint.ts";
import type { LeftBehind } from "./left-behind.ts";
import type { RoutingWish, SlotSeeker } from "./slot-seeker.ts";
import { resultKindOf, type TryResult } from "./try-result.ts";
import { AWAY_MS, NOT_STARTED_MS, whyUnavailable, type Unavailable } from "./unavailable.ts";
import { UpstreamAffinity } from "./upstream-affinity.ts";
import { groupOf, groupsNow, isListed, readGroup } from "./model-groups.ts";
import { bookEndpoint, poolLimits, SharedEndpoints, sharedView } from "./shared-endpoints.ts";

export interface UpstreamDeps {
  /** What speaks to the engines of such an upstream, whose calls see one exchange in any case. */
  readonly clientFor: (settings: UpstreamSettings) => UpstreamClient;
  readonly clock: Clock;
  readonly wheel: TimerWheel;
  readonly random: Random;
  /** Called for each endpoint that joined. */
  readonly watch: (upstream: Upstream, endpoint: Endpoint) => EndpointWatcher;
  readonly metrics: GatewayMetrics;
  readonly log: Logger;
  /** What all upstreams have given up while calls ran there. */
  readonly left: LeftBehind;
  /** How its slots are shared with other gateways; null when they are this gateway's alone. */
  readonly share: ((upstream: SharedUpstream) => SlotSharer) | null;
  /** The first request waits for the start of a model of which nothing runs. */
  readonly onStartWanted: () => void;
}

/** Who looks after one endpoint. */
export interface EndpointWatcher {
  /** Look at once: a slot may have come free in the engine. */
  lookNow(): void;
  stop(): void;
}

/**
 * One upstream's live state: the admission pool and the endpoints under it. It outlives reloads: what stays keeps its
 * state, what leaves is drained (statement R6).
 *
 * Invariants:
 *   U1. A seeker that was admitted has an endpoint booked, in the same step (the pool books through `Room`).
 *   U2. After every call into the pool its events are handed out before control returns to the event loop.
 *   U3. An endpoint that left stays in `leaving` until nothing runs on it.
 */
export class Upstream implements Room {
  settings: UpstreamSettings;
  adapter: EngineAdapter;
  client: UpstreamClient;
  forwardHeaders: ReadonlySet<string>;
  /** Whether requests are served, wait for a start of the model, or can't have it. */
  start: StartVerdict = { kind: "serves" };
  readonly pool: AdmissionPool;
  readonly budget: RetryBudget;
  readonly endpoints: Endpoint[] = [];
  readonly leaving = new Set<Endpoint>();
  readonly waits = new WaitMeter();
  readonly affinity = new UpstreamAffinity();
  readonly #deps: UpstreamDeps;
  /** Null under `coordination: local`. */
  readonly sharer: SlotSharer | null;
  /** Those that wait. */
  readonly #seekers = new Map<number, SlotSeeker>();
  /** The one that asks at this moment. */
  #arriving: SlotSeeker | null = null;
  readonly #watchers = new Map<Endpoint, EndpointWatcher>();
  #due: Deadline | undefined;
  #cursor = 0;

  constructor(settings: UpstreamSettings, deps: UpstreamDeps) {
    const now = deps.clock.mono();
    this.settings = settings;
    this.adapter = adapterFor(settings.engine);
    this.client = deps.clientFor(settings);
    this.forwardHeaders = new Set(settings.forwardHeaders);
    this.#deps = deps;
    const { share } = deps;
    // A pool that shares asks the sharer, which is made with the pool.
    const gate: Gate = { permits: (rank, group, at) => this.sharer?.permits(rank, group, at) === true };
    this.pool = new AdmissionPool(
      poolLimits(settings, share !== null, false),
      this,
      now,
      share === null ? undefined : gate,
    );
    this.sharer = share === null ? null : share(new SharedEndpoints(this, deps.random));
    this.budget = new RetryBudget(settings.retry.budgetRatio, now);
    this.applyEndpoints(settings.endpoints);
  }

  /** A reload. Limits change at once; running requests go on under what they started with. */
  applySettings(settings: UpstreamSettings): void {
    const before = this.settings.catalog?.standing ?? null;
    this.settings = settings;
    this.adapter = adapterFor(settings.engine);
    this.client = this.#deps.clientFor(settings);
    this.forwardHeaders = new Set(settings.forwardHeaders);
    this.budget.setRatio(settings.retry.budgetRatio);
    this.applyEndpoints(settings.endpoints);
    const news = startNews(before, settings.catalog?.standing ?? null, this.start);
    if (news !== null) this.#expelWaiting("notStarted", news);
    else if (this.#seekers.size > 0 && this.start.kind === "waits") this.#deps.onStartWanted();
  }

  get oldestAskedAt(): MonoMs | undefined {
    return this.#seekers.values().next().value?.askedAt;
  }

  /** Those that wait for a start; null when nobody does. */
  startDemand(now: MonoMs): { readonly waiting: number; readonly oldestWaitMs: number } | null {
    const [oldest] = this.#seekers.values();
    if (oldest === undefined || this.start.kind !== "waits") return null;
    return { waiting: this.#seekers.size, oldestWaitMs: Math.max(0, now - oldest.askedAt) };
  }

  /** Those that are not in the list leave. First of all upstreams of a reload, since another may have one of them from then on. */
  letGo(list: readonly EndpointSettings[]): void {
    const wanted = new Set(list.map(endpointKey));
    for (const endpoint of this.endpoints) if (!wanted.has(endpoint.key)) this.#leave(endpoint);
  }

  /** The whole list, as it should be from now on. */
  applyEndpoints(list: readonly EndpointSettings[]): void {
    const now = this.#deps.clock.mono();
    const byKey = new Map([...this.endpoints, ...this.leaving].map((endpoint) => [endpoint.key, endpoint]));
    this.letGo(list);
    this.endpoints.length = 0;
    for (const settings of list) {
      const known = byKey.get(endpointKey(settings));
      const endpoint = known ?? new Endpoint(settings, this.settings, this.#deps.left, now);
      endpoint.applySettings(settings, this.settings);
      if (this.leaving.delete(endpoint)) this.#deps.left.note(endpoint, false);
      this.endpoints.push(endpoint);
      if (!this.#watchers.has(endpoint)) this.#watchers.set(endpoint, this.#deps.watch(this, endpoint));
    }
    this.modelsChanged();
    this.start = judgeStart(this.settings.catalog, this.endpoints.filter(({ draining }) => !draining).length);
    this.pool.setLimits(poolLimits(this.settings, this.sharer !== null, this.start.kind === "waits"), now);
    this.roomChanged();
  }

  /** Before anything else is done: who waits may go to other endpoints now. Call `roomChanged` afterwards. */
  modelsChanged(): void {
    const groupOfOne = groupsNow(this.endpoints);
    this.pool.regroup((id) => groupOfOne(this.#seekers.get(id)));
  }

  /** The upstream is gone from the configuration: who runs ends normally. Tell those who wait once it is known where else they can go. */
  remove(): void {
    this.letGo([]);
    this.endpoints.length = 0;
  }

  /** The gateway stops, or the upstream was removed: who waits is told at once, so that it can ask elsewhere. */
  expel(why: "draining" | "removed"): void {
    this.#expelWaiting(why);
  }

  dispose(): void {
    for (const watcher of this.#watchers.values()) watcher.stop();
    this.#watchers.clear();
    this.sharer?.close();
    if (this.#due !== undefined) this.#deps.wheel.remove(this.#due);
  }

  arrive(seeker: SlotSeeker, now: MonoMs, again = false): Admission {
    this.#arriving = seeker;
    const admission = this.pool.arrive(
      {
        id: seeker.id,
        class: seeker.class,
        key: seeker.keyId,
        weight: seeker.weight,
        bytes: seeker.bytes,
        group: groupOf(this.endpoints, seeker),
        deadline: seeker.deadline,
        again,
      },
      now,
    );
    this.#arriving = null;
    if (admission.kind === "queued") {
      this.#seekers.set(seeker.id, seeker);
      this.sharer?.changed();
      if (this.#seekers.size === 1 && this.start.kind === "waits") this.#deps.onStartWanted();
    }
    this.#handOut(now);
    return admission;
  }

  withdraw(seeker: SlotSeeker): void {
    const now = this.#deps.clock.mono();
    this.#seekers.delete(seeker.id);
    this.pool.cancel(seeker.id, now);
    this.sharer?.changed();
    this.#handOut(now);
  }

  /** The slot is free again. */
  endSlot(id: number): void {
    const now = this.#deps.clock.mono();
    this.#end(id, now);
    this.#handOut(now);
  }

  #end(id: number, now: MonoMs): void {
    this.sharer?.ended(id);
    this.pool.end(id, now);
  }

  /** The client is gone and the engine may work on: the slot stays taken until the engine is seen free, or `lingerMs`. */
  linger(id: number | null, endpoint: Endpoint, call: RunningCall, onFree?: () => void): void {
    const now = this.#deps.clock.mono();
    this.#stopsRunning(endpoint, call, now);
    endpoint.lingers.push({
      since: now,
      until: asMono(now + this.settings.timeouts.lingerMs),
      dispatchedAt: call.dispatchedAt,
      onFree: () => {
        if (id !== null) this.#end(id, this.#deps.clock.mono());
        onFree?.();
        this.#afterLeaving(endpoint);
        this.roomChanged();
      },
    });
    if (id !== null) this.pool.linger(id, now);
    this.#watchers.get(endpoint)?.lookNow();
    this.#handOut(now);
  }

  /** Another endpoint for a request that keeps its slot, booked; null when no other can take it now. */
  rebook(seeker: SlotSeeker, tried: ReadonlySet<string>): Endpoint | null {
    const endpoint = this.#pick(seeker, tried, (candidate) => this.#hasRoomElsewhere(candidate));
    if (endpoint !== null) this.sharer?.moved(seeker.id, endpoint.url);
    return endpoint;
  }

  /** Whether an endpoint that it has not been on is only full. */
  mayWaitAgain(seeker: SlotSeeker, now: MonoMs): boolean {
    const listed = isListed(this.endpoints, seeker.model);
    return this.endpoints.some(
      (at) => !seeker.tried.has(at.id) && at.whyAway(now, seeker.model, listed, true) === null,
    );
  }

  /** By what the other gateways said last: a call that goes on asks nobody. */
  #hasRoomElsewhere(endpoint: Endpoint): boolean {
    return this.sharer === null || endpoint.inFlight + this.othersOn(endpoint) < endpoint.slots;
  }

  /** The same endpoint once more, on a fresh connection. */
  bookAgain(endpoint: Endpoint): Endpoint {
    endpoint.booked += 1;
    return endpoint;
  }

  /** From booked to running. */
  enterEndpoint(endpoint: Endpoint, call: RunningCall): void {
    endpoint.booked -= 1;
    endpoint.addRunning(call, call.dispatchedAt);
  }

  leaveEndpoint(endpoint: Endpoint, call: RunningCall): void {
    this.#stopsRunning(endpoint, call, this.#deps.clock.mono());
    this.#afterLeaving(endpoint);
  }

  /** A probe that ends without having shown anything (its client left) makes room for the next one. */
  #stopsRunning(endpoint: Endpoint, call: RunningCall, now: MonoMs): void {
    endpoint.removeRunning(call, now);
    if (endpoint.probe !== call) return;
    endpoint.probe = null;
    endpoint.breaker.onResult("abandoned", now);
  }

  /** How a try ended, for the endpoint's breaker. "ok" is said at the first event, so that long streams count early. */
  onResult(endpoint: Endpoint, result: TryResult, now: MonoMs): void {
    const kind = resultKindOf(result);
    if (result.kind === "status") endpoint.progressed(now);
    const before = endpoint.breaker.state(now);
    endpoint.breaker.onResult(kind, now);
    if (kind === "failed" || kind === "connectFailed")
      this.#deps.metrics.forUpstream(this.settings.id).endpointFailed(endpoint.id, result.kind);
    const after = endpoint.breaker.state(now);
    if (after !== before) this.onBreakerMoved(endpoint, after);
  }

  onBreakerMoved(endpoint: Endpoint, to: BreakerState): void {
    this.#deps.metrics.forUpstream(this.settings.id).breakerMoved(endpoint.id, to === "halfOpen" ? "half_open" : to);
    this.#deps.log[to === "open" ? "warn" : "info"]("endpoint.breaker", {
      upstream: this.settings.id,
      endpoint: endpoint.id,
      state: to,
      reason: endpoint.breaker.reason(),
    });
    this.roomChanged();
  }

  roomChanged(): void {
    const now = this.#deps.clock.mono();
    this.refreshEjections(now);
    this.sharer?.roomChanged();
    this.pool.roomChanged(now);
    this.#handOut(now);
  }

  /** The gate may let more through than before. */
  admit(): void {
    const now = this.#deps.clock.mono();
    this.pool.advance(now);
    this.#handOut(now);
  }

  /** Requests that other gateways have on the endpoint, as they said last; 0 under `coordination: local`. */
  othersOn(endpoint: Endpoint): number {
    return this.sharer?.book.othersOn(endpoint.url) ?? 0;
  }

  /** The endpoints as a request for the group sees them. */
  views(group: string): { readonly endpoint: Endpoint; readonly view: EndpointView }[] {
    const now = this.#deps.clock.mono();
    const { model, tried } = readGroup(group);
    const untried = this.endpoints.filter(({ id }) => !tried.has(id));
    return untried.map((endpoint) => ({ endpoint, view: endpoint.view(now, model ?? "", model !== null) }));
  }

  /** Of the first of the class that wait for the group, as far as they are known here: the queue may let them go in another order. */
  affinities(group: string, rank: Rank, count: number): readonly (AffinityView | undefined)[] {
    const isOne = (seeker: SlotSeeker): boolean =>
      RANK[seeker.class] === rank && groupOf(this.endpoints, seeker) === group;
    return this.affinity.first(this.#seekers.values(), isOne, count, this.settings.routing);
  }

  refreshEjections(now: MonoMs): void {
    refreshEjections(this.endpoints, now);
  }

  /** See `whyUnavailable`. */
  unavailable(model: string, strict: boolean): Unavailable | null {
    return whyUnavailable(this.start, this.endpoints, model, strict, this.#deps.clock.mono());
  }

  /** What each endpoint would get for a request now; for `/health`. */
  explain(model: string): { readonly scores: readonly unknown[]; readonly excluded: readonly Exclusion[] } {
    const outcome = this.#choose(model, NONE_TRIED, this.#deps.clock.mono(), EXPLAINED);
    return outcome.kind === "chosen"
      ? { scores: outcome.scores ?? [], excluded: [] }
      : { scores: [], excluded: outcome.why };
  }

  // Room: called by the pool inside its own step.

  canTake(group: string): boolean {
    const now = this.#deps.clock.mono();
    const { model, tried } = readGroup(group);
    const viewOf = (endpoint: Endpoint): EndpointView => endpoint.view(now, model ?? "", model !== null);
    return this.endpoints.some((endpoint) => exclusionReason(viewOf(endpoint), tried) === undefined);
  }

  book(id: number): void {
    const seeker = this.#arriving?.id === id ? this.#arriving : this.#seekers.get(id);
    if (seeker === undefined) throw new Error(`admitted a request that nobody asked for: ${id}`);
    const { sharer } = this;
    const rank = RANK[seeker.class];
    const mayTake = sharer === null ? ANY : (at: Endpoint): boolean => sharer.mayBook(rank, bookEndpoint(at));
    seeker.endpoint = this.#pick(seeker, seeker.tried, mayTake);
    if (seeker.endpoint === null) throw new Error(`admitted to ${this.settings.id} without room on any endpoint`);
    sharer?.took(id, rank, seeker.endpoint.url);
  }

  #pick(seeker: SlotSeeker, tried: ReadonlySet<string>, mayTake: (endpoint: Endpoint) => boolean): Endpoint | null {
    const now = this.#deps.clock.mono();
    const wish = seeker.routing;
    const outcome = this.#choose(seeker.model, tried, now, wish, mayTake);
    if (wish.explain) seeker.choice = outcome;
    if (outcome.kind === "none") return null;
    const endpoint = this.endpoints.find((candidate) => candidate.id === outcome.id) ?? null;
    if (endpoint === null) return null;
    this.#cursor += 1;
    endpoint.booked += 1;
    if (outcome.affinity !== undefined) {
      this.affinity.note(wish.affinity, endpoint.id);
      this.#deps.metrics.forUpstream(this.settings.id).affinity(outcome.affinity.outcome);
    }
    if (endpoint.breaker.beginProbe(now)) endpoint.probe = seeker;
    return endpoint;
  }

  #choose(
    model: string,
    tried: ReadonlySet<string>,
    now: MonoMs,
    wish: RoutingWish,
    mayTake: (endpoint: Endpoint) => boolean = ANY,
  ): EndpointChoice {
    const listed = isListed(this.endpoints, model);
    const viewOf = (endpoint: Endpoint): EndpointView => endpoint.view(now, model, listed);
    const open = mayTake === ANY ? this.endpoints : this.endpoints.filter(mayTake);
    return chooseEndpoint({
      endpoints:
        open === this.endpoints || wish.affinity === null
          ? open.map(viewOf)
          : this.endpoints.map((at) => sharedView(viewOf(at), this.othersOn(at), open.includes(at))),
      policy: this.settings.routing.policy,
      exclude: tried,
      cursor: this.#cursor,
      random: this.#deps.random,
      explain: wish.explain,
      affinity: this.affinity.view(wish.affinity, this.settings.routing),
    });
  }

  #leave(endpoint: Endpoint): void {
    endpoint.draining = true;
    this.leaving.add(endpoint);
    this.#afterLeaving(endpoint);
  }

  #afterLeaving(endpoint: Endpoint): void {
    if (!this.leaving.has(endpoint)) return;
    this.#deps.left.note(endpoint, true);
    if (endpoint.inFlight > 0) return;
    this.leaving.delete(endpoint);
    this.#watchers.get(endpoint)?.stop();
    this.#watchers.delete(endpoint);
  }

  #expelWaiting(why: "draining" | "removed" | "notStarted", detail = ""): void {
    const now = this.#deps.clock.mono();
    for (const seeker of [...this.#seekers.values()]) {
      if (!this.pool.cancel(seeker.id, now)) continue;
      this.#seekers.delete(seeker.id);
      const retryAfterMs = why === "notStarted" ? NOT_STARTED_MS : AWAY_MS;
      seeker.onExpired(why, now - seeker.askedAt, retryAfterMs, detail);
    }
    this.sharer?.changed();
    this.#handOut(now);
  }

  #handOut(now: MonoMs): void {
    for (const event of this.pool.takeEvents()) {
      const seeker = this.#seekers.get(event.id);
      this.#seekers.delete(event.id);
      if (seeker === undefined) continue;
      if (event.kind === "admitted") seeker.onAdmitted(event.waitedMs);
      else if (event.kind === "displaced") seeker.onExpired("displaced", event.waitedMs, event.retryAfterMs);
      else if (event.why !== "startTimeout") seeker.onExpired(event.why, event.waitedMs, event.retryAfterMs);
      else seeker.onExpired(event.why, event.waitedMs, NOT_STARTED_MS, this.settings.catalog?.standing?.why ?? "");
    }
    this.#arm(now);
  }

  #arm(now: MonoMs): void {
    const due = this.pool.nextDue();
    if (due === undefined) {
      if (this.#due !== undefined) this.#deps.wheel.remove(this.#due);
      this.#due = undefined;
      return;
    }
    const at = asMono(Math.max(due, now));
    if (this.#due !== undefined && this.#due.bucket >= 0) {
      this.#deps.wheel.move(this.#due, at);
      return;
    }
    this.#due = this.#deps.wheel.add(at, (then) => {
      this.#due = undefined;
      this.pool.advance(then);
      this.#handOut(then);
    });
  }
}

const EXPLAINED: RoutingWish = { explain: true, affinity: null };
const ANY = (): boolean => true;
const NONE_TRIED: ReadonlySet<string> = new Set();
