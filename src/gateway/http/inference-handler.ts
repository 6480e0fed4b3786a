import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { Role } from "../../contract/roles.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { BodyForm } from "../../decide/idempotency/body-fingerprint.ts";
import { planReplay, remembers } from "../../decide/replay/plan-replay.ts";
import { bytesOf } from "../../decide/http/json-splice.ts";
import { parseBoundary } from "../../decide/http/multipart-reader.ts";
import type { Bag } from "../../kernel/bag.ts";
import { estimateTokens, NO_ESTIMATE, promptsIn, type Estimate } from "../../decide/limits/estimate-tokens.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { AdmittedCall } from "../calls/admitted-call.ts";
import { affinityWish } from "../calls/affinity-wish.ts";
import { headerValue } from "../calls/answer-headers.ts";
import type { CallDeps } from "../calls/call-deps.ts";
import { recordRefusal } from "../calls/call-record.ts";
import type { PreparedRequest } from "../calls/prepared-request.ts";
import { translateRerank } from "../calls/rerank-translation.ts";
import type { KeyLimiter } from "../limits/key-limiter.ts";
import type { GpuShedder } from "../gpu/gpu-shedder.ts";
import type { CallRoute, OverflowCalls } from "../overflow/overflow-calls.ts";
import type { ReplayDesk } from "../replay/replay-desk.ts";
import type { OnEnded } from "../replay/replay-run.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import { BodyMemory } from "./body-memory.ts";
import { OPAQUE, scannerFor, type BodyScanner, type Scanned } from "./body-scanner.ts";
import { readCallHead, type CallGate } from "./call-head.ts";
import { refusalOfBody, RequestBody, type BodyEnd } from "./request-body.ts";
import type { RequestContext } from "./request-context.ts";
import { sendError } from "./send-error.ts";

export interface InferenceDeps extends CallDeps, CallGate {
  readonly registry: UpstreamRegistry;
  readonly limiter: KeyLimiter;
  readonly config: () => GatewayConfig;
  /** Calls that wait or run, so that a stop can wait for them. */
  readonly calls: Bag<AdmittedCall>;
  readonly replays: ReplayDesk;
  /** A control plane is to say what there is, and none has yet: a name that is not known may become known. */
  readonly catalogPending: () => boolean;
  /** Null while no card is looked at. */
  readonly shedder: () => GpuShedder | null;
  /** Null: every call goes to its own upstream. */
  readonly overflow: () => OverflowCalls | null;
}

/** Scores tell of load and addresses, so they are not for everybody. */
const EXPLAINED_TO: ReadonlySet<Role> = new Set(["operator", "admin"]);
const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/** A request whose head is good, on the way to an upstream. */
interface Arriving {
  readonly context: RequestContext;
  readonly class: RequestClass;
  readonly deadline: MonoMs | undefined;
  /** Null for routes whose upstream the body's model names. */
  readonly upstream: Upstream | null;
  readonly path: string;
  readonly idempotencyKey: string | null;
}

/** A request that is read and allowed, and whose upstream is known. */
interface Arrived {
  readonly arriving: Arriving;
  readonly upstream: Upstream;
  readonly model: string;
  readonly scanned: Exclude<Scanned, { kind: "bad" }>;
  readonly chunks: readonly Buffer[];
  readonly bytes: number;
  readonly hasBody: boolean;
  readonly memory: BodyMemory;
  readonly refuse: (code: ErrorCode, why: string, facts?: RefusalFacts) => void;
}

/** Routes by the body's model, and `/upstreams/{id}/…`: reads the body, finds the upstream, asks for a slot. */
export class InferenceHandler {
  readonly #deps: InferenceDeps;
  #arriving = 0;

  constructor(deps: InferenceDeps) {
    this.#deps = deps;
  }

  /** Requests whose body is still coming, or that wait for another's answer, so that a stop can wait for them to be told. */
  get arriving(): number {
    return this.#arriving + this.#deps.replays.waiting;
  }

  /** A route whose model stands in the body. */
  handleModelRoute(context: RequestContext, expectsContinue: boolean): void {
    this.#begin(context, null, context.path, expectsContinue);
  }

