import type { AuditEvent } from "../../../contract/audit-event.ts";
import type { ChainEntry } from "../../../contract/audit-chain.ts";

/** An event of what an administrator did, or of what was decided about money: it stands in the chain too. */
export interface ChainedEvent extends AuditEvent {
  readonly chained: true;
}

export const isChained = (event: AuditEvent): event is ChainedEvent => "chained" in event;

const TEXT_CHARS_MAX = 2_000;
const KEY_PATH = /^\/admin\/keys\/([^/]+)/;

/** Names of keys are people's as often as not: they are told by their pseudonyms. */
export const entryOf = (event: ChainedEvent, pseudonym: (name: string) => string): ChainEntry => ({
  time: Math.round(event.time),
  request: event.requestId,
  who: event.keyId === null ? null : pseudonym(event.keyId),
  act: `${event.method} ${event.route.replace(KEY_PATH, (_all, name: string) => `/admin/keys/${pseudonym(name)}`)}`.slice(
    0,
    TEXT_CHARS_MAX,
  ),
  upstream: event.upstream,
  status: event.status,
  outcome: event.outcome,
  code: event.errorCode,
  detail: event.overflow === null ? null : event.overflow.slice(0, TEXT_CHARS_MAX),
});
