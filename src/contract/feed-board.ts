import { z } from "zod";
import { ROLES } from "./roles.ts";

/**
 * What goes over the feed's connection for the board, and only while somebody looks at one or has of late:
 *
 *   - `boardWatch` asks a gateway to tell of its upstreams every so often, or (0) no longer; it answers with `board` messages. The first
 *     ones are `whole`, those behind hold what has changed.
 *   - `ask` is a request to the gateway's own routes for somebody whom the control plane has let in; it goes the way of every request
 *     there and is answered by `answerHead`, `answerText`s and `answerEnd`. `askOff`: nobody waits for it any more.
 *
 * A gateway that knows of this says so in its `hello`; others are not asked.
 */
const UPSTREAMS_MAX = 20_000;
/** Of one message, so that no frame holds up the rest of the connection. */
export const BOARD_ROWS_MAX = 250;
export const ANSWER_TEXT_CHARS_MAX = 64 * 1024;
export const ASK_BYTES_MAX = 256 * 1024;
/** Of one connection, at once. */
export const ASKS_MAX = 32;

const id = z.string().min(1).max(128);
const text = (max: number): z.ZodString => z.string().max(max);
const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const byClass = z.object({ interactive: count, system: count, batch: count });
/** How many fell below each bound and above the one before, since the gateway started; the last cell is above all bounds. */
const cells = z.array(count).max(64);

export const boardUpstream = z.object({
  id: text(256).min(1),
  models: z.array(text(256)).max(64),
  engine: text(64),
  catalogModel: text(256).nullable(),
  slots: count,
  batchMax: count,
  inUse: byClass,
  lingering: count,
  waiting: byClass,
  oldestWaitMs: z.number().min(0).nullable(),
  queue: cells,
  firstByte: cells,
  ended: count,
  away: text(1_024).nullable(),
  endpoints: z.object({ all: count, well: count }),
  /** How it shares slots with other gateways; null: it doesn't. */
  sharing: text(64).nullable(),
  hasOverflow: z.boolean(),
});
export type BoardUpstream = z.output<typeof boardUpstream>;

export const boardReport = z.object({
  type: z.literal("board"),
  /** Forget what was told before. */
  whole: z.boolean(),
  /** In seconds, ascending. */
  queueBounds: z.array(z.number()).max(63),
  firstByteBounds: z.array(z.number()).max(63),
  rows: z.array(boardUpstream).max(UPSTREAMS_MAX),
  gone: z.array(text(256)).max(UPSTREAMS_MAX),
  /** Nothing more of this look follows. */
  last: z.boolean(),
});
export type BoardReport = Omit<z.output<typeof boardReport>, "type">;

const number = count.min(1);
export const answerHead = z.object({
  type: z.literal("answerHead"),
  n: number,
  status: z.int().min(100).max(599),
  /** Names in lower case. */
  headers: z.record(text(64), text(1_024)),
});
export const answerText = z.object({ type: z.literal("answerText"), n: number, text: text(ANSWER_TEXT_CHARS_MAX) });
export const answerEnd = z.object({
  type: z.literal("answerEnd"),
  n: number,
  /** `busy`: it has as many asks as it takes, and this one was not looked at. */
  outcome: z.enum(["whole", "broken", "tooLarge", "busy"]),
});

export const boardWatch = z.object({ type: z.literal("boardWatch"), everyMs: z.number().min(0).max(60_000) });
export const ask = z.object({
  type: z.literal("ask"),
  n: number,
  method: z.enum(["GET", "POST", "DELETE"]),
  /** Of one of the gateway's own routes. */
  target: text(4_096).min(1),
  body: text(ASK_BYTES_MAX).nullable(),
  /** In whose name: a key that the control plane has checked. */
  keyId: id,
  role: z.enum(ROLES),
  /** A client's key that the gateway is to check instead; never in a log. */
  credential: text(512).nullable(),
  /** Of the answer. */
  bytesMax: count,
});
export type Ask = Omit<z.output<typeof ask>, "type">;
export const askOff = z.object({ type: z.literal("askOff"), n: number });