  /** `/upstreams/{id}/path`. */
  handleUpstreamRoute(context: RequestContext, expectsContinue: boolean): void {
    const slash = context.rest.indexOf("/");
    const id = slash < 0 ? context.rest : context.rest.slice(0, slash);
    const upstream = this.#deps.registry.byId(id);
    if (upstream === undefined || upstream.settings.kind !== "http") {
      this.#refuse(context, "UPSTREAM_UNKNOWN", `there is no upstream ${JSON.stringify(id)} of kind http`, {
        param: "id",
      });
      return;
    }
    const allowed =
      context.key.allowsModel(id) || upstream.settings.models.some((model) => context.key.allowsModel(model));
    if (!allowed)
      this.#refuse(context, "MODEL_FORBIDDEN", `this key may not use the upstream ${JSON.stringify(id)}`, { upstream });
    else this.#begin(context, upstream, slash < 0 ? "/" : context.rest.slice(slash), expectsContinue);
  }

  /** A job's call to an upstream by its id; whether the key may was judged when the job was accepted. */
  handleJobUpstream(context: RequestContext, id: string, path: string): void {
    const upstream = this.#deps.registry.byId(id);
    if (upstream === undefined)
      this.#refuse(context, "UPSTREAM_UNAVAILABLE", `the upstream ${JSON.stringify(id)} is not configured`, {});
    else this.#begin(context, upstream, path, false);
  }

  #begin(context: RequestContext, upstream: Upstream | null, path: string, expectsContinue: boolean): void {
    const head = readCallHead(context, this.#deps);
    if (head.kind === "refused") {
      const facts = head.shed === undefined ? { upstream } : { upstream, class: head.shed, shed: true };
      return this.#refuse(context, head.code, head.why, facts);
    }
    const entered = this.#deps.limiter.enter(context.key);
    if (entered.kind === "limited") {
      const { code, message, retryAfterMs } = entered.refusal;
      return this.#refuse(context, code, message, { upstream, class: head.class, retryAfterMs });
    }
    const held = entered.kind === "held" ? { ...context, hold: entered.hold } : context;
    const { class: requestClass, timeoutMs, idempotencyKey } = head;
    const deadline = timeoutMs === null ? undefined : asMono(context.arrivedAt + timeoutMs);
    this.#readBody({ context: held, class: requestClass, deadline, upstream, path, idempotencyKey }, expectsContinue);
  }

  #readBody(arriving: Arriving, expectsContinue: boolean): void {
    const { context, upstream } = arriving;
    const raw = context.req.rawHeaders;
    const scanner =
      upstream === null
        ? scannerFor(headerValue(raw, "content-type"), headerValue(raw, "content-encoding"), context.hold !== undefined)
        : OPAQUE;
    if (scanner.kind === "bad") return this.#refuse(context, scanner.code, scanner.why, { upstream });
    const { clock, wheel, budget } = this.#deps;
    const config = this.#deps.config();
    const body = new RequestBody(context.req, {
      clock,
      wheel,
      budget,
      bytesMax: config.maxBodyBytes,
      idleMs: config.http.bodyIdleMs,
    });
    this.#arriving += 1;
    body.collect(
      expectsContinue ? context.res : null,
      (chunk) => scanner.scanner.push(chunk),
      (end) => {
        this.#arriving -= 1;
        this.#onBody(arriving, scanner.scanner, body, end);
      },
    );
  }

  #onBody(arriving: Arriving, scanner: BodyScanner, body: RequestBody, end: BodyEnd): void {
    const { context } = arriving;
    const memory = new BodyMemory(end.kind === "whole" ? end.chunks : [], () =>
      this.#deps.budget.give(body.takenBytes),
    );
    const refuse = (code: ErrorCode, why: string, facts: RefusalFacts = {}): void => {
      memory.free(false);
      this.#refuse(facts.context ?? context, code, why, {
        class: arriving.class,
        upstream: arriving.upstream,
        ...facts,
      });
    };
    if (end.kind !== "whole") return refuse(...refusalOfBody(end, "body", "max_body_bytes"));
    if (this.#deps.draining()) return refuse("DRAINING", "the gateway is stopping");
    const scanned = scanner.end();
    if (scanned.kind === "bad") return refuse(scanned.code, scanned.why, { param: scanned.param });
    const model = scanned.kind === "opaque" ? "" : scanned.model;
    const upstream = arriving.upstream ?? this.#deps.registry.byModel(model);
    if (upstream === undefined && this.#deps.catalogPending())
      return refuse("UPSTREAM_UNAVAILABLE", "no control plane has told yet which models there are", { param: "model" });
    if (upstream === undefined || (arriving.upstream === null && upstream.settings.kind !== "openai")) {
      return refuse("MODEL_UNKNOWN", `the model ${JSON.stringify(model.slice(0, 200))} does not exist`, {
        param: "model",
      });
    }
    if (arriving.upstream === null && !context.key.allowsModel(model)) {
      return refuse("MODEL_FORBIDDEN", `this key may not use the model ${JSON.stringify(model.slice(0, 200))}`, {
        param: "model",
      });
    }
    if (upstream.settings.external && !context.key.allowExternal) {
      return refuse("EXTERNAL_UPSTREAM_FORBIDDEN", "this key's data may not leave the house", { upstream });
    }
    const { chunks, bytes } = end;
    const hasBody = body.length !== "none";
    this.#count({ arriving, upstream, model, scanned, chunks, bytes, hasBody, memory, refuse });
  }

  /** Against the limits of the key, which may take a step of the store that gateways share. */
  #count(arrived: Arrived): void {
    const { arriving, upstream, scanned, chunks, bytes, refuse } = arrived;
    const { hold, res, route } = arriving.context;
    if (hold === undefined) return this.#proceed(arrived);
    const estimate = scanned.kind === "json" ? estimateOf(scanned, chunks, bytes, route) : NO_ESTIMATE;
    this.#arriving += 1;
    hold.reserve(estimate, upstream.settings.price, (refusal) => {
      this.#arriving -= 1;
      if (refusal !== null)
        return refuse(refusal.code, refusal.message, { upstream, retryAfterMs: refusal.retryAfterMs });
      const over = this.#whyOver(res);
      return over === null ? this.#proceed(arrived) : refuse(...over);
    });
  }

  /** What has happened to a request while it waited to be counted or routed. */
  #whyOver(res: RequestContext["res"]): readonly [code: ErrorCode, why: string] | null {
    if (res.gone) return ["CLIENT_CLOSED", "the client left before its request was admitted"];
    return this.#deps.draining() ? ["DRAINING", "the gateway is stopping"] : null;
  }

  /** To memory where the request has to do with one, else straight on to admission. */
  #proceed(arrived: Arrived): void {
    const { arriving, upstream, model, scanned, chunks, bytes, refuse } = arrived;
    const { context } = arriving;
    if (arriving.idempotencyKey === null && !remembers(upstream.settings)) return this.#admit(arrived, context, null);
    const raw = context.req.rawHeaders;
    const plan = planReplay(
      {
        method: context.req.method,
        path: arriving.path,
        idempotencyKey: arriving.idempotencyKey,
        cacheControl: headerValue(raw, "cache-control"),
        pragma: headerValue(raw, "pragma"),
        personal: asksForPlaces(raw) || this.#asksForChoice(context),
      },
      upstream.settings,
    );
    if (plan === null) return this.#admit(arrived, context, null);
    this.#deps.replays.take({
      context,
      upstream,
      class: arriving.class,
      model,
      path: arriving.path,
      chunks,
      bytes,
      form: bodyForm(scanned, headerValue(raw, "content-type")),
      deadline: arriving.deadline,
      plan,
      admit: (res, onEnded) => this.#admit(arrived, { ...context, res }, onEnded),
      refuse: (code, message, retryAfterMs) =>
        refuse(code, message, { upstream, ...(retryAfterMs !== undefined && { retryAfterMs }) }),
      done: () => {
        arrived.memory.free(false);
      },
    });
  }

  #admit(arrived: Arrived, context: RequestContext, onEnded: OnEnded | null): void {
    const { arriving, upstream } = arrived;
    const overflow = this.#deps.overflow();
    const isJob = context.jobSite !== undefined;
    const policy = overflow?.concerns(upstream, arriving.class, arriving.path, isJob) ?? null;
    if (overflow === null || policy === null) return this.#admitTo(arrived, context, onEnded, null);
    this.#arriving += 1;
    const call = {
      requestId: context.requestId,
      keyId: context.key.id,
      allowExternal: context.key.allowExternal,
      model: arrived.model,
      path: arriving.path,
      chunks: arrived.chunks,
    };
    void overflow.route(policy, call).then((route) => {
      this.#arriving -= 1;
      const over = this.#whyOver(context.res);
      if (over === null) this.#admitTo(arrived, context, onEnded, route);
      else refuserOf(arrived, context, onEnded, route)(...over);
    });
  }

  /** `route`: where it goes instead of its own upstream. */
  #admitTo(arrived: Arrived, context: RequestContext, onEnded: OnEnded | null, route: CallRoute | null): void {
    const { arriving, model, scanned, chunks, bytes, hasBody, memory } = arrived;
    const upstream = route?.upstream ?? arrived.upstream;
    const refuse = refuserOf(arrived, context, onEnded, route);
    const away = upstream.unavailable(model, false);
    if (away !== null)
      return refuse("UPSTREAM_UNAVAILABLE", `no endpoint can take work: ${away.reason}`, {
        upstream,
        retryAfterMs: away.retryAfterMs,
      });
    const site = context.jobSite ?? "sync";
    const shed = this.#deps.shedder()?.ask(upstream, arriving.class, site) ?? null;
    if (shed !== null)
      return refuse("GPU_SATURATED", shed.message, {
        upstream,
        retryAfterMs: shed.retryAfterMs,
        shed: site !== "jobAgain",
      });
    const rerank =
      scanned.kind === "json"
        ? translateRerank(upstream.adapter, arriving.path, chunks, bytes, context.requestId)
        : AS_IT_IS;
    if (rerank.kind === "invalid") return refuse(rerank.code, rerank.why, { upstream });
    const translated = rerank.kind === "translated";
    const request: PreparedRequest = {
      class: arriving.class,
      model,
      method: context.req.method,
      path: arriving.path,
      query: context.query,
      chunks: translated ? [rerank.body] : chunks,
      bytes: translated ? rerank.body.length : hasBody ? bytes : undefined,
      wantsStream: scanned.kind !== "opaque" && scanned.stream && !translated,
      scan: scanned.kind === "json" && !translated ? scanned.scan : null,
      modelAt: scanned.kind === "form" ? scanned.modelAt : null,
      rewriteAnswer: translated ? rerank.rewriteAnswer : null,
      idempotent: upstream.settings.kind !== "http" || SAFE_METHODS.has(context.req.method),
      startsOnce: context.jobSite !== undefined || route?.isPaid === true,
      plainAnswer: onEnded !== null,
      deadline: arriving.deadline,
      goOn: null,
      moveOn: route === null ? () => this.#mover(arrived, context, onEnded) : null,
      wantsQueueEvents: asksForPlaces(context.req.rawHeaders),
      routing: {
        explain: this.#asksForChoice(context),
        affinity: affinityWish(upstream.settings.routing, {
          keyId: context.key.id,
          rawHeaders: context.req.rawHeaders,
          model,
          chunks: scanned.kind === "json" && !translated ? chunks : null,
        }),
      },
      memory,
    };
    if (route === null) return this.#ask(context, upstream, request, onEnded, null);
    // What the tier fails goes on here, where that can be; the client's time has run meanwhile.
    request.goOn = (cause) => {
      const here = arrived.upstream;
      if (!route.failed(cause, here.unavailable(model, false) === null)) return null;
      const until = context.arrivedAt + here.settings.timeouts.totalMs;
      const deadline = asMono(Math.min(arriving.deadline ?? until, until));
      return () => this.#admitTo({ ...arrived, arriving: { ...arriving, deadline } }, context, onEnded, null);
    };
    this.#ask(context, upstream, request, onEnded, route);
  }

  /**
   * The upstream has left the configuration, and its model may be another's now: with the same rights, and not where the answer would be
   * kept as one of the former upstream's.
   */
  #mover(arrived: Arrived, context: RequestContext, onEnded: OnEnded | null): (() => void) | null {
    const upstream = this.#deps.registry.byModel(arrived.model);
    if (arrived.arriving.upstream !== null || upstream === undefined || remembers(arrived.upstream.settings))
      return null;
    const { kind, external } = upstream.settings;
    if (kind !== "openai" || (external && !context.key.allowExternal)) return null;
    return () => this.#admit({ ...arrived, upstream }, context, onEnded);
  }

  #asksForChoice(context: RequestContext): boolean {
    return EXPLAINED_TO.has(context.key.role) && headerValue(context.req.rawHeaders, "x-yardmaster-explain") === "1";
  }

  #ask(
    context: RequestContext,
    upstream: Upstream,
    request: PreparedRequest,
    onEnded: OnEnded | null,
    route: CallRoute | null,
  ): void {
    const raw = context.req.rawHeaders;
    const span = this.#deps.tracer.start(
      headerValue(raw, "traceparent"),
      headerValue(raw, "tracestate"),
      `${request.method} ${context.route.pattern}`,
      context.arrivedWall,
    );
    const deps = route === null ? this.#deps : { ...this.#deps, audit: route.audit };
    const call: AdmittedCall = new AdmittedCall(deps, context, upstream, request, span, (outcome, empty) => {
      this.#deps.calls.delete(call);
      if (outcome !== null) onEnded?.(outcome, empty);
    });
    this.#deps.calls.add(call);
    call.start();
  }

  #refuse(context: RequestContext, code: ErrorCode, message: string, facts: RefusalFacts): void {
    const status = sendError(context, code, message, {
      dialect: context.dialect,
      requestId: context.requestId,
      clock: this.#deps.clock,
      param: facts.param,
      retryAfterMs: facts.retryAfterMs,
      upstreamId: facts.upstream?.settings.id,
      headers: context.hold?.headers,
    });
    recordRefusal(this.#deps, context, {
      upstream: facts.upstream ?? null,
      class: facts.class ?? null,
      code,
      status,
      shed: facts.shed === true,
    });
  }
}

