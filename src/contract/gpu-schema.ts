import { z } from "zod";
import { httpUrl, seconds } from "./config-fields.ts";

/** The gateway's part of the configuration file about the cards under its endpoints. */
export const gpuHealthSection = z.strictObject({
  sources: z
    .array(
      z.strictObject({
        dcgm_url: httpUrl.describe("Page of a DCGM exporter. Without a path: `/metrics`."),
        host: z
          .string()
          .regex(/^[^\s/]{1,255}$/, "use a host's name, without a slash")
          .describe("Name of its host, by which cards are called `host/index`."),
      }),
    )
    .max(1_000)
    .default([])
    .describe("DCGM exporters. What agents read themselves comes with the control plane, and needs no source here."),
  dcgm_url: httpUrl
    .optional()
    .describe("One exporter, as an older form of `sources`; its host is what its page says, or else its address."),
  poll_s: z.number().min(0.05).max(3_600).default(15).describe("How often each source is asked."),
  staleness_s: seconds.default(60).describe("A card whose newest sample is older is unknown, which changes nothing."),
  fault_temp_c: z.number().min(30).max(200).default(90).describe("At this temperature a card has a fault."),
  clear_after_s: z
    .number()
    .min(0)
    .max(86_400)
    .default(60)
    .describe("How long fresh samples must show a card well before its fault ends."),
  couple_faults: z
    .boolean()
    .default(false)
    .describe("Whether an endpoint with a faulted card gets no new requests. Off: faults are only shown."),
  couple_xid: z
    .boolean()
    .default(false)
    .describe(
      "Whether a severe XID, a double-bit memory error, a failed row remapping, or a card that is gone is a fault too. Off: only heat is.",
    ),
  last_endpoint: z
    .enum(["keep", "drop"])
    .optional()
    .describe(
      "What becomes of an upstream whose every endpoint that could serve has a fault. Absent: `keep` for heat, `drop` for other faults.",
    ),
  shed_batch: z
    .boolean()
    .default(false)
    .describe("Whether batch work is refused (429 GPU_SATURATED) while the cards are saturated. Off: it is not."),
  shed_util_pct: z.number().min(1).max(100).default(95).describe("From this utilisation on a sample is a busy one."),
  sustained_samples: z
    .int()
    .min(1)
    .max(100)
    .default(4)
    .describe("So many busy samples in a row make a card saturated."),
  dry_run: z.boolean().default(false).describe("Counts and logs what would be taken out or refused, and does neither."),
  xid: z
    .record(z.string().regex(/^[1-9]\d{0,3}$/, "use the number of an XID"), z.enum(["ignore", "drain", "isolate"]))
    .default({})
    .describe(
      "What single XIDs mean here, by gauge or by count, over the built-in table: `ignore`, `drain` (needs a reset) or `isolate` (unusable until the gauge reads 0 or an operator says so).",
    ),
});

export type GpuHealthSection = z.output<typeof gpuHealthSection>;
