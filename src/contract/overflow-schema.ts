import { z } from "zod";
import { configId as id, httpUrl, seconds } from "./config-fields.ts";
import { providerFields } from "./overflow-provider-schema.ts";

/** The part of the configuration file about work that may go elsewhere while an upstream's card is busy. */

const SIGNAL_KINDS = ["comfyui_vram", "gpu_util_with_backlog", "semaphore", "queue_depth", "queue_time_p90_s"] as const;

const percent = z.number().min(0).max(100);
const amount = z.number().min(0).max(1_000_000_000);

const signal = z.strictObject({
  kind: z
    .enum(SIGNAL_KINDS)
    .describe(
      "What is looked at: ComfyUI's memory, a card's utilisation together with ComfyUI's queue, a guard that says whether the card is taken, or the gateway's own queue by its length or its waiting time.",
    ),
  url: httpUrl.optional().describe("Of `comfyui_vram` (its `/system_stats`) and `semaphore`: the page, JSON."),
  busy_pct: percent
    .optional()
    .describe("Of `comfyui_vram` and `gpu_util_with_backlog`: from this on the card is busy."),
  gpu: z
    .string()
    .min(1)
    .max(320)
    .optional()
    .describe("Of `gpu_util_with_backlog`: the card, by UUID or `host/index`; one that `gpu_health` watches."),
  queue_url: httpUrl.optional().describe("Of `gpu_util_with_backlog`: ComfyUI's `/queue`."),
  pending_min: z
    .int()
    .min(1)
    .max(100_000)
    .optional()
    .describe("Of `gpu_util_with_backlog`: so many prompts must be pending. Absent: 1."),
  busy_field: z
    .string()
    .min(1)
    .max(200)
    .optional()
    .describe(
      "Of `semaphore`: member of the page that is true, or a number above 0, while the card is taken; inner ones with dots.",
    ),
  min: z.int().min(1).max(1_000_000).optional().describe("Of `queue_depth`: so many waiting requests and jobs."),
  above: seconds.optional().describe("Of `queue_time_p90_s`: nine in ten waited no longer, in seconds."),
});

const tier = z.strictObject({
  id: id.describe("Name of the tier and of its account; no two tiers of the file share one."),
  ...providerFields,
  approved: z
    .boolean()
    .default(false)
    .describe("Whether the tier may take work at all. False: nothing is ever sent there."),
  approval: z
    .enum(["tier", "per_job"])
    .default("tier")
    .describe("`per_job`: each job needs an approval of its own besides (`yardmaster ctl approve`)."),
  two_person: z
    .boolean()
    .default(false)
    .describe("With `per_job`: an approval by the key that submitted the job does not count."),
  budget: z
    .strictObject({
      per_day: amount.optional().describe("At most this much a day (UTC), in `price.currency`."),
      per_month: amount.optional().describe("At most this much a month (UTC), in `price.currency`."),
    })
    .prefault({})
    .describe("What may be spent. A tier with a price needs both."),
  max_price: amount.optional().describe("A dearer job is not sent. Absent: the budget alone says."),
  max_in_flight: z.int().min(1).max(10_000).default(4).describe("Jobs and calls of one gateway at the tier at once."),
});

export const overflowSection = z.strictObject({
  upstream: id.describe("The upstream whose work may go elsewhere."),
  signals: z
    .array(signal)
    .max(32)
    .default([])
    .describe("What says that the card is busy; any one is enough. One that can't be read is not busy."),
  on_unreachable: z
    .enum(["overflow", "stay"])
    .default("overflow")
    .describe("What becomes of work while no endpoint of the upstream can take any."),
  hold_s: z
    .number()
    .min(0)
    .max(86_400)
    .default(120)
    .describe(
      "How long a job that no tier may take is kept off a card that is busy; then it goes onto it by the upstream's slots all the same.",
    ),
  signal_timeout_ms: z.int().min(10).max(10_000).default(1_000).describe("How long a signal's page is waited for."),
  signal_memory_ms: z
    .int()
    .min(0)
    .max(60_000)
    .default(1_000)
    .describe("How long a reading serves for others, so that a burst of jobs does not become one of looks."),
  tiers: z.array(tier).max(16).default([]).describe("Who may take the work, in this order."),
});

export type OverflowFile = z.output<typeof overflowSection>;
export type TierFile = z.output<typeof tier>;
