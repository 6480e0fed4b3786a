import type { AuditEvent } from "../contract/audit-event.ts";

/** Names of attributes follow OpenTelemetry's conventions. Never a prompt, a key, or a header's value. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | null | undefined>>;
export type SpanStatus = "ok" | "error";

/** The span of one request. Times are epoch milliseconds; fractions are kept. */
export interface RequestSpan {
  /** What the engine gets as `traceparent`: the caller's trace, with this span as parent. */
  traceparent(): string;
  /** What the engine gets as `tracestate`, if anything. */
  readonly tracestate: string | undefined;
  event(name: string, epochMs: number): void;
  /** Once; a second call does nothing. Attributes that are null or undefined are left out. */
  end(attributes: SpanAttributes, status: SpanStatus, epochMs: number): void;
}

export interface TraceStats {
  readonly exported: number;
  readonly dropped: number;
  readonly pending: number;
}

/**
 * `start` returns null when nothing is traced: without `otel`, or when the caller's traceparent says that its trace is not
 * recorded. The caller's own headers then go to the engine unchanged.
 */
export interface Tracer {
  start(
    traceparent: string | undefined,
    tracestate: string | undefined,
    name: string,
    startEpochMs: number,
  ): RequestSpan | null;
  /** undefined without tracing. */
  stats(): TraceStats | undefined;
  /** Sends what is held, for at most 3 s. Never rejects. */
  close(): Promise<void>;
}

export const noTracer: Tracer = { start: () => null, stats: () => undefined, close: () => Promise.resolve() };

/** The attributes of a request's span, from its audit event. */
export function requestAttributes(event: AuditEvent): SpanAttributes {
  return {
    "http.request.method": event.method,
    "http.route": event.route,
    "http.response.status_code": event.status,
    "error.type": event.outcome === "ok" ? undefined : (event.errorCode ?? event.outcome),
    "gen_ai.operation.name": OPERATIONS.get(event.route),
    "gen_ai.request.model": event.model,
    "gen_ai.usage.input_tokens": event.promptTokens,
    "gen_ai.usage.output_tokens": event.completionTokens,
    "yardmaster.request_id": event.requestId,
    "yardmaster.outcome": event.outcome,
    "yardmaster.class": event.class,
    "yardmaster.upstream": event.upstream,
    "yardmaster.endpoint": event.endpoint,
    "yardmaster.queue_ms": event.queueMs,
    "yardmaster.first_byte_ms": event.firstByteMs,
    "yardmaster.attempts": event.attempts,
  };
}

const OPERATIONS: ReadonlyMap<string, string> = new Map([
  ["/v1/chat/completions", "chat"],
  ["/v1/responses", "chat"],
  ["/v1/messages", "chat"],
  ["/v1/completions", "text_completion"],
  ["/v1/embeddings", "embeddings"],
]);
