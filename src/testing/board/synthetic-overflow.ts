import type { JobRow, OverflowRow } from "../../contract/board.ts";
import type { SpendView } from "../../contract/overflow-view.ts";

/** Made-up overflow: a loaded card, a tier without room, and one that waits for somebody's word. */
export const OVERFLOW: OverflowRow = {
  upstream: "qwen3.8-35b",
  at: "2026-03-02T03:11:58.000Z",
  card: "loaded",
  why: "2 of 3 signals say that the card is busy",
  would_go_to: null,
  hold_s: 300,
  on_unreachable: "stay",
  signals: [
    {
      kind: "queue",
      state: "busy",
      reachable: true,
      value: 44,
      threshold: 20,
      reason: "44 requests wait, 20 or more are busy",
    },
    {
      kind: "vram",
      state: "busy",
      reachable: true,
      value: 0.93,
      threshold: 0.9,
      reason: "93 % of the memory is in use",
    },
    { kind: "http", state: "broken", reachable: false, value: null, threshold: 1, reason: "no answer within 2 s" },
  ],
  tiers: [
    {
      id: "site-b",
      provider: "yardmaster",
      approved: true,
      approval: "tier",
      in_flight: 3,
      breaker: "closed",
      breaker_reason: null,
      halted: null,
      missing: ["no_slot"],
    },
    {
      id: "cloud",
      provider: "http",
      approved: true,
      approval: "per_job",
      in_flight: 0,
      breaker: "closed",
      breaker_reason: null,
      halted: null,
      missing: ["no_job_approval"],
    },
  ],
  gateway: "g1",
};

/** Of a job that waits for somebody's word. */
export const ASKING: NonNullable<JobRow["overflow"]> = {
  at: "2026-03-02T03:11:58.000Z",
  decision: "held",
  tier: null,
  card: "loaded",
  why: "the card is loaded, and no tier may take it without an approval",
  held_since: "2026-03-02T03:09:00.000Z",
  signals: [],
  missing: [{ tier: "cloud", lacks: ["no_job_approval"] }],
  state: null,
  price_reserved: null,
  price_paid: null,
  currency: null,
};

export const SPEND: SpendView = {
  ledger: "redis",
  stopped: null,
  refuses: null,
  tiers: [
    {
      tier: "site-b",
      currency: "EUR",
      day: "2026-03-02",
      month: "2026-03",
      spent_today: 0,
      reserved_today: 0,
      per_day: null,
      spent_this_month: 0,
      reserved_this_month: 0,
      per_month: null,
      halted: null,
    },
    {
      tier: "cloud",
      currency: "EUR",
      day: "2026-03-02",
      month: "2026-03",
      spent_today: 12.5,
      reserved_today: 4,
      per_day: 40,
      spent_this_month: 96.25,
      reserved_this_month: 4,
      per_month: 500,
      halted: null,
    },
  ],
  open: [],
};
