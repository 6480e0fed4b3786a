import { isOpen } from "../../contract/job.ts";
import { viewJob } from "../../contract/job-view.ts";
import type { Clock } from "../../kernel/clock.ts";
import { headerValue } from "../calls/answer-headers.ts";
import type { ClientReply } from "../http/client-port.ts";
import type { RequestContext } from "../http/request-context.ts";
import { markOf, type JobAnswer, type JobService } from "./job-service.ts";

/** A client that takes nothing for this long while bytes wait for it is left. */
const STALL_MS_MAX = 30_000;
/** Between two signs of life on a stream of events. */
const QUIET_MS = 15_000;

/** The answer of a job, piece by piece, no faster than the client takes it. */
export async function sendJobAnswer(
  context: RequestContext,
  answer: JobAnswer,
  clock: Clock,
  more: readonly string[] = [],
): Promise<void> {
  const { res, requestId } = context;
  const headers = [
    "content-type",
    answer.contentType,
    "cache-control",
    "no-store",
    "x-content-type-options",
    "nosniff",
  ];
  headers.push("x-request-id", requestId, "x-yardmaster-job", answer.job.id, ...more);
  const pieces = answer.pieces()[Symbol.asyncIterator]();
  // The first piece comes before the head, so that a result which can't be read is an error and no broken answer.
  let piece = await pieces.next();
  if (piece.done === true) return res.sendWhole(answer.status, headers, "");
  if (answer.bytes !== undefined) return res.sendWhole(answer.status, headers, piece.value);
  if (!res.begin(answer.status, headers, undefined)) return;
  while (piece.done !== true) {
    if (!(await writePaced(res, piece.value, clock))) return;
    piece = await pieces.next();
  }
  res.end([]);
}

/**
 * Server-sent events: one with the job as it is now, one for each change, the last one with its end. The id of an event names
 * what the client has seen, so that one that comes back with `Last-Event-ID` is told only what is new.
 */
export async function sendJobEvents(
  context: RequestContext,
  jobs: JobService,
  clock: Clock,
  gone: AbortSignal,
): Promise<void> {
  const { res, req, key, rest } = context;
  const lastSeen = headerValue(req.rawHeaders, "last-event-id") ?? "";
  let read = await jobs.get(rest, key);
  const headers = ["content-type", "text/event-stream; charset=utf-8", "cache-control", "no-store"];
  headers.push("x-request-id", context.requestId);
  if (!res.begin(200, headers, undefined)) return;
  let seen = lastSeen;
  for (;;) {
    const mark = markOf(read);
    const ended = !isOpen(read.job.state);
    const event = `event: job\nid: ${mark}\ndata: ${JSON.stringify(viewJob(read.job, read.partsDone))}\n\n`;
    // One that has seen the end already is told again: it asked, and there is nothing else to come.
    if ((mark !== seen || ended) && !(await writePaced(res, Buffer.from(event), clock))) return;
    if (ended) return res.end([]);
    seen = mark;
    read = await jobs.waitForChange(rest, key, seen, QUIET_MS, gone);
    if (markOf(read) === seen && !(await writePaced(res, Buffer.from(": waiting\n\n"), clock))) return;
  }
}

/**
 * False: the client is gone, or was left because it takes nothing. `given`: the answer has a length, and the bytes are the client's from
 * then on, so that they need not be copied.
 */
export async function writePaced(res: ClientReply, bytes: Buffer, clock: Clock, given = false): Promise<boolean> {
  if (res.gone) return false;
  if ((given ? res.writeFramed(bytes) : res.writePayload(bytes)) !== "blocked") return true;
  const drained = new Promise<boolean>((resolve) => {
    const onGone = res.onGone;
    res.onDrain = () => resolve(true);
    res.onGone = () => {
      onGone?.();
      resolve(false);
    };
  });
  const stalled = Promise.withResolvers<boolean>();
  const timer = clock.after(STALL_MS_MAX, () => stalled.resolve(false));
  const taken = await Promise.race([drained, stalled.promise]);
  timer.cancel();
  res.onDrain = null;
  if (!taken) res.destroy();
  return taken;
}
