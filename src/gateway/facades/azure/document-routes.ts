import type { GatewayConfig } from "../../../contract/gateway-config.ts";
import { formatListen } from "../../../contract/listen-address.ts";
import {
  readAnalyzeTarget,
  readResultTarget,
  resultPath,
  type AnalyzeTarget,
  type PathReading,
} from "../../../decide/facades/azure/analyze-paths.ts";
import { clientOrigin } from "../../../decide/facades/azure/client-origin.ts";
import type { RequestClass } from "../../../contract/request-class.ts";
import { readDocument } from "../../../decide/facades/azure/document.ts";
import { OperationReader } from "../../../decide/facades/azure/operation.ts";
import { viewOperation } from "../../../decide/facades/azure/operation-view.ts";
import { refusalOfOcrQuery } from "../../../decide/facades/azure/plain-ocr-query.ts";
import { renderRetryAfter } from "../../../decide/http/retry-after.ts";
import { isOpen } from "../../../contract/job.ts";
import { ERRORS, YardmasterError, type ErrorCode } from "../../../kernel/errors.ts";
import type { KeyLimiter } from "../../limits/key-limiter.ts";
import { headerValue } from "../../calls/answer-headers.ts";
import type { CallDeps } from "../../calls/call-deps.ts";
import { recordRefusal } from "../../calls/call-record.ts";
import { readCallHead, type CallGate, type CallHead } from "../../http/call-head.ts";
import type { RequestContext } from "../../http/request-context.ts";
import { collectBody, refusalOfBody, type WholeBody } from "../../http/request-body.ts";
import { sendFailure } from "../../http/send-error.ts";
import type { GpuShedder } from "../../gpu/gpu-shedder.ts";
import type { Upstream } from "../../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../../upstreams/upstream-registry.ts";
import type { JobRead } from "../../../coord/jobs/job-store.ts";
import type { JobOrder, JobService } from "../../jobs/job-service.ts";
import { fingerprintBody } from "../../replay/fingerprint-body.ts";

export interface DocumentRoutesDeps extends CallDeps, CallGate {
  readonly limiter: KeyLimiter;
  readonly registry: UpstreamRegistry;
  readonly config: () => GatewayConfig;
  readonly jobs: () => JobService;
  readonly shedder: () => GpuShedder | null;
}

const NOTHING_DONE = { outcome: "ok", attempts: 0, usage: null } as const;

/** For the first look: an analysis takes seconds. */
const RETRY_AFTER_MS = 1_000;

/**
 * Azure's Document Intelligence before durable jobs: a submission is a job, its `Operation-Location` names the job at this
 * gateway's own address, and any gateway that knows the job answers for it.
 */
export class DocumentRoutes {
  readonly #deps: DocumentRoutesDeps;
  #arriving = 0;

  constructor(deps: DocumentRoutesDeps) {
    this.#deps = deps;
  }

  /** Submissions whose body is still coming, or whose job is being written down. */
  get arriving(): number {
    return this.#arriving;
  }

