import { NO_CALL, type AuditEvent } from "../../contract/audit-event.ts";
import type { Clock } from "../../kernel/clock.ts";
import { ERRORS, YardmasterError } from "../../kernel/errors.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { AuditSink } from "./audit-sink.ts";
import type { ChainedEvent } from "./chain/chained-event.ts";

interface AuditPorts {
  readonly audit: AuditSink;
  readonly clock: Clock;
}

/**
 * Does what an administrator asks for once its record is stored, and not without it. `what` is the path with the id of what is
 * changed in it. `act` may still refuse: then a second record of the same request says so, as it does where the audit took none.
 */
export function actAudited<T>(
  ports: AuditPorts,
  context: RequestContext,
  what: string,
  status: number,
  act: () => T | Promise<T>,
): Promise<T> {
  const event = eventOf(context, what, ports.clock, { status, outcome: "ok", errorCode: null });
  return actAfter(ports, context, what, ports.audit.commit(event), act);
}

/**
 * The same of what only takes something away (a key, a permission to spend): it is done also while the audit is away, since whoever
 * fills a disk or stops a server must not thereby keep a stolen key alive. Its record then waits with the others, and may stand twice.
 */
export function takeAwayAudited<T>(
  ports: AuditPorts,
  context: RequestContext,
  what: string,
  act: () => T | Promise<T>,
): Promise<T> {
  const { audit, clock } = ports;
  const event = eventOf(context, what, clock, { status: 200, outcome: "ok", errorCode: null });
  const recorded = audit.commit(event).catch(() => audit.record(event));
  return actAfter(ports, context, what, recorded, act);
}

async function actAfter<T>(
  { audit, clock }: AuditPorts,
  context: RequestContext,
  what: string,
  recorded: Promise<void>,
  act: () => T | Promise<T>,
): Promise<T> {
  try {
    await recorded;
    return await act();
  } catch (error) {
    const code = error instanceof YardmasterError ? error.code : "INTERNAL";
    audit.record(eventOf(context, what, clock, { status: ERRORS[code].http, outcome: "refused", errorCode: code }));
    throw error;
  }
}

const eventOf = (
  context: RequestContext,
  what: string,
  clock: Clock,
  end: Pick<AuditEvent, "status" | "outcome" | "errorCode">,
): ChainedEvent => ({
  ...NO_CALL,
  chained: true,
  time: context.arrivedWall,
  requestId: context.requestId,
  keyId: context.key.id,
  method: context.req.method,
  route: what,
  upstream: null,
  endpoint: null,
  ...end,
  totalMs: clock.mono() - context.arrivedAt,
});
