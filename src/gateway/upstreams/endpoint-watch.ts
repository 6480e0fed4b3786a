import { METRICS_ACCEPT, type EngineLoad } from "../../decide/engines/adapter.ts";
import { parseMetricsText } from "../../decide/telemetry/prometheus-text.ts";
import type { BreakerState } from "../../decide/routing/breaker.ts";
import { judgeStall } from "../../decide/routing/stall.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import type { Endpoint } from "./endpoint.ts";
import { fetchText, type Fetched } from "./fetch-text.ts";
import type { Upstream } from "./upstream.ts";

export interface WatchDeps {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly client: UpstreamClient;
}

const TICK_MS = 1_000;
const LINGER_TICK_MS = 250;
const METRICS_BUSY_MS = 1_000;
const METRICS_IDLE_MS = 5_000;
/** How long what other gateways said of an endpoint explains the engine's busy count. */
const OTHERS_FRESH_MS = 500;
const METRICS_TIMEOUT_MS = 2_000;
const HEALTH_AWAY_MS = 1_000;
const HEALTH_PROBED_MS = 2_000;
const MODELS_MS = 60_000;
const MODELS_RETRY_MS = 5_000;
/** Probes that fail in a row before an idle endpoint counts as unhealthy: one lost packet is not a dead engine. */
const FAILED_PROBES_MAX = 2;
/** A call younger than this may not yet be in the engine's own count. */
const COUNTED_AFTER_MS = 250;

/** What was ours while the engine was asked for its busy count. */
interface BusyLook {
  readonly startedAt: MonoMs;
  /** Calls that surely were in its count and still run. */
  readonly stillRunning: number;
  /** The most calls, lingering ones too, that may be in its count. */
  readonly ownMost: number;
  readonly now: MonoMs;
}
/** What pages other than the metrics are asked for with. */
const ANY_PAGE = "application/json, */*;q=0.1";

/**
 * Watches one endpoint: health page, metrics, list of models, engines that work on after an abort, and stalls. Reads and
 * writes the endpoint's state; what it means for routing is decided elsewhere.
 *
 * Invariants:
 *   H1. At most one page of a kind is asked for at a time, whatever the engine does with it.
 *   H2. A probe that is slow while the engine is busy changes nothing: progress tells, not a page (statement R5b).
 */
export class EndpointWatch {
  readonly #upstream: Upstream;
  readonly #endpoint: Endpoint;
  readonly #deps: WatchDeps;
  #timer: Timer | undefined;
  #stopped = false;
  #metricsDue = 0;
  #healthDue = 0;
  #modelsDue = 0;
  #failedProbes = 0;
  #breaker: BreakerState = "closed";
  readonly #busy = new Set<"metrics" | "health" | "models">();
  #probeMissing = false;
  #warnedModels = false;

