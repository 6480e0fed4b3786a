import type { RequestClass } from "../../contract/request-class.ts";
import { parseClass, parseTimeoutMs } from "../../decide/http/header-rules.ts";
import { parseIdempotencyKey } from "../../decide/idempotency/idempotency-key.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { headerValue } from "../calls/answer-headers.ts";
import type { RequestContext } from "./request-context.ts";

export type CallHead =
  | {
      readonly kind: "ok";
      readonly class: RequestClass;
      /** Null: the client set no limit. */
      readonly timeoutMs: number | null;
      /** Of a POST; other methods have no use for one. */
      readonly idempotencyKey: string | null;
    }
  | {
      readonly kind: "refused";
      readonly code: ErrorCode;
      readonly why: string;
      /** The class of which the gateway, behind with its work, takes nothing. */
      readonly shed?: RequestClass;
    };

export interface CallGate {
  readonly draining: () => boolean;
  /** Whether the gateway is too far behind with its own work to take requests of this class. */
  readonly loopSheds: (requestClass: RequestClass) => boolean;
}

const refused = (code: ErrorCode, why: string): CallHead => ({ kind: "refused", code, why });

/** What a call asks for in its head, and whether that may be asked now: looked at before anything of its body is. */
export function readCallHead({ req, key }: RequestContext, { draining, loopSheds }: CallGate): CallHead {
  if (draining()) return refused("DRAINING", "the gateway is stopping");
  const raw = req.rawHeaders;
  const asked = parseClass(headerValue(raw, "x-yardmaster-class"));
  if (asked.kind === "unknown")
    return refused("CLASS_UNKNOWN", "x-yardmaster-class is not interactive, system or batch");
  const requestClass = asked.kind === "class" ? asked.class : key.classes[0];
  if (!key.classes.includes(requestClass))
    return refused("CLASS_FORBIDDEN", `this key may not use class ${requestClass}`);
  if (loopSheds(requestClass)) {
    const why = `the gateway is behind with its work and takes no requests of class ${requestClass}`;
    return { kind: "refused", code: "QUEUE_FULL", why, shed: requestClass };
  }
  const timeout = parseTimeoutMs(headerValue(raw, "x-request-timeout-ms"));
  if (timeout.kind === "bad")
    return refused("BAD_REQUEST", "x-request-timeout-ms is not a whole number of milliseconds above 0");
  const idempotency = req.method === "POST" ? parseIdempotencyKey(headerValue(raw, "idempotency-key")) : NO_KEY;
  if (idempotency.kind === "bad") return refused("BAD_REQUEST", idempotency.why);
  return {
    kind: "ok",
    class: requestClass,
    timeoutMs: timeout.kind === "ms" ? timeout.ms : null,
    idempotencyKey: idempotency.kind === "key" ? idempotency.key : null,
  };
}

const NO_KEY = { kind: "absent" } as const;
