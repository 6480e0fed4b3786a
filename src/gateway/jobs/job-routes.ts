import { isOpen, JOB_STATES, type JobState } from "../../contract/job.ts";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { viewJob } from "../../contract/job-view.ts";
import type { JobRead } from "../../coord/jobs/job-store.ts";
import { parseIdempotencyKey } from "../../decide/idempotency/idempotency-key.ts";
import type { Clock } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { TimerWheel } from "../../kernel/timer-wheel.ts";
import { headerValue } from "../calls/answer-headers.ts";
import { actAudited } from "../audit/admin-event.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { BufferBudget } from "../buffer-budget.ts";
import type { JobHandler } from "../http/routes.ts";
import { collectBody, refusalOfBody } from "../http/request-body.ts";
import type { RequestContext } from "../http/request-context.ts";
import { sendFailure } from "../http/send-error.ts";
import { sendJson } from "../http/send-json.ts";
import { sendJobAnswer, sendJobEvents } from "./job-streams.ts";
import type { JobAnswer, JobService, Submitted } from "./job-service.ts";
import { orderOf, type Upstreams } from "./judge-submission.ts";
import type { SubmissionReader } from "./submission-reader.ts";

export interface JobRoutesDeps {
  readonly clock: Clock;
  readonly wheel: TimerWheel;
  readonly log: Logger;
  readonly budget: BufferBudget;
  readonly config: () => GatewayConfig;
  readonly registry: Upstreams;
  readonly jobs: () => JobService;
  readonly durability: () => string | null;
  readonly reader: SubmissionReader;
  readonly audit: AuditSink;
}

const WAIT_S_MAX = 300;
const LIST_MAX = 100;
const LIST_DEFAULT = 20;
/** Retry-After of a job that has not ended. */
const NOT_DONE_MS = 1_000;

/** `/v1/jobs` and below. */
export class JobRoutes {
  readonly #deps: JobRoutesDeps;

  constructor(deps: JobRoutesDeps) {
    this.#deps = deps;
  }

