import { NO_CALL, type AuditEvent } from "../../contract/audit-event.ts";
import type { Clock } from "../../kernel/clock.ts";
import { ERRORS, YardmasterError } from "../../kernel/errors.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { AuditSink } from "./audit-sink.ts";
import type { ChainedEvent } from "./chain/chained-event.ts";

/**
 * Does what an administrator asks for once its record is stored, and not without it. `what` is the path with the id of what is
 * changed in it. `act` may still refuse: then a second record of the same request says so, as it does where the audit took none.
 */
export async function actAudited<T>(
  { audit, clock }: { readonly audit: AuditSink; readonly clock: Clock },
  context: RequestContext,
  what: string,
  status: number,
  act: () => T | Promise<T>,
): Promise<T> {
  try {
    await audit.commit(eventOf(context, what, clock, { status, outcome: "ok", errorCode: null }));
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
