import { Bag } from "../../kernel/bag.ts";
import { createHash } from "node:crypto";
import type { EndpointSettings, UpstreamSettings } from "../../contract/gateway-config.ts";
import type { EngineAdapter, EngineLoad } from "../../decide/engines/adapter.ts";
import { Breaker } from "../../decide/routing/breaker.ts";
import { adapterFor } from "../../decide/engines/engines.ts";
import { exclusionReason, type EndpointView } from "../../decide/routing/choose-endpoint.ts";
import { effectiveState } from "../../decide/routing/outlier.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { UpstreamTarget } from "../upstream/port.ts";
import type { LeftBehind } from "./left-behind.ts";

/** A request that is on an endpoint. The stall check reads it, and aborts it when the endpoint is given up. */
export interface RunningCall {
  readonly dispatchedAt: MonoMs;
  /** Time of the last complete event (streams) or read; undefined before the first. */
  readonly lastProgressAt: MonoMs | undefined;
  /** Its answer comes bit by bit, so that silence says something. */
  readonly showsProgress: boolean;
  /** The endpoint is stalled: a call that has shown nothing to its client goes elsewhere if it can; others stay. Said again as long as it is. */
  onStalled(): void;
}

export type EndpointHealth = "unknown" | "healthy" | "loading" | "unhealthy";

export interface LoadReport {
  readonly load: EngineLoad;
  readonly at: MonoMs;
}

/** One engine process that works on after its client left; ends when the engine is seen free, or at `until`. */
export interface Linger {
  readonly since: MonoMs;
  readonly until: MonoMs;
  /** When the call went to the engine. */
  readonly dispatchedAt: MonoMs;
  readonly onFree: () => void;
}

/**
 * The live state of one base URL. Kept over reloads as long as the URL, and the replica behind it, stay (statement R6). Written by
 * the upstream that owns it and by its poller; read by routing.
 */
export class Endpoint {
  readonly id: string;
  /** Shown to clients: tells endpoints apart without telling an address. */
  readonly publicId: string;
  readonly url: string;
  readonly replica: EndpointSettings["replica"];
  readonly key: string;
  adapter: EngineAdapter;
  /** What the engine is asked with; never logged. */
  engineKey: Secret | null;
  target: UpstreamTarget;
  /** For the `Host` header of requests to it. */
  readonly hostHeader: string;
  readonly basePath: string;
  gpus: readonly string[];
  slots: number;
  /** Leaving: running requests end, new ones go elsewhere. */
  draining = false;
  guard: "pass" | "fail" = "pass";
  health: EndpointHealth = "unknown";
  healthReason = "";
  stalled = false;
  stalledSince: MonoMs | undefined;
  ejected = false;
  /**
   * Its health page can't be reached, and no other endpoint is better: a request may find out whether the page's last answer
   * still holds. A dead engine then costs a refused connection and its breaker, not an outage until the next look.
   */
  lastResort = false;
  readonly breaker: Breaker;
  /** Names the engine lists; null while unknown. */
  models: ReadonlySet<string> | null = null;
  report: LoadReport | null = null;
  /** Share of the card's memory in use, 0 to 1, by the engine's health page. */
  memoryUse: number | undefined;
  /** Why the engine's page tells nothing of its load; null when it does, or was not looked at yet. */
  noLoadSignal: string | null = null;
  /** Work the engine does for others: its busy count above ours, while fresh. */
  external = 0;
  externalAt: MonoMs;
  readonly running = new Bag<RunningCall>();
  readonly lingers: Linger[] = [];
  /** Engine step counter as last seen, and since when it stands there. */
  steps: { value: number; since: MonoMs; seenAt: MonoMs } | null = null;
  lastProgressAt: MonoMs | undefined;
  /**
   * Since when calls have been here without a sign of work on any, times without a call left out: callers that give up one
   * after the other must not make a mute engine look new each time. Undefined: nothing was asked of it yet.
   */
  silentSince: MonoMs | undefined;
  #idleSince: MonoMs | undefined;
  lastAskedAt: MonoMs | undefined;
  /** The call that shows, in "halfOpen", whether the endpoint is back. */
  probe: object | null = null;

  readonly #left: LeftBehind;
  /** Its upstream has it since then, by `LeftBehind`. */
  joined: number;

  constructor(settings: EndpointSettings, upstream: UpstreamSettings, left: LeftBehind, now: MonoMs) {
    this.#left = left;
    this.joined = left.turn();
    this.id = settings.id;
    this.url = settings.url;
    this.replica = settings.replica;
    this.key = endpointKey(settings);
    const host = settings.hostname.includes(":") ? `[${settings.hostname}]` : settings.hostname;
    this.hostHeader = settings.port === (settings.protocol === "https:" ? 443 : 80) ? host : `${host}:${settings.port}`;
    this.externalAt = now;
    this.publicId = `ep-${createHash("sha256").update(settings.url).digest("hex").slice(0, 8)}`;
    this.adapter = adapterFor(settings.engine ?? upstream.engine);
    this.engineKey = settings.engineKey ?? upstream.engineKey;
    this.target = targetOf(settings, upstream);
    this.basePath = settings.basePath;
    this.slots = settings.slots;
    this.gpus = settings.gpus;
    this.draining = settings.draining;
    this.breaker = new Breaker(now);
  }

  /** A reload that keeps it. */
  applySettings(settings: EndpointSettings, upstream: UpstreamSettings): void {
    this.adapter = adapterFor(settings.engine ?? upstream.engine);
    this.engineKey = settings.engineKey ?? upstream.engineKey;
    this.target = targetOf(settings, upstream);
    this.slots = settings.slots;
    this.gpus = settings.gpus;
    this.draining = settings.draining;
  }

