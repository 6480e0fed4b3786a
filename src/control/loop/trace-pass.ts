import { passSpans } from "../../decide/telemetry/pass-spans.ts";
import type { Tracer } from "../../trace/tracer.ts";
import type { FinishedPass } from "./term-loop.ts";

/** Tells the tracer of a pass that was committed, and of what it began, ended and refused. */
export function tracePass(tracer: Tracer, { snapshot, plan, beganAt, tookMs }: FinishedPass): void {
  const spans = passSpans({
    beganAt,
    tookMs,
    writes: plan.writes.length,
    commands: plan.commands.length,
    unplaced: plan.unplaced.length,
    events: plan.events,
    replicas: snapshot.docs.replicas,
  });
  let pass: string | undefined;
  for (const { name, startMs, endMs, isOfPass, isError, attributes } of spans) {
    const span = tracer.start(isOfPass ? pass : undefined, undefined, name, startMs);
    pass ??= span?.traceparent();
    span?.end(attributes, isError ? "error" : "ok", endMs);
  }
}
