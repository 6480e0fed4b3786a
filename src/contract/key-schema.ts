import { z } from "zod";
import { configId } from "./config-fields.ts";
import { REQUEST_CLASSES } from "./request-class.ts";
import { ROLES } from "./roles.ts";

/** Up to a billion, so that millionths of it are whole numbers. */
const money = z.number().positive().max(1_000_000_000);

export const keyConfig = z.strictObject({
  id: configId.describe("Name of the key in audit, metrics and limits; never the key itself."),
  hash: z
    .string()
    .regex(/^sha256:[0-9a-f]{64}$/, "use the `sha256:` line that `yardmaster key new` printed")
    .describe("SHA-256 of the key. Plain keys are never stored."),
  role: z.enum(ROLES).default("client").describe("What the key may be used for."),
  classes: z
    .array(z.enum(REQUEST_CLASSES))
    .nonempty()
    .default(["interactive"])
    .describe("Classes that the key may ask for; the first is the default."),
  models: z
    .array(z.string().min(1).max(256))
    .nonempty()
    .optional()
    .describe("Served names the key may use, `*` and `?` as wildcards. Absent: all."),
  weight: z.number().positive().max(1000).default(1).describe("Share inside a class, relative to other keys."),
  limits: z
    .strictObject({
      requests_per_minute: z.int().positive().optional().describe("Requests in any 60 seconds. Absent: no limit."),
      tokens_per_minute: z
        .int()
        .positive()
        .optional()
        .describe("Tokens in any 60 seconds, prompt and answer together. Absent: no limit."),
      tokens_per_day: z
        .int()
        .positive()
        .optional()
        .describe("Tokens in a day (UTC), prompt and answer together. Absent: no limit."),
      max_in_flight: z
        .int()
        .positive()
        .optional()
        .describe("Requests at once, waiting ones included. Absent: no limit."),
      cost_per_day: money
        .optional()
        .describe("Money in a day (UTC), by the upstreams' `price`, in their currency. Absent: no limit."),
      cost_per_month: money.optional().describe("The same in a month (UTC). Absent: no limit."),
    })
    .prefault({})
    .describe("Limits of the key. Absent: none."),
  allow_external: z
    .boolean()
    .default(false)
    .describe("Whether the key's data may leave the house (upstreams marked `external`)."),
  expires: z.iso
    .datetime({ offset: true })
    .optional()
    .describe("When the key stops being valid (ISO 8601 with zone). Absent: never."),
});