  constructor(upstream: Upstream, endpoint: Endpoint, deps: WatchDeps) {
    this.#upstream = upstream;
    this.#endpoint = endpoint;
    this.#deps = deps;
    this.#arm(deps.random.next() * 100);
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  /** A call was aborted and the engine may work on: look at once. */
  lookNow(): void {
    this.#metricsDue = 0;
    this.#timer?.cancel();
    this.#arm(0);
  }

  #arm(ms: number): void {
    if (this.#stopped) return;
    this.#timer = this.#deps.clock.after(ms, () => {
      const now = this.#deps.clock.mono();
      this.#tick(now);
      const base = this.#endpoint.lingers.length > 0 ? LINGER_TICK_MS : TICK_MS;
      this.#arm(base * (0.9 + this.#deps.random.next() / 5));
    });
  }

  #tick(now: MonoMs): void {
    const active = this.#upstream.settings.health === "active";
    this.#expireLingers(now);
    this.#checkStall(now);
    this.#followBreaker(now);
    if (!active) return;
    if (now >= this.#metricsDue) void this.#once("metrics", () => this.#readMetrics());
    if (now >= this.#healthDue) void this.#once("health", () => this.#readHealth());
    if (now >= this.#modelsDue) void this.#once("models", () => this.#readModels());
  }

  async #once(kind: "metrics" | "health" | "models", read: () => Promise<void>): Promise<void> {
    if (this.#busy.has(kind)) return;
    this.#busy.add(kind);
    try {
      await read();
    } finally {
      this.#busy.delete(kind);
    }
  }

  #get(path: string, accept: string, timeoutMs: number): Promise<Fetched> {
    const endpoint = this.#endpoint;
    const auth = endpoint.engineAuth;
    return fetchText(this.#deps.client, this.#deps.clock, endpoint.target, endpoint.basePath + path, {
      headers: ["host", endpoint.hostHeader, "accept", accept, ...(auth === undefined ? [] : ["authorization", auth])],
      timeoutMs,
    });
  }

  // Metrics, load, busy count

  async #readMetrics(): Promise<void> {
    const endpoint = this.#endpoint;
    const { adapter } = endpoint;
    const lingering = endpoint.lingers.length > 0;
    const probe = lingering && !this.#probeMissing ? adapter.busyProbe : null;
    const path = probe?.path ?? adapter.metricsPath;
    const startedAt = this.#deps.clock.mono();
    this.#metricsDue = startedAt + (endpoint.inFlight > 0 ? METRICS_BUSY_MS : METRICS_IDLE_MS);
    if (lingering) this.#metricsDue = startedAt;
    if (path === null) return;
    const settled = [...endpoint.running].filter((call) => startedAt - call.dispatchedAt > COUNTED_AFTER_MS);
    const ownAtStart = endpoint.ownBusy;
    const fetched = await this.#get(path, probe === null ? METRICS_ACCEPT : ANY_PAGE, METRICS_TIMEOUT_MS);
    if (this.#stopped || fetched.kind !== "answer") return;
    // Started without that page (llama.cpp's can be turned off): the metrics tell the same, a little later.
    if (probe !== null && fetched.status !== 200) this.#probeMissing = true;
    if (fetched.status !== 200) {
      // 5xx may pass (an engine that still loads); these say that there is no such page.
      if (probe === null && (fetched.status < 500 || fetched.status === 501))
        this.#noteLoadSignal(`${path} answers ${fetched.status}`);
      return;
    }
    const now = this.#deps.clock.mono();
    const stillRunning = settled.filter((call) => endpoint.running.has(call)).length;
    const ownMost = Math.max(ownAtStart, endpoint.ownBusy);
    if (probe !== null) {
      const busy = probe.read(fetched.body);
      if (busy !== undefined) this.#applyBusy(busy, { startedAt, stillRunning, ownMost, now });
      return;
    }
    const load = this.#loadOf(fetched.body);
    if (typeof load === "string") return this.#noteLoadSignal(`${path} can't be read: ${load}`);
    this.#noteLoadSignal(
      load.running === undefined && load.waiting === undefined
        ? `${path} names no running or waiting requests of ${adapter.name}`
        : null,
    );
    endpoint.report = { load, at: now };
    if (load.steps !== undefined) {
      const moved = endpoint.steps === null || endpoint.steps.value !== load.steps;
      endpoint.steps = { value: load.steps, since: moved ? now : (endpoint.steps?.since ?? now), seenAt: now };
    }
    if (load.running !== undefined) this.#applyBusy(load.running, { startedAt, stillRunning, ownMost, now });
  }

  /** A text: why the page can't be read. */
  #loadOf(page: string): EngineLoad | string {
    const { adapter } = this.#endpoint;
    if (adapter.readLoadPage !== undefined) return adapter.readLoadPage(page) ?? "it is not as it should be";
    const parsed = parseMetricsText(page);
    return parsed.kind === "rejected" ? parsed.why : adapter.readLoad(parsed.samples);
  }

  /** Without a signal our own counts decide alone. Said once, when it changes. */
  #noteLoadSignal(missing: string | null): void {
    const endpoint = this.#endpoint;
    if ((missing === null) === (endpoint.noLoadSignal === null)) return;
    endpoint.noLoadSignal = missing;
    const op = missing === null ? "engine.load_signal" : "engine.no_load_signal";
    this.#deps.log[missing === null ? "info" : "warn"](op, {
      upstream: this.#upstream.settings.id,
      endpoint: endpoint.id,
      why: missing ?? "the page can be read",
    });
  }

  /**
   * What the engine says it works on, against what is ours. Both bounds are on the safe side: a lingering slot is given
   * back only when it must be in the count and even the calls that surely count leave no room for it; work of others is only what no call of ours,
   * seen at any time during the look, can explain.
   */
  #applyBusy(busy: number, { startedAt, stillRunning, ownMost, now }: BusyLook): void {
    const endpoint = this.#endpoint;
    const lingering = Math.max(0, Math.ceil(busy) - stillRunning);
    const counted = endpoint.lingers.filter(({ dispatchedAt }) => startedAt - dispatchedAt > COUNTED_AFTER_MS);
    for (const linger of counted.slice(0, Math.max(0, endpoint.lingers.length - lingering))) {
      endpoint.lingers.splice(endpoint.lingers.indexOf(linger), 1);
      linger.onFree();
    }
    if (endpoint.adapter.othersTakeSlots === false) return;
    const external = Math.max(0, Math.floor(busy) - ownMost - this.#othersMost(now));
    endpoint.externalAt = now;
    if (external === endpoint.external) return;
    const grown = external > endpoint.external;
    endpoint.external = external;
    if (!grown) this.#upstream.roomChanged();
  }

  /** What other gateways may have there. Of those that have not been heard of just now it may be anything. */
  #othersMost(now: MonoMs): number {
    const book = this.#upstream.sharer?.book;
    if (book === undefined) return 0;
    const heard = book.mode === "shared" && book.lastAnswerAt !== null && now - book.lastAnswerAt < OTHERS_FRESH_MS;
    return heard ? book.othersOn(this.#endpoint.url) : Number.POSITIVE_INFINITY;
  }

  #expireLingers(now: MonoMs): void {
    const endpoint = this.#endpoint;
    while ((endpoint.lingers[0]?.until ?? Number.POSITIVE_INFINITY) <= now) endpoint.lingers.shift()?.onFree();
    if (endpoint.external > 0 && now - endpoint.externalAt > 2 * METRICS_IDLE_MS + METRICS_TIMEOUT_MS) {
      endpoint.external = 0;
      this.#upstream.roomChanged();
    }
  }

  // Health

  async #readHealth(): Promise<void> {
    const endpoint = this.#endpoint;
    const health = endpoint.adapter.health;
    const startedAt = this.#deps.clock.mono();
    if (health === null) {
      this.#healthDue = Number.POSITIVE_INFINITY;
      return;
    }
    const busyAndMoving = endpoint.running.size > 0 && !endpoint.stalled;
    const isAway = endpoint.health === "unhealthy" || endpoint.health === "loading";
    this.#healthDue = startedAt + (isAway ? HEALTH_AWAY_MS : this.#unlessProbed(health.everyMs));
    const fetched = await this.#get(health.path, ANY_PAGE, health.timeoutMs);
    if (this.#stopped) return;
    if (fetched.kind === "failed") {
      if (fetched.ours === true) return; // What the gateway lacks is no fault of the engine's.
      this.#failedProbes += 1;
      endpoint.memoryUse = undefined;
      const refused = fetched.failure === "connect";
      if (busyAndMoving && !refused) return;
      if (this.#failedProbes >= FAILED_PROBES_MAX) this.#setHealth("unhealthy", fetched.message);
      else this.#healthDue = this.#deps.clock.mono() + HEALTH_AWAY_MS;
      return;
    }
    this.#failedProbes = 0;
    const read = endpoint.adapter.readHealth(fetched.status, fetched.body);
    endpoint.memoryUse = read === "healthy" ? endpoint.adapter.readMemoryUse?.(fetched.body) : undefined;
    if (read === "noPage") this.#setHealth("unknown", "");
    else if (read === "healthy") {
      this.#setHealth("healthy", "");
      const now = this.#deps.clock.mono();
      const before = endpoint.breaker.state(now);
      endpoint.breaker.reached(now, endpoint.target.connectTimeoutMs);
      if (before !== "closed" && endpoint.breaker.state(now) === "closed")
        this.#upstream.onBreakerMoved(endpoint, "closed");
      this.#followBreaker(now);
    } else this.#setHealth(read, `health page says ${fetched.status}`);
  }

  #setHealth(health: Endpoint["health"], reason: string): void {
    const endpoint = this.#endpoint;
    endpoint.healthReason = reason;
    if (endpoint.health === health) return;
    const wasAway = endpoint.health === "unhealthy" || endpoint.health === "loading";
    endpoint.health = health;
    this.#deps.log[health === "unhealthy" ? "warn" : "info"]("endpoint.health", {
      upstream: this.#upstream.settings.id,
      endpoint: endpoint.id,
      health,
      reason,
    });
    if (wasAway) {
      endpoint.forgetProcess();
      this.#upstream.modelsChanged();
      this.#modelsDue = 0;
      this.#deps.client.closeOrigin(endpoint.target.origin);
    }
    this.#upstream.roomChanged();
  }

  async #readModels(): Promise<void> {
    const { adapter } = this.#endpoint;
    const path = adapter.modelsPath;
    this.#modelsDue = Number.POSITIVE_INFINITY;
    if (path === null) return;
    const fetched = await this.#get(path, ANY_PAGE, METRICS_TIMEOUT_MS);
    const models = fetched.kind === "answer" && fetched.status === 200 ? adapter.readModels(fetched.body) : undefined;
    this.#modelsDue = this.#deps.clock.mono() + (models === undefined ? MODELS_RETRY_MS : MODELS_MS);
    if (models === undefined || this.#stopped) return;
    this.#endpoint.models = new Set(models);
    this.#upstream.modelsChanged();
    this.#warnOfUnknownModels(models);
    this.#upstream.roomChanged();
  }

  /** Once: the file promises names that this engine will refuse. */
  #warnOfUnknownModels(models: readonly string[]): void {
    const { id, models: named } = this.#upstream.settings;
    const strange = this.#endpoint.adapter.refusesUnknownModels && !named.some((name) => models.includes(name));
    if (strange && !this.#warnedModels) {
      this.#deps.log.warn("endpoint.models_unknown", {
        upstream: id,
        endpoint: this.#endpoint.id,
        configured: named.slice(0, 8).join(" "),
        engine_lists: models.slice(0, 8).join(" "),
      });
    }
    this.#warnedModels = strange;
  }

  /** Time alone moves a breaker from open to half-open: who waits may go then. */
  #followBreaker(now: MonoMs): void {
    const state = this.#endpoint.breaker.state(now);
    if (state === this.#breaker) return;
    this.#breaker = state;
    if (state !== "halfOpen") return;
    this.#healthDue = Math.min(this.#healthDue, now + HEALTH_PROBED_MS);
    this.#upstream.onBreakerMoved(this.#endpoint, state);
  }

  /** While one call is the probe the others wait, and the page may tell that they need not. */
  #unlessProbed(everyMs: number): number {
    return this.#breaker === "halfOpen" ? Math.min(everyMs, HEALTH_PROBED_MS) : everyMs;
  }

  // Stalls

  #checkStall(now: MonoMs): void {
    const endpoint = this.#endpoint;
    const verdict = judgeStall(
      {
        running: endpoint.running.size,
        silentSince: endpoint.silentSince,
        silenceTells: this.#silenceTells(now),
        lastProgressAt: endpoint.lastProgressAt,
        steps: endpoint.steps,
        stalled: endpoint.stalled,
        stalledSince: endpoint.stalledSince,
      },
      this.#upstream.settings.timeouts.stallMs,
      now,
    );
    if (verdict === "stalled" && !endpoint.stalled) {
      endpoint.stalled = true;
      endpoint.stalledSince = now;
      endpoint.breaker.trip("stalled", "no progress with requests in flight", now);
      this.#deps.log.warn("endpoint.stalled", {
        upstream: this.#upstream.settings.id,
        endpoint: endpoint.id,
        in_flight: endpoint.inFlight,
      });
      this.#upstream.roomChanged();
    } else if (verdict !== "stalled" && endpoint.stalled) {
      endpoint.stalled = false;
      endpoint.stalledSince = undefined;
      this.#deps.log.info("endpoint.moving", { upstream: this.#upstream.settings.id, endpoint: endpoint.id });
      this.#upstream.roomChanged();
    }
    if (endpoint.stalled) for (const call of [...endpoint.running]) call.onStalled();
  }

  /**
   * Where only whole answers are under way, a mute engine and one that is long at work look the same. While another endpoint
   * can serve, the safe side is to take it out; else it is to leave it in. An upstream of kind http may do anything for long.
   */
  #silenceTells(now: MonoMs): boolean {
    for (const call of this.#endpoint.running) if (call.showsProgress) return true;
    if (this.#upstream.settings.kind === "http") return false;
    return this.#upstream.endpoints.some((other) => other !== this.#endpoint && other.stateName(now) === "in_rotation");
  }
}