  handle(context: RequestContext, handler: JobHandler, expectsContinue: boolean): void {
    const gone = new AbortController();
    context.res.onGone = () => gone.abort(new YardmasterError("CLIENT_CLOSED", "the client left"));
    this.#answer(context, handler, expectsContinue, gone.signal).catch((error: unknown) => {
      if (gone.signal.aborted) return;
      const { begun } = context.res;
      sendFailure(context, error, this.#deps, { retryAfterMs: NOT_DONE_MS });
      if (begun) context.res.breakOff(); // There is no place in it for an error.
    });
  }

  async #answer(
    context: RequestContext,
    handler: JobHandler,
    expectsContinue: boolean,
    gone: AbortSignal,
  ): Promise<void> {
    const jobs = this.#deps.jobs();
    const { key } = context;
    const query = new URLSearchParams(context.query);
    switch (handler) {
      case "jobSubmit":
        return this.#submit(context, expectsContinue, query, gone);
      case "jobList": {
        const page = await jobs.list(readListQuery(query), key);
        return sendJson(context, 200, {
          object: "list",
          data: page.jobs.map(({ job, partsDone }) => viewJob(job, partsDone)),
          next_cursor: page.cursor === null ? null : String(page.cursor),
        });
      }
      case "jobGet": {
        const waitMs = readWait(query);
        const read =
          waitMs === 0 ? await jobs.get(context.rest, key) : await jobs.wait(context.rest, key, waitMs, gone);
        const view = viewJob(read.job, read.partsDone);
        // Where its owner is told of the end is no part of what is approved.
        return sendJson(context, 200, key.role === "approver" ? { ...view, callback: null } : view);
      }
      case "jobCancel": {
        const { job } = await jobs.get(context.rest, key);
        const cancel = (): Promise<JobRead> => jobs.cancel(job.id, key);
        // One's own is one's own; what an operator ends of somebody else's is on record first.
        const read =
          job.keyId === key.id
            ? await cancel()
            : await actAudited(this.#deps, context, `/v1/jobs/${job.id}`, 200, cancel);
        return sendJson(context, 200, viewJob(read.job, read.partsDone));
      }
      case "jobResult":
        return sendJobAnswer(context, await jobs.result(context.rest, key), this.#deps.clock);
      case "jobEvents":
        return sendJobEvents(context, jobs, this.#deps.clock, gone);
      default:
        return handler satisfies never;
    }
  }

  async #submit(
    context: RequestContext,
    expectsContinue: boolean,
    query: URLSearchParams,
    gone: AbortSignal,
  ): Promise<void> {
    const { req, key } = context;
    const parsed = parseIdempotencyKey(headerValue(req.rawHeaders, "idempotency-key"));
    if (parsed.kind === "bad") throw new YardmasterError("BAD_REQUEST", parsed.why);
    const waitMs = readWait(query);
    const { job, replayed } = await this.#take(context, expectsContinue, parsed.kind === "key" ? parsed.key : null);
    const jobs = this.#deps.jobs();
    const read: JobRead =
      waitMs > 0 ? await jobs.wait(job.id, key, waitMs, gone) : { job, partsDone: 0, now: job.createdAt };
    const headers = ["location", `/v1/jobs/${job.id}`, ...(replayed ? ["idempotent-replayed", "true"] : [])];
    if (waitMs > 0 && !isOpen(read.job.state)) return await this.#sendOutcome(context, read.job.id, headers);
    const durability = this.#deps.durability();
    if (durability !== null) headers.push("x-yardmaster-durability", durability);
    sendJson(context, 202, viewJob(read.job, read.partsDone), headers);
  }

  /** As the call itself would have been answered: the engine's words, also those of a failure, or the error that the job ended with. */
  async #sendOutcome(context: RequestContext, id: string, headers: readonly string[]): Promise<void> {
    let answer: JobAnswer;
    try {
      answer = await this.#deps.jobs().result(id, context.key);
    } catch (error) {
      sendFailure(context, error, this.#deps, { headers: ["x-yardmaster-job", id, ...headers] });
      return;
    }
    await sendJobAnswer(context, answer, this.#deps.clock, headers);
  }

  /** The body's memory is held until the store has the job, and no longer. */
  async #take(context: RequestContext, expectsContinue: boolean, idempotencyKey: string | null): Promise<Submitted> {
    const { clock, wheel, budget, config, registry, jobs, reader } = this.#deps;
    const { bodyBytesMax: bytesMax } = config().jobs;
    const limits = { bytesMax, idleMs: config().http.bodyIdleMs };
    const end = await collectBody(context, expectsContinue, { clock, wheel, budget, ...limits });
    if (end.kind !== "whole") throw new YardmasterError(...refusalOfBody(end, "body", "jobs.max_body_bytes"));
    using body = end;
    const { asked, fingerprint } = await reader.read(body.chunks, idempotencyKey !== null);
    const order = orderOf(asked, context.key, registry);
    const idempotency =
      idempotencyKey === null || fingerprint === null
        ? null
        : { key: idempotencyKey, route: context.route.pattern, fingerprint };
    return await jobs().submit({ ...order, idempotency }, context.key);
  }
}

function readWait(query: URLSearchParams): number {
  const text = query.get("wait");
  if (text === null) return 0;
  if (!/^[0-9]{1,4}$/.test(text) || Number(text) > WAIT_S_MAX)
    throw new YardmasterError("BAD_REQUEST", `wait: use whole seconds, at most ${WAIT_S_MAX}`);
  return Number(text) * 1_000;
}

function readListQuery(query: URLSearchParams): {
  readonly state: JobState | null;
  readonly limit: number;
  readonly cursor: number | null;
} {
  const state = query.get("state");
  const known = JOB_STATES.find((each) => each === state) ?? null;
  const limit = query.get("limit") ?? String(LIST_DEFAULT);
  const cursor = query.get("cursor");
  const mistakes: string[] = [];
  if (state !== null && known === null) mistakes.push(`state: use one of ${JOB_STATES.join(", ")}`);
  if (!/^[1-9][0-9]{0,2}$/.test(limit) || Number(limit) > LIST_MAX) mistakes.push(`limit: use 1 to ${LIST_MAX}`);
  if (cursor !== null && !/^[0-9]{1,15}$/.test(cursor)) mistakes.push("cursor: use next_cursor of the page before");
  if (mistakes.length > 0) throw new YardmasterError("BAD_REQUEST", mistakes.join("; "));
  return { state: known, limit: Number(limit), cursor: cursor === null ? null : Number(cursor) };
}
