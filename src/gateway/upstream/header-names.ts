import { isTextOf } from "./text-table.ts";

/** Header fields that decide how a message is framed and what becomes of its connection. */
export const OTHER = 0;
export const CONTENT_LENGTH = 1;
export const TRANSFER_ENCODING = 2;
export const CONNECTION = 3;
export const KEEP_ALIVE = 4;
export const UPGRADE = 5;
export const EXPECT = 6;

export interface HeaderName {
  /** In the case it was received in. */
  readonly text: string;
  readonly kind: number;
  /** Its values are few and no secrets: the same ones come with every message. */
  readonly repeats: boolean;
}

const KINDS: Readonly<Record<string, number>> = Object.assign(Object.create(null) as Record<string, number>, {
  "content-length": CONTENT_LENGTH,
  "transfer-encoding": TRANSFER_ENCODING,
  connection: CONNECTION,
  "keep-alive": KEEP_ALIVE,
  upgrade: UPGRADE,
  expect: EXPECT,
});

const REPEATED: ReadonlySet<string> = new Set([
  "accept",
  "accept-encoding",
  "accept-language",
  "anthropic-version",
  "cache-control",
  "connection",
  "content-type",
  "date",
  "host",
  "keep-alive",
  "openai-beta",
  "server",
  "transfer-encoding",
  "user-agent",
]);

// Both sides send the same dozen names with every message. A table of fixed size, where a newcomer takes the place of the one
// before, saves making a string of each name; nothing that is sent can make it grow.
const SLOTS = 512;
const KEPT_CHARS_MAX = 64;
const table: (HeaderName | undefined)[] = Array.from({ length: SLOTS }, () => undefined);

/** The name in `bytes[start, end)`, whose characters the caller has checked and hashed. */
export function internHeaderName(bytes: Buffer, start: number, end: number, hash: number): HeaderName {
  const slot = hash & (SLOTS - 1);
  const known = table[slot];
  if (known !== undefined && isTextOf(known.text, bytes, start, end)) return known;
  const text = bytes.toString("latin1", start, end);
  const lower = text.toLowerCase();
  const name: HeaderName = {
    text,
    kind: KINDS[lower] ?? OTHER,
    repeats: REPEATED.has(lower) || lower.startsWith("x-stainless-"),
  };
  if (text.length <= KEPT_CHARS_MAX) table[slot] = name;
  return name;
}