  /** `POST …/documentModels/{model}:analyze`. */
  submit(context: RequestContext, expectsContinue: boolean): void {
    this.#arriving += 1;
    void this.#submit(context, expectsContinue)
      // One that was accepted ends in the record of its job.
      .catch((error: unknown) => recordRefusal(this.#deps, context, this.#fail(context, error)))
      .finally(() => (this.#arriving -= 1));
  }

  /** `GET` and `DELETE …/documentModels/{model}/analyzeResults/{id}`. */
  result(context: RequestContext): void {
    void (context.req.method === "DELETE" ? this.#remove(context) : this.#look(context)).catch((error: unknown) =>
      this.#fail(context, error),
    );
  }

  async #submit(context: RequestContext, expectsContinue: boolean): Promise<void> {
    const target = read(readAnalyzeTarget(context.path, context.query));
    const upstream = this.#upstreamFor(context, target);
    const asked = readCallHead(context, this.#deps);
    if (asked.kind === "refused") throw new Refusal(asked.code, asked.why, { upstream });
    const entered = this.#deps.limiter.enter(context.key);
    if (entered.kind === "limited")
      throw new Refusal(entered.refusal.code, entered.refusal.message, {
        upstream,
        retryAfterMs: entered.refusal.retryAfterMs,
      });
    try {
      using body = await this.#readBody(context, upstream, expectsContinue);
      if (this.#deps.draining()) throw new Refusal("DRAINING", "the gateway is stopping", { upstream });
      this.#checkSaturation(upstream, asked);
      const contentType = headerValue(context.req.rawHeaders, "content-type") ?? "";
      this.#checkDocument(contentType, body.chunks, upstream);
      const order = await orderOf(context, target, upstream, asked, contentType, body.chunks);
      const { job, replayed } = await this.#deps.jobs().submit(order, context.key);
      this.#sendAccepted(context, upstream, `${this.#originOf(context)}${resultPath(target, job.id)}`, replayed);
    } finally {
      // What the work comes to is counted by the job's call.
      if (entered.kind === "held") entered.hold.settle(NOTHING_DONE);
    }
  }

  /** One with a key may have been accepted before, which only the store of the jobs knows: it waits there, as other jobs do. */
  #checkSaturation(upstream: Upstream, asked: Extract<CallHead, { kind: "ok" }>): void {
    if (asked.idempotencyKey !== null) return;
    const shed = this.#deps.shedder()?.ask(upstream, asked.class, "document") ?? null;
    if (shed === null) return;
    const { message, retryAfterMs } = shed;
    throw new Refusal("GPU_SATURATED", message, { upstream, retryAfterMs, shed: asked.class });
  }

  #upstreamFor(context: RequestContext, target: AnalyzeTarget): Upstream {
    const { modelId } = target;
    const upstream = this.#deps.registry.byModel(modelId);
    if (upstream?.settings.kind !== "azure-di")
      throw new Refusal("MODEL_UNKNOWN", `no upstream analyses documents with the model ${modelId}`, {
        param: "modelId",
      });
    if (!context.key.allowsModel(modelId))
      throw new Refusal("MODEL_FORBIDDEN", `this key may not use the model ${modelId}`, { param: "modelId" });
    if (upstream.settings.external && !context.key.allowExternal)
      throw new Refusal("EXTERNAL_UPSTREAM_FORBIDDEN", "this key's data may not leave the house", { upstream });
    const refusal = upstream.settings.engine === "ocr" ? refusalOfOcrQuery(target, context.query) : undefined;
    if (refusal !== undefined) throw new Refusal("BAD_REQUEST", refusal, { upstream });
    return upstream;
  }

  async #readBody(context: RequestContext, upstream: Upstream, expectsContinue: boolean): Promise<WholeBody> {
    const { clock, wheel, budget, config } = this.#deps;
    const { maxBodyBytes, http } = config();
    const encoding = headerValue(context.req.rawHeaders, "content-encoding")?.toLowerCase() ?? "identity";
    if (encoding !== "identity")
      throw new Refusal("BAD_REQUEST", "a compressed body can't be checked: send it uncompressed", { upstream });
    const limits = { bytesMax: maxBodyBytes, idleMs: http.bodyIdleMs };
    const end = await collectBody(context, expectsContinue, { clock, wheel, budget, ...limits });
    if (end.kind === "whole") return end;
    throw new Refusal(...refusalOfBody(end, "document", "max_body_bytes"), { upstream });
  }

  #checkDocument(contentType: string, chunks: readonly Buffer[], upstream: Upstream): void {
    const document = readDocument(contentType, chunks);
    if (document.kind === "bad")
      throw new Refusal(document.status === 415 ? "MEDIA_TYPE_UNSUPPORTED" : "BAD_REQUEST", document.why, {
        upstream,
        param: document.inner,
      });
    if (document.kind === "url" && upstream.settings.engine === "ocr")
      throw new Refusal(
        "BAD_REQUEST",
        "the engine behind this model fetches nothing: send the document itself, not `urlSource`",
        { upstream, param: "urlSource" },
      );
  }

  #sendAccepted(context: RequestContext, upstream: Upstream, location: string, replayed: boolean): void {
    const headers = [
      "operation-location",
      location,
      "retry-after",
      renderRetryAfter(RETRY_AFTER_MS),
      "x-request-id",
      context.requestId,
      "apim-request-id",
      context.requestId,
      "x-yardmaster-upstream",
      upstream.settings.id,
      ...(replayed ? ["idempotent-replayed", "true"] : []),
    ];
    context.res.sendWhole(202, headers, "");
  }

