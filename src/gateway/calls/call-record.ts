import type { AuditEvent, RequestOutcome } from "../../contract/audit-event.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { TokenUsage } from "../../decide/http/token-usage.ts";
import { servedName } from "../../decide/usage/count-call.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { GatewayMetrics } from "../metrics/gateway-metrics.ts";
import { requestAttributes, type RequestSpan } from "../../trace/tracer.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { CallDeps } from "./call-deps.ts";

export interface CallFacts {
  readonly upstream: Upstream | null;
  readonly endpoint: Endpoint | null;
  readonly class: RequestClass | null;
  readonly model: string | null;
  readonly outcome: RequestOutcome;
  readonly code: ErrorCode | null;
  readonly status: number;
  readonly queueMs: number | null;
  readonly firstByteMs: number | null;
  readonly usage: TokenUsage | null;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly attempts: number;
  readonly span: RequestSpan | null;
  /** Refused because the gateway itself had too much to do. */
  readonly shed?: boolean;
  /** Answered from memory, without an engine. */
  readonly from?: "idempotent" | "cache";
}

/** The one audit event, the metrics, what its key has used and the end of the span of a request. */
export function recordCall(deps: CallDeps, context: RequestContext, facts: CallFacts): void {
  context.hold?.settle(facts);
  const upstream = facts.upstream?.settings ?? null;
  deps.usage.ended(context.key.id, servedName(facts.model, upstream?.id ?? null), facts, upstream?.price ?? null);
  const totalMs = deps.clock.mono() - context.arrivedAt;
  const event: AuditEvent = {
    time: context.arrivedWall,
    requestId: context.requestId,
    keyId: context.key.id,
    class: facts.class,
    method: context.req.method,
    route: context.route.pattern,
    model: facts.model,
    upstream: upstream?.id ?? null,
    endpoint: facts.endpoint?.id ?? null,
    status: facts.status,
    outcome: facts.outcome,
    errorCode: facts.code,
    queueMs: facts.queueMs,
    firstByteMs: facts.firstByteMs,
    totalMs,
    promptTokens: facts.usage?.prompt ?? null,
    completionTokens: facts.usage?.completion ?? null,
    cachedTokens: facts.usage?.cached ?? null,
    bytesIn: facts.bytesIn,
    bytesOut: facts.bytesOut,
    attempts: facts.attempts,
    idempotentReplay: facts.from === "idempotent",
    cacheHit: facts.from === "cache",
    shed: facts.shed === true,
    overflow: null,
  };
  deps.audit.record(event);
  countCall(deps.metrics, event, facts.usage);
  facts.span?.end(requestAttributes(event), facts.outcome === "ok" ? "ok" : "error", deps.clock.wall());
}

/** The same of a request that was refused, or left, before any endpoint was asked. `class`: null while it is not known. */
export function recordRefusal(
  deps: CallDeps,
  context: RequestContext,
  refusal: Pick<CallFacts, "upstream" | "class" | "status" | "shed"> & { readonly code: ErrorCode },
): void {
  const { code, upstream } = refusal;
  const outcome: RequestOutcome =
    code === "CLIENT_CLOSED" ? "client_aborted" : code === "INTERNAL" ? "internal_error" : "refused";
  if (outcome === "refused") deps.metrics.forUpstream(upstream?.settings.id ?? null).refused(code);
  recordCall(deps, context, {
    ...refusal,
    outcome,
    endpoint: null,
    model: null,
    queueMs: null,
    firstByteMs: null,
    usage: null,
    bytesIn: 0,
    bytesOut: 0,
    attempts: 0,
    span: null,
  });
}

function countCall(metrics: GatewayMetrics, event: AuditEvent, usage: TokenUsage | null): void {
  const ofUpstream = metrics.forUpstream(event.upstream);
  if (event.class === null) ofUpstream.endedUnclassed(event.route, event.outcome);
  else {
    const ofClass = ofUpstream.class[event.class];
    ofClass.ended(event.route, event.outcome);
    ofClass.durationSeconds.observe(event.totalMs / 1000);
  }
  metrics.bytesIn.inc(event.bytesIn);
  metrics.bytesOut.inc(event.bytesOut);
  if (event.outcome !== "ok" || event.upstream === null || event.idempotentReplay || event.cacheHit) return;
  if (usage === null || (usage.prompt === null && usage.completion === null)) {
    ofUpstream.usageUnknown.inc();
    return;
  }
  if (usage.prompt !== null) ofUpstream.promptTokens.inc(usage.prompt);
  if (usage.completion !== null) ofUpstream.completionTokens.inc(usage.completion);
  if (usage.cached !== null) ofUpstream.cachedTokens.inc(usage.cached);
}
