import { NO_CALL, type AuditEvent } from "../../contract/audit-event.ts";
import type { GpuHealthSettings } from "../../contract/gateway-config.ts";
import type { GpuBook } from "../../decide/gpu/gpu-book.ts";
import type { GpuPolicy } from "../../decide/gpu/gpu-policy.ts";
import { judgeGuards, type GuardedView, type GuardVerdict } from "../../decide/gpu/judge-upstream.ts";
import { exclusionReason } from "../../decide/routing/choose-endpoint.ts";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import { requestIds } from "../../kernel/ids.ts";
import type { Logger } from "../../kernel/log.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { GpuMetrics } from "../metrics/gpu-metrics.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import type { EndpointGpus } from "./endpoint-gpus.ts";

export interface GpuGuardDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly audit: Pick<AuditSink, "record">;
  readonly registry: UpstreamRegistry;
  readonly metrics: GpuMetrics;
  readonly book: GpuBook;
  readonly gpus: EndpointGpus;
  readonly settings: () => GpuHealthSettings;
  readonly policy: () => GpuPolicy;
}

/** What was made of a fault: `kept` in although it has one, `would_be_out` in a dry run. */
type Standing = "in" | "out" | "kept" | "would_be_out";

/** Whether the endpoint could take a request with all its slots free, its cards left aside. */
export function isAble(endpoint: Endpoint, now: MonoMs): boolean {
  const reason = exclusionReason({ ...endpoint.view(now, "", false), guard: "pass" }, NONE_TRIED);
  return reason === undefined || reason === "noSlot" || reason === "probing";
}

/** Keeps endpoints with faulted cards out of rotation. Running requests go on. */
export class GpuGuard {
  readonly #deps: GpuGuardDeps;
  readonly #standing = new WeakMap<Endpoint, Standing>();
  readonly #nextId = requestIds();

  constructor(deps: GpuGuardDeps) {
    this.#deps = deps;
  }

  /** Looks at every endpoint with what is known now. */
  refresh(): void {
    for (const upstream of this.#deps.registry.all()) this.#refresh(upstream);
  }

  /** Nobody looks at cards any more. */
  release(): void {
    for (const upstream of this.#deps.registry.all()) {
      const guarded = upstream.endpoints.filter(({ guard }) => guard === "fail");
      for (const endpoint of guarded) this.#set(upstream, endpoint, "pass", "its cards are no longer watched");
      if (guarded.length > 0) upstream.roomChanged();
    }
  }

  #refresh(upstream: Upstream): void {
    const { clock, book, gpus, settings, policy } = this.#deps;
    const now = clock.mono();
    const rules = policy();
    const views = upstream.endpoints.map((endpoint) => ({
      id: endpoint.id,
      able: isAble(endpoint, now),
      cards: gpus
        .of(upstream, endpoint)
        .flatMap(({ text, cards }) => cards.map((card) => ({ gpu: text, verdict: book.verdict(card, now, rules) }))),
    }));
    const verdicts = judgeGuards(views, settings());
    let changed = false;
    for (const [index, endpoint] of upstream.endpoints.entries()) {
      const verdict = verdicts[index];
      if (verdict === undefined) continue;
      const guard = verdict.guarded && !settings().dryRun ? "fail" : "pass";
      if (guard !== endpoint.guard) {
        changed = true;
        this.#set(upstream, endpoint, guard, reasonOf(verdict, views[index]?.cards ?? [], settings()));
      }
      this.#note(upstream, endpoint, verdict);
    }
    if (changed) upstream.roomChanged();
  }

  /** What is done to an endpoint is on record, with its reason, as a request's end is. */
  #set(upstream: Upstream, endpoint: Endpoint, guard: "pass" | "fail", reason: string): void {
    endpoint.guard = guard;
    const { audit, clock } = this.#deps;
    audit.record({
      ...NO_REQUEST,
      time: clock.wall(),
      requestId: this.#nextId(),
      route: `gpu.guard: ${reason}`.slice(0, REASON_CHARS_MAX),
      upstream: upstream.settings.id,
      endpoint: endpoint.id,
      outcome: guard === "fail" ? "guarded" : "unguarded",
    });
  }

  #note(upstream: Upstream, endpoint: Endpoint, verdict: GuardVerdict): void {
    const { log, metrics, settings } = this.#deps;
    const { fault, guarded } = verdict;
    const { coupleFaults, dryRun } = settings();
    const standing = guarded ? (dryRun ? "would_be_out" : "out") : fault !== null && coupleFaults ? "kept" : "in";
    const before = this.#standing.get(endpoint) ?? "in";
    if (standing === before) return;
    this.#standing.set(endpoint, standing);
    if (standing === "out") metrics.guarded(upstream.settings.id, fault?.kind ?? "");
    if (standing === "would_be_out") metrics.wouldGuard(upstream.settings.id);
    log[standing === "in" ? "info" : "warn"]("gpu.guard", {
      upstream: upstream.settings.id,
      endpoint: endpoint.id,
      state: standing,
      gpu: fault?.gpu ?? null,
      fault: fault?.kind ?? null,
      detail: fault?.detail ?? null,
    });
  }
}

function reasonOf(
  { fault, guarded }: GuardVerdict,
  cards: GuardedView["cards"],
  { coupleFaults, dryRun }: GpuHealthSettings,
): string {
  if (fault !== null) {
    const about = `${fault.gpu} ${fault.kind}: ${fault.detail}`;
    if (!coupleFaults) return `faults are not coupled any more, ${about}`;
    if (dryRun) return `a dry run began, ${about}`;
    return guarded ? about : `no other endpoint could serve, ${about}`;
  }
  for (const { gpu, verdict } of cards) if (verdict.kind === "unknown") return `${gpu} is unknown: ${verdict.why}`;
  return cards.length === 0 ? "no card of it is known" : "no card of it has a fault";
}

const NONE_TRIED: ReadonlySet<string> = new Set();
const REASON_CHARS_MAX = 256;

const NO_REQUEST = {
  ...NO_CALL,
  keyId: null,
  method: "EVENT",
  status: 0,
  errorCode: null,
  totalMs: 0,
} as const satisfies Partial<AuditEvent>;
