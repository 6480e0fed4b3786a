import type { AuditPage, AuditQuery } from "../../contract/audit-event.ts";
import {
  AUDIT_LIMIT_DEFAULT,
  AUDIT_LIMIT_MAX,
  AUDIT_PARAMS,
  AUDIT_TIME_HINT,
  type AuditParam,
  parseAuditTime,
} from "../../contract/audit-params.ts";

export type AuditQueryOutcome =
  | { readonly kind: "ok"; readonly query: AuditQuery }
  /** For the client: BAD_REQUEST. */
  | { readonly kind: "bad"; readonly why: string };

const TEXT_CHARS_MAX = 512;

/** Reads the parameters of `GET /admin/audit`. `now` in epoch milliseconds is what durations count back from. */
export function parseAuditQuery(params: URLSearchParams, now: number): AuditQueryOutcome {
  const given: Partial<Record<AuditParam, string>> = {};
  for (const [name, value] of params) {
    const known = AUDIT_PARAMS.find((param) => param === name);
    if (known === undefined)
      return { kind: "bad", why: `unknown parameter; the audit takes ${AUDIT_PARAMS.join(", ")}` };
    if (given[known] !== undefined) return { kind: "bad", why: `${known} is given twice` };
    if (value === "" || value.length > TEXT_CHARS_MAX)
      return { kind: "bad", why: `${known} must have 1 to ${TEXT_CHARS_MAX} characters` };
    given[known] = value;
  }
  const sinceMs = given.since === undefined ? undefined : parseAuditTime(given.since, now);
  if (given.since !== undefined && sinceMs === undefined)
    return { kind: "bad", why: `since must be ${AUDIT_TIME_HINT}` };
  const untilMs = given.until === undefined ? undefined : parseAuditTime(given.until, now);
  if (given.until !== undefined && untilMs === undefined)
    return { kind: "bad", why: `until must be ${AUDIT_TIME_HINT}` };
  const afterSeq = given.after_seq === undefined ? undefined : parseCount(given.after_seq, Number.MAX_SAFE_INTEGER);
  if (given.after_seq !== undefined && afterSeq === undefined)
    return { kind: "bad", why: "after_seq must be a sequence number" };
  const limit = given.limit === undefined ? AUDIT_LIMIT_DEFAULT : parseCount(given.limit, AUDIT_LIMIT_MAX);
  if (limit === undefined || limit === 0) return { kind: "bad", why: `limit must be 1 to ${AUDIT_LIMIT_MAX}` };
  return {
    kind: "ok",
    query: {
      limit,
      ...(sinceMs !== undefined && { sinceMs }),
      ...(untilMs !== undefined && { untilMs }),
      ...(afterSeq !== undefined && { afterSeq }),
      ...(given.key_id !== undefined && { keyId: given.key_id }),
      ...(given.model !== undefined && { model: given.model }),
      ...(given.upstream !== undefined && { upstream: given.upstream }),
      ...(given.outcome !== undefined && { outcome: given.outcome }),
      ...(given.request_id !== undefined && { requestId: given.request_id }),
    },
  };
}

function parseCount(text: string, max: number): number | undefined {
  if (!/^\d{1,16}$/.test(text)) return undefined;
  const value = Number(text);
  return value <= max ? value : undefined;
}

/** The answer's body, `application/json`. */
export const renderAuditPage = (page: AuditPage): string => `${JSON.stringify(page)}\n`;
