import { z } from "zod";
import { CONFIG_ID } from "./config-fields.ts";
import { REQUEST_CLASSES } from "./request-class.ts";

export const PARTS_MAX = 10_000;
const METADATA_CHARS_MAX = 16_384;

const path = z
  .string()
  .max(2_048)
  .regex(/^\/[\x21-\x7e]*$/, "use a path that begins with /");

/** The body of `POST /v1/jobs`. */
export const jobSubmission = z.strictObject({
  model: z.string().min(1).max(256).optional(),
  upstream: z.string().regex(CONFIG_ID).optional(),
  path: path.optional(),
  method: z.enum(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]).default("POST"),
  body: z.unknown().optional(),
  /** For bodies that are not JSON. */
  body_base64: z.base64().optional(),
  content_type: z
    .string()
    .min(1)
    .max(200)
    .regex(/^[\x20-\x7e]+$/)
    .optional(),
  parts: z
    .array(z.strictObject({ body: z.unknown(), path: path.optional() }))
    .min(1)
    .max(PARTS_MAX)
    .optional(),
  class: z.enum(REQUEST_CLASSES).optional(),
  allow_partial: z.boolean().default(false),
  on_shed: z.enum(["requeue", "fail"]).default("requeue"),
  callback_url: z.string().min(1).max(2_048).optional(),
  metadata: z
    .record(z.string().max(64), z.unknown())
    .refine(
      (value) => JSON.stringify(value).length <= METADATA_CHARS_MAX,
      `use at most ${METADATA_CHARS_MAX} characters`,
    )
    .optional(),
  deadline_s: z.number().positive().max(604_800).optional(),
});

export type JobSubmission = z.output<typeof jobSubmission>;
