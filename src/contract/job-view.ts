import { z } from "zod";
import { formatIsoTime, asEpoch } from "../kernel/clock.ts";
import { JOB_STATES, type JobRecord } from "./job.ts";
import { MICROS } from "./money.ts";
import { REQUEST_CLASSES } from "./request-class.ts";

const time = z.string().nullable();

export const signalView = z.object({
  kind: z.string(),
  state: z.enum(["busy", "not_busy", "broken"]),
  reachable: z.boolean().nullable(),
  value: z.number().nullable(),
  threshold: z.number().nullable(),
  reason: z.string(),
});

/** Where a job was last to run, and why. Prices are decimal numbers of the currency. */
const overflowView = z.object({
  at: z.string(),
  decision: z.enum(["local", "held", "tier"]),
  tier: z.string().nullable(),
  card: z.enum(["free", "loaded", "unreachable"]),
  why: z.string(),
  held_since: time,
  signals: z.array(signalView),
  missing: z.array(z.object({ tier: z.string(), lacks: z.array(z.string()) })),
  state: z.enum(["intended", "accepted", "ended"]).nullable(),
  price_reserved: z.number().nullable(),
  price_paid: z.number().nullable(),
  currency: z.string().nullable(),
});

/** A job as its owner sees it. What is not known yet is null. */
export const jobView = z.object({
  id: z.string(),
  object: z.literal("job"),
  state: z.enum(JOB_STATES),
  class: z.enum(REQUEST_CLASSES),
  model: z.string().nullable(),
  upstream: z.string().nullable(),
  method: z.string(),
  path: z.string(),
  key: z.string(),
  created_at: z.string(),
  started_at: time,
  ended_at: time,
  expires_at: time,
  deadline_at: z.string(),
  attempts: z.number(),
  max_attempts: z.number(),
  queue_ms: z.number().nullable(),
  progress: z.object({ done: z.number(), total: z.number() }),
  error: z.object({ code: z.string(), message: z.string() }).nullable(),
  result: z.object({ status: z.number(), content_type: z.string(), bytes: z.number() }).nullable(),
  metadata: z.record(z.string(), z.unknown()).nullable(),
  callback: z
    .object({ url: z.string(), state: z.string(), tries: z.number(), last_error: z.string().nullable() })
    .nullable(),
  plan: z.array(z.object({ at: z.string(), what: z.string(), why: z.string() })),
  overflow: overflowView.nullable(),
});

export type JobView = z.output<typeof jobView>;

const iso = (ms: number): string => formatIsoTime(asEpoch(ms));
const isoOrNull = (ms: number | null): string | null => (ms === null ? null : iso(ms));

/** In parts, or in hundredths where the engine says how far it is; else it is one. */
function progressOf({ parts, percent, state }: JobRecord, partsDone: number): JobView["progress"] {
  if (parts !== null) return { done: partsDone, total: parts };
  // A job that an earlier version has stored has no such member.
  const total = typeof percent === "number" ? 100 : 1;
  return { done: state === "completed" ? total : typeof percent === "number" ? percent : 0, total };
}

export function viewJob(job: JobRecord, partsDone: number): JobView {
  return {
    id: job.id,
    object: "job",
    state: job.state,
    class: job.class,
    model: job.model,
    upstream: job.upstream,
    method: job.method,
    path: job.path,
    key: job.keyId,
    created_at: iso(job.createdAt),
    started_at: isoOrNull(job.startedAt),
    ended_at: isoOrNull(job.endedAt),
    expires_at: isoOrNull(job.expiresAt),
    deadline_at: iso(job.deadlineAt),
    attempts: job.attempts,
    max_attempts: job.attemptsMax,
    queue_ms: job.startedAt === null ? null : job.startedAt - job.createdAt,
    progress: progressOf(job, partsDone),
    error: job.error,
    result:
      job.result === null
        ? null
        : { status: job.result.status, content_type: job.result.contentType, bytes: job.result.bytes },
    metadata: job.metadata,
    callback:
      job.callback === null
        ? null
        : {
            url: job.callback.url,
            state: job.callback.state,
            tries: job.callback.tries,
            last_error: job.callback.lastError,
          },
    plan: job.plan.map(({ at, what, why }) => ({ at: iso(at), what, why })),
    overflow: job.overflow === undefined ? null : viewOverflow(job.overflow, job.endedAt !== null),
  };
}

function viewOverflow(overflow: NonNullable<JobRecord["overflow"]>, over: boolean): z.output<typeof overflowView> {
  const { errand } = overflow;
  const money = (micros: number | null | undefined): number | null =>
    micros === null || micros === undefined ? null : micros / MICROS;
  return {
    at: iso(overflow.at),
    decision: overflow.decision,
    tier: overflow.tier,
    card: overflow.card,
    why: overflow.why,
    held_since: isoOrNull(overflow.heldSince),
    signals: overflow.signals.map((signal) => ({ ...signal })),
    missing: overflow.lacks.map(({ tier, lacks }) => ({ tier, lacks: [...lacks] })),
    state: errand === null ? null : over ? "ended" : errand.state,
    price_reserved: money(errand?.micros),
    price_paid: money(errand?.paidMicros),
    currency: errand === null || errand.currency === "" ? null : errand.currency,
  };
}