/** Of what has arrived whole: it gives back what the request holds of a tier, and tells who waits for its answer. */
function refuserOf(
  arrived: Arrived,
  context: RequestContext,
  onEnded: OnEnded | null,
  route: CallRoute | null,
): Arrived["refuse"] {
  return (code, why, facts) => {
    route?.cancel(why);
    arrived.refuse(code, why, { context, ...facts });
    onEnded?.("refused", false);
  };
}

interface RefusalFacts {
  /** With the client that a memory has put in the place of the first. */
  readonly context?: RequestContext;
  readonly class?: RequestClass;
  readonly upstream?: Upstream | null;
  readonly param?: string | undefined;
  readonly retryAfterMs?: number;
  readonly shed?: boolean;
}

function estimateOf(
  { scan: { fields } }: Extract<Scanned, { kind: "json" }>,
  chunks: readonly Buffer[],
  bytes: number,
  { streamEnd }: RequestContext["route"],
): Estimate {
  const prompt = fields.get("prompt");
  const prompts = prompt === undefined ? 1 : promptsIn(bytesOf(chunks, prompt));
  return estimateTokens(bytes, streamEnd === "finishReason", (name) => fields.get(name)?.text, prompts);
}

const asksForPlaces = (raw: readonly string[]): boolean => headerValue(raw, "x-yardmaster-queue-events") === "1";

function bodyForm(scanned: Exclude<Scanned, { kind: "bad" }>, contentType: string | undefined): BodyForm {
  if (scanned.kind === "json") return { kind: "json" };
  const boundary = parseBoundary(contentType);
  return boundary.kind === "ok" ? { kind: "form", boundary: boundary.boundary } : { kind: "unknown" };
}

const AS_IT_IS = { kind: "asItIs" } as const;
