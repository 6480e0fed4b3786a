import { randomFillSync } from "node:crypto";
import { OtlpExporter, type ExporterOptions } from "./otlp-exporter.ts";
import type { SpanKind } from "./otlp.ts";
import type { RequestSpan, SpanAttributes, SpanStatus, Tracer } from "./tracer.ts";
import { parseTraceparent } from "./traceparent.ts";

/** A request has few moments; a bound keeps a bug from growing a span. */
const EVENTS_MAX = 64;
const TRACESTATE_CHARS_MAX = 512;

export interface OtlpSettings {
  /** Base URL of the collector; `/v1/traces` is appended unless it is there. */
  readonly endpoint: string;
  readonly serviceName: string;
  readonly version: string;
  readonly kind: SpanKind;
}

export function openOtlpTracer(settings: OtlpSettings, ports: Pick<ExporterOptions, "clock" | "log">): Tracer {
  const resource = { "service.name": settings.serviceName, "service.version": settings.version };
  const exporter = new OtlpExporter({ ...ports, url: tracesUrl(settings.endpoint), resource, kind: settings.kind });
  return {
    start(traceparent, tracestate, name, startEpochMs) {
      const parent = parseTraceparent(traceparent);
      if (parent !== undefined && !parent.sampled) return null;
      return new OtlpSpan(
        exporter,
        parent?.traceId ?? randomHex(16),
        parent?.parentId,
        parent === undefined ? undefined : saneState(tracestate),
        name,
        startEpochMs,
      );
    },
    stats: () => exporter.stats(),
    close: () => exporter.close(),
  };
}

function tracesUrl(endpoint: string): URL {
  const url = new URL(endpoint);
  if (!url.pathname.endsWith("/v1/traces")) url.pathname = `${url.pathname.replace(/\/+$/, "")}/v1/traces`;
  return url;
}

/** The state is passed as it came; one that no header may hold, or longer than vendors must carry, is left out. */
const saneState = (text: string | undefined): string | undefined =>
  text !== undefined && text.length <= TRACESTATE_CHARS_MAX && /^[\u0020-\u007e]+$/.test(text) ? text : undefined;

const pool = Buffer.alloc(4_096);
let used = pool.length;

/** Random bytes are drawn for many ids at once: each draw costs as much as hundreds of slices. */
function randomHex(bytes: number): string {
  if (used + bytes > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += bytes;
  return pool.toString("hex", used - bytes, used);
}

class OtlpSpan implements RequestSpan {
  readonly tracestate: string | undefined;
  readonly #exporter: OtlpExporter;
  readonly #traceId: string;
  readonly #spanId = randomHex(8);
  readonly #parentId: string | undefined;
  readonly #name: string;
  readonly #startMs: number;
  readonly #events: { name: string; at: number }[] = [];
  #ended = false;

  constructor(
    exporter: OtlpExporter,
    traceId: string,
    parentId: string | undefined,
    tracestate: string | undefined,
    name: string,
    startMs: number,
  ) {
    this.#exporter = exporter;
    this.#traceId = traceId;
    this.#parentId = parentId;
    this.tracestate = tracestate;
    this.#name = name;
    this.#startMs = startMs;
  }

  traceparent(): string {
    return `00-${this.#traceId}-${this.#spanId}-01`;
  }

  event(name: string, at: number): void {
    if (!this.#ended && this.#events.length < EVENTS_MAX) this.#events.push({ name, at });
  }

  end(attributes: SpanAttributes, status: SpanStatus, endMs: number): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#exporter.add({
      traceId: this.#traceId,
      spanId: this.#spanId,
      parentId: this.#parentId,
      tracestate: this.tracestate,
      name: this.#name,
      startMs: this.#startMs,
      endMs,
      events: this.#events,
      attributes,
      status,
    });
  }
}
