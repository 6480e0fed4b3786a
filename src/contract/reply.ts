import { z } from "zod";

/** An answer that is kept to be given again. */
export interface Reply {
  /** `refusal`: the engine's no to this content, remembered for a short time. */
  readonly kind: "answer" | "refusal";
  readonly status: number;
  /** Flat: name, value, …, without framing and without what belongs to one request alone. */
  readonly headers: readonly string[];
  readonly body: Buffer;
}

const replyHead = z.tuple([z.enum(["answer", "refusal"]), z.int().min(100).max(599), z.array(z.string())]);

export const renderReplyHead = ({ kind, status, headers }: Reply): string => JSON.stringify([kind, status, headers]);

/** Undefined for what no `renderReplyHead` wrote: another version, or somebody else. */
export function parseReply(head: string, body: Buffer): Reply | undefined {
  let value: unknown;
  try {
    value = JSON.parse(head);
  } catch {
    return undefined;
  }
  const parsed = replyHead.safeParse(value);
  if (!parsed.success) return undefined;
  const [kind, status, headers] = parsed.data;
  return { kind, status, headers, body };
}

const ENTRY_BYTES = 256;

/** What a kept reply counts against the bounds of its store: body, headers and a fixed part for the rest. */
export function replyBytes(reply: Reply): number {
  let bytes = ENTRY_BYTES + reply.body.length;
  for (const text of reply.headers) bytes += text.length;
  return bytes;
}
