import type { JobRecord } from "../../contract/job.ts";

/** What is asked for, before the store has given it an id, a place and its times. */
export interface JobAsk extends Pick<
  JobRecord,
  | "keyId"
  | "weight"
  | "allowExternal"
  | "class"
  | "model"
  | "upstream"
  | "method"
  | "path"
  | "contentType"
  | "parts"
  | "allowPartial"
  | "batch"
  | "onShed"
  | "metadata"
  | "idempotency"
  | "keepMs"
  | "attemptsMax"
  | "bodyBytes"
> {
  readonly callbackUrl: string | null;
  /** From the moment the store has it. */
  readonly deadlineMs: number;
}

export interface JobPlace {
  readonly id: string;
  readonly seq: number;
  readonly order: number;
  /** By the store's clock. */
  readonly now: number;
  /** The failed job that this one takes the place of under its idempotency key. */
  readonly instead: string | null;
}

export function newJob(ask: JobAsk, place: JobPlace): JobRecord {
  const { callbackUrl, deadlineMs, ...asked } = ask;
  const { id, seq, order, now, instead } = place;
  const where = `for ${ask.model === null ? `upstream ${ask.upstream ?? ""}` : `model ${ask.model}`}, class ${ask.class}`;
  const after = instead === null ? "" : `, afresh after ${instead}`;
  return {
    ...asked,
    id,
    seq,
    version: 1,
    createdAt: now,
    deadlineAt: now + deadlineMs,
    state: "queued",
    attempts: 0,
    postponed: 0,
    order,
    readyAt: now,
    claim: null,
    settledBy: null,
    startedAt: null,
    endedAt: null,
    expiresAt: null,
    percent: null,
    lastError: null,
    error: null,
    result: null,
    callback:
      callbackUrl === null
        ? null
        : { url: callbackUrl, state: "idle", tries: 0, nextAt: 0, token: null, lastError: null },
    plan: [{ at: now, what: "queued", why: `${where}${after}` }],
  };
}
