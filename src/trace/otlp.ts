import type { SpanAttributes, SpanStatus } from "./tracer.ts";

/** A span that has ended. */
export interface EndedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string | undefined;
  readonly tracestate: string | undefined;
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly events: readonly { readonly name: string; readonly at: number }[];
  readonly attributes: SpanAttributes;
  readonly status: SpanStatus;
}

/** "server": a request that somebody made. "internal": work of its own. */
export type SpanKind = "server" | "internal";
const KIND_CODE = { internal: 1, server: 2 } as const;
const STATUS_CODE = { ok: 0, error: 2 } as const; // "unset" and "error": a server never claims "ok" itself.
/** Of a text value, so that a long model name can't blow up a batch. */
const TEXT_CHARS_MAX = 256;

/** Nanoseconds as OTLP's JSON wants them: a decimal text. Microseconds still fit a double exactly. */
const nanos = (epochMs: number): string => `${Math.round(epochMs * 1000)}000`;

function anyValue(value: string | number | boolean): object {
  if (typeof value === "string") return { stringValue: value.slice(0, TEXT_CHARS_MAX).toWellFormed() };
  if (typeof value === "boolean") return { boolValue: value };
  return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}

function keyValues(attributes: SpanAttributes): object[] {
  const list: object[] = [];
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || (typeof value === "number" && !Number.isFinite(value))) continue;
    list.push({ key, value: anyValue(value) });
  }
  return list;
}

const spanObject = (span: EndedSpan, kind: SpanKind): object => ({
  traceId: span.traceId,
  spanId: span.spanId,
  ...(span.tracestate !== undefined && { traceState: span.tracestate }),
  ...(span.parentId !== undefined && { parentSpanId: span.parentId }),
  name: span.name,
  kind: KIND_CODE[kind],
  startTimeUnixNano: nanos(span.startMs),
  endTimeUnixNano: nanos(Math.max(span.startMs, span.endMs)),
  attributes: keyValues(span.attributes),
  events: span.events.map(({ name, at }) => ({ timeUnixNano: nanos(at), name })),
  status: { code: STATUS_CODE[span.status] },
});

/** The body of one OTLP/HTTP export, JSON encoding. */
export function encodeSpans(spans: readonly EndedSpan[], resource: SpanAttributes, kind: SpanKind): string {
  const scopeSpans = [{ scope: { name: "yardmaster" }, spans: spans.map((span) => spanObject(span, kind)) }];
  return JSON.stringify({ resourceSpans: [{ resource: { attributes: keyValues(resource) }, scopeSpans }] });
}
