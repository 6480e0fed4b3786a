import { z } from "zod";
import type { SignIn, Try } from "./board.ts";

/** What the control plane reads of what a board sends. */
const SECRET_CHARS_MAX = 512;
const PROMPT_CHARS_MAX = 64 * 1024;
const TOKENS_MAX = 4_096;

export const signInBody = z.union([
  z.strictObject({ key: z.string().min(1).max(SECRET_CHARS_MAX) }),
  z.strictObject({ once: z.string().min(1).max(SECRET_CHARS_MAX) }),
]) satisfies z.ZodType<SignIn>;

export const tryBody = z.strictObject({
  model: z.string().min(1).max(256),
  prompt: z.string().min(1).max(PROMPT_CHARS_MAX),
  maxTokens: z.int().min(1).max(TOKENS_MAX).optional(),
  // Goes into a header: what can't stand there is no key.
  key: z
    .string()
    .regex(/^[\x21-\x7e]{1,512}$/)
    .optional(),
  gateway: z.string().min(1).max(128).optional(),
}) satisfies z.ZodType<Omit<Try, "maxTokens" | "key" | "gateway">>;
export type TryBody = z.output<typeof tryBody>;
