import { z } from "zod";
import { signalView } from "./job-view.ts";

// What `GET /overflow/{upstream}` and the money's routes answer with. Amounts are decimal numbers of the tier's currency.

const money = z.number().nullable();
/** Why a tier is asked for nothing. `until`: it is looked at again then; null: an operator lets it go on. */
const halt = z.object({ at: z.string(), why: z.string(), until: z.string().nullable() }).nullable();

export const overflowStateView = z.object({
  upstream: z.string(),
  at: z.string().nullable(),
  card: z.enum(["free", "loaded", "unreachable"]).nullable(),
  why: z.string(),
  /** Where a job that may leave the house would go now: a tier's id, or null for here. */
  would_go_to: z.string().nullable(),
  hold_s: z.number(),
  on_unreachable: z.enum(["overflow", "stay"]),
  signals: z.array(signalView),
  tiers: z.array(
    z.object({
      id: z.string(),
      provider: z.string(),
      approved: z.boolean(),
      approval: z.enum(["tier", "per_job"]),
      in_flight: z.number(),
      breaker: z.string(),
      breaker_reason: z.string().nullable(),
      halted: halt,
      missing: z.array(z.string()),
    }),
  ),
});
export type OverflowStateView = z.output<typeof overflowStateView>;

export const spendView = z.object({
  ledger: z.enum(["local", "redis"]),
  stopped: z.object({ by: z.string(), at: z.string(), why: z.string() }).nullable(),
  /** Why nothing is spent though nobody has stopped it: the ledger is not the one that the gateway knew. */
  refuses: z.string().nullable().default(null),
  tiers: z.array(
    z.object({
      tier: z.string(),
      currency: z.string().nullable(),
      day: z.string(),
      month: z.string(),
      spent_today: z.number(),
      reserved_today: z.number(),
      per_day: money,
      spent_this_month: z.number(),
      reserved_this_month: z.number(),
      per_month: money,
      halted: halt,
    }),
  ),
  open: z.array(
    z.object({
      id: z.string(),
      tier: z.string(),
      subject: z.string(),
      state: z.string(),
      reserved: z.number(),
      currency: z.string(),
      at: z.string(),
      why: z.string(),
    }),
  ),
});
export type SpendView = z.output<typeof spendView>;

export const approvalView = z.object({
  tier: z.string(),
  job: z.string(),
  content_hash: z.string(),
  provider: z.string(),
  max_price: z.number(),
  currency: z.string(),
  by: z.string(),
  at: z.string(),
  expires_at: z.string(),
  state: z.enum(["open", "held", "used", "revoked", "forged"]),
});
export type ApprovalView = z.output<typeof approvalView>;
export const approvalsView = z.object({ data: z.array(approvalView) });

const WHY_CHARS_MAX = 200;
export const approveBody = z.strictObject({
  job: z.string().min(1).max(100),
  tier: z.string().min(1).max(64),
  max_price: z.number().min(0).max(1_000_000_000),
  expires_s: z
    .number()
    .positive()
    .max(30 * 86_400)
    .default(3_600),
  /** Of what the approver has seen; absent: of what the job asks for. */
  content_hash: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
});
export const stopBody = z.strictObject({ why: z.string().max(WHY_CHARS_MAX).default("") });
export const settleBody = z.strictObject({ charged: z.number().min(0).max(1_000_000_000).nullable() });