  async #look(context: RequestContext): Promise<void> {
    const { job, now } = await this.#find(context);
    const kept = job.result === null ? undefined : await this.#bytesOf(job.id, context);
    // What the analyzer itself said of the operation goes on as it is, also that it failed.
    if (kept !== undefined && (job.state === "completed" || saysFailed(kept))) return sendJson(context, kept, null);
    const view = viewOperation({ ...job, now }, kept === undefined ? null : kept.toString("utf8", 0, ANSWER_BYTES_MAX));
    sendJson(context, view.text, view.retryAfterMs);
  }

  async #bytesOf(id: string, context: RequestContext): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of (await this.#deps.jobs().result(id, context.key)).pieces()) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  /** One under way is called off, and its analyzer told; of one that has ended, also in this moment, nothing is kept. */
  async #remove(context: RequestContext): Promise<void> {
    const { job } = await this.#find(context);
    const calledOff =
      isOpen(job.state) && (await this.#deps.jobs().cancel(job.id, context.key)).job.state === "cancelled";
    if (!calledOff) await this.#deps.jobs().forget(job.id, context.key);
    context.res.sendWhole(204, ["x-request-id", context.requestId], "");
  }

  /** By its whole address: an id under another model's is none. */
  async #find(context: RequestContext): Promise<JobRead> {
    const { family, modelId, resultId } = read(readResultTarget(context.path, context.query));
    const found = await this.#deps.jobs().get(resultId, context.key);
    if (!found.job.path.startsWith(`/${family}/documentModels/${modelId}:analyze?`))
      throw new Refusal("JOB_UNKNOWN", ERRORS.JOB_UNKNOWN.meaning);
    return found;
  }

  #originOf({ req }: RequestContext): string {
    const raw = req.rawHeaders;
    return clientOrigin(
      {
        host: headerValue(raw, "host"),
        forwardedHost: headerValue(raw, "x-forwarded-host"),
        forwardedProto: headerValue(raw, "x-forwarded-proto"),
      },
      formatListen(this.#deps.config().listen),
    );
  }

  #fail(context: RequestContext, error: unknown): Failure {
    const { upstream, param, retryAfterMs, shed }: RefusalFacts = error instanceof Refusal ? error.facts : {};
    const upstreamId = upstream?.settings.id;
    const told = sendFailure(context, error, this.#deps, { param, retryAfterMs, upstreamId });
    return { ...told, upstream: upstream ?? null, class: shed ?? null, shed: shed !== undefined };
  }
}

interface Failure {
  readonly code: ErrorCode;
  readonly status: number;
  readonly upstream: Upstream | null;
  readonly class: RequestClass | null;
  readonly shed: boolean;
}

interface RefusalFacts {
  readonly upstream?: Upstream;
  readonly param?: string;
  readonly retryAfterMs?: number;
  /** The class that is refused while the GPUs are saturated. */
  readonly shed?: RequestClass;
}

class Refusal extends YardmasterError {
  readonly facts: RefusalFacts;

  constructor(code: ErrorCode, message: string, facts: RefusalFacts = {}) {
    super(code, message);
    this.facts = facts;
  }
}

async function orderOf(
  context: RequestContext,
  target: AnalyzeTarget,
  upstream: Upstream,
  asked: Extract<CallHead, { kind: "ok" }>,
  contentType: string,
  chunks: readonly Buffer[],
): Promise<JobOrder> {
  const path = context.path + context.query;
  return {
    class: asked.class,
    model: target.modelId,
    upstream: upstream.settings.id,
    method: "POST",
    path,
    contentType,
    parts: null,
    allowPartial: false,
    onShed: "requeue",
    metadata: null,
    callbackUrl: null,
    deadlineMs: asked.timeoutMs,
    blobs: new Map([["body", Buffer.concat(chunks)]]),
    idempotency:
      asked.idempotencyKey === null
        ? null
        : {
            key: asked.idempotencyKey,
            route: context.route.pattern,
            fingerprint: `${path} ${contentType} ${await fingerprintBody(chunks, { kind: "unknown" })}`,
          },
  };
}

/** Of an answer that is looked into for its words. */
const ANSWER_BYTES_MAX = 65_536;

function saysFailed(bytes: Buffer): boolean {
  const reader = new OperationReader();
  reader.push(bytes);
  return reader.end().kind === "failed";
}

function sendJson(context: RequestContext, body: Buffer | string, retryAfterMs: number | null): void {
  const headers = ["content-type", "application/json; charset=utf-8", "cache-control", "no-store"];
  headers.push("x-content-type-options", "nosniff", "x-request-id", context.requestId);
  if (retryAfterMs !== null) headers.push("retry-after", renderRetryAfter(retryAfterMs));
  context.res.sendWhole(200, headers, body);
}

function read<T>(reading: PathReading<T>): T {
  if (reading.kind === "unknown") throw new Refusal("ROUTE_UNKNOWN", "there is no such route");
  if (reading.kind === "bad") throw new Refusal("BAD_REQUEST", reading.why);
  return reading.value;
}
