import type { z } from "zod";

/** What a text frame holds: JSON with a `type`, as agents, gateways and control planes send it to each other. */
export type ReadFrame<Message> =
  | { readonly kind: "message"; readonly message: Message }
  /** A type of a newer version: to be passed over. */
  | { readonly kind: "unknown"; readonly type: string }
  | { readonly kind: "invalid"; readonly why: string };

/** Never throws, and shows no value of a frame that it refuses. */
export function readFrame<Message>(
  frame: string,
  types: ReadonlySet<string>,
  schema: z.ZodType<Message>,
): ReadFrame<Message> {
  let raw: unknown;
  try {
    raw = JSON.parse(frame);
  } catch {
    return { kind: "invalid", why: "not JSON" };
  }
  const type = typeof raw === "object" && raw !== null && "type" in raw ? raw.type : undefined;
  if (typeof type !== "string") return { kind: "invalid", why: "without a type" };
  if (!types.has(type)) return { kind: "unknown", type: type.slice(0, 64) };
  const read = schema.safeParse(raw);
  if (read.success) return { kind: "message", message: read.data };
  // Paths and rules only: a value may be a secret.
  const [issue] = read.error.issues;
  return { kind: "invalid", why: `${type}: ${issue?.path.join(".") ?? ""}: ${issue?.code ?? "wrong"}` };
}
