import type { AuditEvent } from "../../contract/audit-event.ts";
import type { JobRecord } from "../../contract/job.ts";
import type { CallReport } from "../../decide/jobs/judge-run.ts";
import { parseRetryAfter } from "../../decide/http/retry-after.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { RequestKey } from "../../access/request-key.ts";
import { headerValue } from "../calls/answer-headers.ts";
import { UNREACHED_MESSAGE } from "../calls/call-failure.ts";
import { CollectingClient, type CollectedEnd } from "../calls/collecting-client.ts";
import type { InferenceHandler } from "../http/inference-handler.ts";
import type { RequestContext } from "../http/request-context.ts";
import { matchRoute } from "../http/routes.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";

export interface JobCallDeps {
  readonly clock: Clock;
  readonly registry: UpstreamRegistry;
  readonly inference: InferenceHandler;
  readonly records: CallRecords;
  readonly resultBytesMax: () => number;
  /** The limits that the key has now. */
  readonly limitsOf: (keyId: string) => RequestKey["limits"];
}

export interface JobCallAsk {
  /** Unique; the engine gets it as `x-request-id`. */
  readonly requestId: string;
  readonly path: string;
  readonly body: Buffer | undefined;
  /** The engine said how far it is: 0 to 100. */
  readonly onProgress: (percent: number) => void;
}

export interface JobCallEnd {
  readonly report: CallReport;
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
  /** The call's own record, which has the figures. */
  readonly event: AuditEvent | null;
}

/** A call under way. */
export interface JobCall {
  readonly ended: Promise<JobCallEnd>;
  /** The engine's request is aborted in the same turn. */
  abort(): void;
}

/**
 * Takes the records of jobs' calls, which go into the record of the job instead of standing for themselves. Each is there before
 * its call's client is told of the end.
 */
export class CallRecords implements AuditSink {
  readonly #audit: AuditSink;
  readonly #byRequest = new Map<string, AuditEvent>();

  constructor(audit: AuditSink) {
    this.#audit = audit;
  }

  record(event: AuditEvent): void {
    this.#byRequest.set(event.requestId, event);
    // A job that was refused for saturation goes on; that it was refused is on record all the same, once.
    if (event.shed) this.#audit.record(event);
  }

  /** `standsAlone`: it is an entry of its own too, as the line of a batch is. */
  take(requestId: string, standsAlone: boolean): AuditEvent | null {
    const event = this.#byRequest.get(requestId) ?? null;
    this.#byRequest.delete(requestId);
    if (standsAlone && event !== null && !event.shed) this.#audit.record(event);
    return event;
  }

  commit: AuditSink["commit"] = (event) => this.#audit.commit(event);
  query: AuditSink["query"] = (query) => this.#audit.query(query);
  stats: AuditSink["stats"] = () => this.#audit.stats();
  close: AuditSink["close"] = () => Promise.resolve();
}

/** Sends one call of a job the way that every request goes: same admission, order, routing and retries. */
export function startJobCall(deps: JobCallDeps, job: JobRecord, ask: JobCallAsk): JobCall {
  const { promise, resolve } = Promise.withResolvers<JobCallEnd>();
  const bytesMax = deps.resultBytesMax();
  const client = new CollectingClient({
    method: job.method,
    target: ask.path,
    rawHeaders: headersOf(job, ask),
    ...(ask.body === undefined ? {} : { body: ask.body }),
    bytesMax,
    onInformational: (_status, headers) => {
      const percent = /^\d{1,3}$/.exec(headerValue(headers, "x-progress") ?? "")?.[0];
      if (percent !== undefined && Number(percent) <= 100) ask.onProgress(Number(percent));
    },
    onEnd: (end) =>
      resolve(readEnd(end, deps.records.take(ask.requestId, job.batch !== undefined), bytesMax, deps.clock.wall())),
  });
  const context = contextOf(deps, job, ask, client);
  if (job.upstream === null) deps.inference.handleModelRoute(context, false);
  else deps.inference.handleJobUpstream(context, job.upstream, pathOf(ask.path));
  return { ended: promise, abort: () => client.abort() };
}

const pathOf = (target: string): string => target.split("?")[0] ?? target;

function headersOf(job: JobRecord, ask: JobCallAsk): string[] {
  const headers = ["x-yardmaster-class", job.class, "accept", "*/*"];
  if (ask.body !== undefined) headers.push("content-length", String(ask.body.length));
  if (ask.body !== undefined && job.contentType !== null) headers.push("content-type", job.contentType);
  return headers;
}

function contextOf(deps: JobCallDeps, job: JobRecord, ask: JobCallAsk, client: CollectingClient): RequestContext {
  const path = job.upstream === null ? pathOf(ask.path) : `/upstreams/${job.upstream}${pathOf(ask.path)}`;
  const match = matchRoute(job.upstream === null ? "POST" : job.method, path);
  if (match.kind !== "route") throw new Error(`a job was accepted for ${path}, where no call can go`);
  const query = ask.path.slice(pathOf(ask.path).length);
  return {
    req: client,
    res: client,
    requestId: ask.requestId,
    route: match.route,
    path,
    query,
    rest: match.rest,
    key: {
      id: job.keyId,
      role: "client",
      classes: [job.class],
      weight: job.weight,
      limits: deps.limitsOf(job.keyId),
      allowExternal: job.allowExternal,
      // Judged when the job was accepted; the work that was accepted is done.
      allowsModel: () => true,
    },
    dialect: match.route.dialect,
    arrivedAt: deps.clock.mono(),
    arrivedWall: deps.clock.wall(),
    jobSite: job.lastError?.code === "GPU_SATURATED" ? "jobAgain" : "job",
  };
}

const NOTHING = Buffer.alloc(0);

function readEnd(end: CollectedEnd, event: AuditEvent | null, bytesMax: number, now: number): JobCallEnd {
  const none = { status: 0, contentType: "", body: NOTHING, event };
  switch (end.kind) {
    case "whole": {
      const contentType = headerValue(end.headers, "content-type") ?? "application/octet-stream";
      const report: CallReport = { kind: "answered", status: end.status, outcome: event?.outcome ?? null };
      return { report, status: end.status, contentType, body: end.body, event };
    }
    case "refused": {
      const message = errorMessage(end.body);
      const retryAfterMs = parseRetryAfter(headerValue(end.headers, "retry-after") ?? "", now) ?? 0;
      const unreached = message === UNREACHED_MESSAGE && event?.attempts === 1;
      return { ...none, report: { kind: "refused", code: end.code, message, retryAfterMs, unreached } };
    }
    case "tooLarge":
      return { ...none, report: { kind: "tooLarge", bytesMax } };
    case "brokenOff":
    case "aborted":
      return { ...none, report: { kind: "brokenOff", code: event?.errorCode ?? null } };
    default:
      return end satisfies never;
  }
}

function errorMessage(body: Buffer): string {
  const parsed: unknown = JSON.parse(body.toString("utf8"));
  const error = (parsed as { error?: { message?: unknown } }).error;
  return typeof error?.message === "string" ? error.message : "";
}