  /** Whole `Authorization` value for the engine; never logged. */
  get engineAuth(): string | undefined {
    return this.engineKey === null ? undefined : `Bearer ${this.engineKey.reveal()}`;
  }

  /** How long nobody has asked it for anything: 0 while somebody does, undefined when nobody ever did. */
  idleMs(now: MonoMs): number | undefined {
    if (this.inFlight > 0) return 0;
    if (this.lastAskedAt === undefined) return undefined;
    return Math.max(0, now - Math.max(this.lastAskedAt, this.#idleSince ?? 0));
  }

  addRunning(call: RunningCall, now: MonoMs): void {
    if (this.running.size === 0)
      this.silentSince =
        this.silentSince === undefined || this.#idleSince === undefined
          ? now
          : asMono(this.silentSince + now - this.#idleSince);
    this.running.add(call);
    this.lastAskedAt = now;
  }

  removeRunning(call: RunningCall, now: MonoMs): void {
    if (this.running.delete(call) && this.running.size === 0) this.#idleSince = now;
  }

  /** A complete event, a byte of an answer, or an answer's status came from it. */
  progressed(now: MonoMs): void {
    this.lastProgressAt = now;
    this.silentSince = now;
  }

  /** Another process may be there now: what the old one said, and left unsaid, holds no longer. */
  forgetProcess(): void {
    this.models = null;
    this.report = null;
    this.noLoadSignal = null;
    this.steps = null;
    this.stalled = false;
    this.stalledSince = undefined;
    this.silentSince = undefined;
  }

  /** Slots taken here: running, and lingering after an abort. */
  get inFlight(): number {
    return this.running.size + this.booked + this.lingers.length;
  }

  /** Admitted, not yet sent. */
  booked = 0;

  /** Slots taken by work that is not the upstream's: of others who use the engine, or of an upstream that had the endpoint before. */
  get notOurs(): number {
    return Math.max(this.external, this.#left.on(this));
  }

  /** `listed`: some endpoint of the upstream lists the model, so one that does not list it does not have it. */
  serves(model: string, listed: boolean): boolean {
    return !listed || this.models === null || this.models.has(model);
  }

  /** What the engine's own busy count may hold of ours: running calls, and those that linger. */
  get ownBusy(): number {
    return this.running.size + this.lingers.length;
  }

  view(now: MonoMs, model: string, listed: boolean): EndpointView {
    const { report } = this;
    return {
      id: this.id,
      slots: this.slots,
      inFlight: this.inFlight,
      external: this.notOurs,
      draining: this.draining,
      guard: this.guard,
      breaker: effectiveState(this.breaker, this.ejected, now),
      suspect: this.breaker.state(now) !== "closed" && effectiveState(this.breaker, this.ejected, now) === "closed",
      probeFree: this.breaker.probeFree(now),
      stalled: this.stalled,
      health: this.lastResort ? "unknown" : this.health,
      serves: this.serves(model, listed),
      load:
        report === null
          ? null
          : {
              running: report.load.running,
              waiting: report.load.waiting,
              kvUse: report.load.kvUse,
              ageMs: now - report.at,
            },
    };
  }

  /** Why it takes nothing, apart from being full or being probed, which pass by themselves; null when it could. */
  whyAway(now: MonoMs, model: string, listed: boolean, strict: boolean): string | null {
    if (strict && this.lastResort) return "unhealthy";
    const reason = exclusionReason(this.view(now, model, listed), NONE_TRIED);
    switch (reason) {
      case undefined:
      case "tried":
      case "noSlot":
      case "probing":
        return null;
      case "breakerOpen":
        return `breaker open (${this.breaker.reason() ?? "failures"})`;
      case "unhealthy":
      case "loading":
        return reason; // Why is on `/health`: it may name an address, and this text goes to clients.
      case "draining":
      case "guard":
      case "stalled":
        return reason;
      case "modelNotServed":
        return "does not serve this model";
      default:
        return assertNever(reason, "exclusion reason");
    }
  }

  /** One word for metrics and tables. */
  stateName(now: MonoMs): EndpointState {
    if (this.draining) return "draining";
    if (this.guard === "fail") return "guarded";
    if (this.stalled) return "stalled";
    if (this.health === "unhealthy" || this.health === "loading") return this.health;
    const breaker = effectiveState(this.breaker, this.ejected, now);
    return breaker === "open" ? "broken" : breaker === "halfOpen" ? "probing" : "in_rotation";
  }
}

export const ENDPOINT_STATES = [
  "in_rotation",
  "probing",
  "broken",
  "unhealthy",
  "loading",
  "stalled",
  "guarded",
  "draining",
] as const;
export type EndpointState = (typeof ENDPOINT_STATES)[number];

const NONE_TRIED: ReadonlySet<string> = new Set();

/** Endpoints of one name are one, and keep their state. */
export const endpointKey = ({ url, replica }: Pick<EndpointSettings, "url" | "replica">): string =>
  replica === null ? url : `${url}#${replica.id}.${replica.generation}`;

const targetOf = (
  { origin, protocol, hostname, port }: EndpointSettings,
  { timeouts }: UpstreamSettings,
): UpstreamTarget => ({
  origin,
  protocol,
  hostname,
  port,
  connectTimeoutMs: timeouts.connectMs,
});

/** The name under which an engine knows the model that the client named, when it is not the same. */
export function engineModelName(endpoint: Endpoint, upstreamModels: readonly string[], asked: string): string {
  if (!endpoint.adapter.refusesUnknownModels || endpoint.models === null || endpoint.models.has(asked)) return asked;
  return upstreamModels.find((name) => endpoint.models?.has(name)) ?? asked;
}
