import type { Clock } from "../kernel/clock.ts";
import type { Logger } from "../kernel/log.ts";
import type { SpanKind } from "./otlp.ts";
import { noTracer, type Tracer } from "./tracer.ts";

export interface TraceSettings {
  readonly endpoint: string;
  readonly serviceName: string;
}

/** Without settings nothing of the exporter is loaded. */
export async function openTracer(
  settings: TraceSettings | null,
  version: string,
  ports: { readonly clock: Clock; readonly log: Logger },
  kind: SpanKind = "server",
): Promise<Tracer> {
  if (settings === null) return noTracer;
  const { openOtlpTracer } = await import("./otlp-tracer.ts");
  return openOtlpTracer({ ...settings, version, kind }, ports);
}
