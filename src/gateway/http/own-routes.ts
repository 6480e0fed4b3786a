import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { gpuClearBody } from "../../contract/gpu-health-view.ts";
import type { OverflowStateView } from "../../contract/overflow-view.ts";
import { decodeId } from "../../decide/http/request-line.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import { isoTime, type Clock, type EpochMs } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { actAudited, takeAwayAudited } from "../audit/admin-event.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { ChainStore } from "../../audit/audit-chain.ts";
import { readChainPage } from "../../audit/read-chain-page.ts";
import { parseAuditQuery, renderAuditPage } from "../audit/audit-route.ts";
import { createKey, listKeys, revokeKey, rotateKey, type KeyAdmin, type KeyChange } from "../auth/admin-keys.ts";
import { headerValue } from "../calls/answer-headers.ts";
import type { GpuHealth } from "../gpu/gpu-health.ts";
import type { JobsHealth } from "../jobs/open-jobs.ts";
import type { Registry } from "../../metrics/registry.ts";
import { CONTENT_TYPE, negotiateFormat } from "../../metrics/render.ts";
import type { UsageReader } from "../usage/usage-reader.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import type { FeedView } from "../feed/feed-client.ts";
import type { CoordinationHealth } from "../open-coordination.ts";
import { feedHealth, upstreamHealth } from "../views/health-view.ts";
import { findModel, listModels } from "../views/models-view.ts";
import { readAdminBody } from "./admin-body.ts";
import type { RequestContext } from "./request-context.ts";
import type { BatchHandler, DocumentHandler, Handler, JobHandler, OverflowHandler } from "./routes.ts";
import { hasUnreadBody, sendFailure } from "./send-error.ts";

export interface OwnRoutesDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly registry: UpstreamRegistry;
  readonly audit: AuditSink;
  readonly chain: ChainStore;
  readonly metricsRegistry: Registry;
  readonly keyAdmin: () => KeyAdmin;
  readonly usage: UsageReader;
  readonly config: () => GatewayConfig;
  readonly draining: () => boolean;
  readonly lastReload: () => { readonly ok: boolean; readonly message: string | null };
  readonly coordination: () => CoordinationHealth;
  readonly jobs: () => JobsHealth;
  /** The logic of each upstream that may overflow, with its values. */
  readonly overflow: () => Promise<readonly OverflowStateView[]>;
  /** Null where no control plane is followed. */
  readonly feed: (() => { readonly view: FeedView; readonly warnings: readonly string[] }) | null;
  /** Null while no card is looked at. */
  readonly gpuHealth: () => GpuHealth | null;
  readonly startedAt: EpochMs;
  readonly version: string;
}

/** What is answered here; the others have handlers of their own. */
export type OwnHandler = Exclude<
  Handler,
  "inference" | "upstream" | DocumentHandler | JobHandler | BatchHandler | OverflowHandler
>;

/** The gateway's own answers: what it is, how it is, and what an operator may ask of it. */
export class OwnRoutes {
  readonly #deps: OwnRoutesDeps;

  constructor(deps: OwnRoutesDeps) {
    this.#deps = deps;
  }

  handle(context: RequestContext, handler: OwnHandler): void {
    this.#answer(context, handler).catch((error: unknown) => sendFailure(context, error, this.#deps));
  }

  async #answer(context: RequestContext, handler: OwnHandler): Promise<void> {
    const { registry, startedAt, audit, clock } = this.#deps;
    switch (handler) {
      case "healthz":
        return sendText(context, 200, "ok\n");
      case "readyz":
        return this.#readyz(context);
      case "health":
        return sendJson(context, 200, { ...this.#health(), overflow: await this.#deps.overflow() });
      case "metrics": {
        const format = negotiateFormat(headerValue(context.req.rawHeaders, "accept"));
        return send(context, 200, CONTENT_TYPE[format], this.#deps.metricsRegistry.render(format));
      }
      case "models":
        return sendJson(context, 200, { object: "list", data: listModels(registry, context.key, startedAt) });
      case "model": {
        const id = decodeId(context.rest) ?? context.rest;
        const card = findModel(registry, context.key, id, startedAt);
        if (card === undefined)
          throw new YardmasterError("MODEL_UNKNOWN", `the model ${JSON.stringify(id.slice(0, 200))} does not exist`);
        return sendJson(context, 200, card);
      }
      case "auditQuery": {
        const parsed = parseAuditQuery(new URLSearchParams(context.query), clock.wall());
        if (parsed.kind === "bad") throw new YardmasterError("BAD_REQUEST", parsed.why);
        return send(context, 200, "application/json", renderAuditPage(await audit.query(parsed.query)));
      }
      case "usage": {
        const { type, text, headers } = await this.#deps.usage.answer(new URLSearchParams(context.query), context.key);
        return send(context, 200, type, text, headers);
      }
      case "auditChain":
        return sendJson(context, 200, await readChainPage(this.#deps.chain, new URLSearchParams(context.query)));
      case "keysList":
        return sendJson(context, 200, listKeys(this.#deps.keyAdmin()));
      case "keysNew":
        return this.#changeKey(
          context,
          201,
          createKey(this.#deps.keyAdmin(), await readAdminBody(context.req, this.#deps)),
        );
      case "keyRevoke":
        return this.#changeKey(context, 200, revokeKey(this.#deps.keyAdmin(), keyIdOf(context)));
      case "keyRotate":
        return this.#changeKey(
          context,
          200,
          rotateKey(this.#deps.keyAdmin(), keyIdOf(context), await readAdminBody(context.req, this.#deps)),
        );
      case "gpus":
        return sendJson(context, 200, this.#gpuHealth().view());
      case "gpuClear":
        return this.#clearGpu(context);
      default:
        assertNever(handler, "handler");
    }
  }

  async #changeKey<T extends object>(
    context: RequestContext,
    status: number,
    { id, act }: KeyChange<T>,
  ): Promise<void> {
    const { handler } = context.route;
    const what = `/admin/keys/${id}${handler === "keyRotate" ? "/rotate" : ""}`;
    const done = await (handler === "keyRevoke"
      ? takeAwayAudited(this.#deps, context, what, act)
      : actAudited(this.#deps, context, what, status, act));
    sendJson(context, status, { ...done, sharing: this.#deps.coordination().gateways });
  }

  #gpuHealth(): GpuHealth {
    const gpuHealth = this.#deps.gpuHealth();
    if (gpuHealth === null)
      throw new YardmasterError(
        "GPU_UNKNOWN",
        "this gateway looks at no GPU: its configuration has neither `gpu_health` nor a control plane",
      );
    return gpuHealth;
  }

  async #clearGpu(context: RequestContext): Promise<void> {
    const body = gpuClearBody.safeParse(await readAdminBody(context.req, this.#deps));
    if (!body.success) throw new YardmasterError("BAD_REQUEST", 'the body is not {"gpu": NAME}');
    const { gpu } = body.data;
    const known = this.#gpuHealth().count(gpu);
    if (known === undefined)
      throw new YardmasterError("BAD_REQUEST", "gpu: is no name of a card: use a UUID, or host/index");
    if (known === 0) throw new YardmasterError("GPU_UNKNOWN", "no source has told of a GPU of this name");
    const cleared = await actAudited(this.#deps, context, `/admin/gpus/clear/${gpu}`, 200, () =>
      this.#gpuHealth().clear(gpu),
    );
    this.#deps.log.warn("gpu.cleared", { gpu, by: context.key.id });
    sendJson(context, 200, { gpu, cleared });
  }

  #readyz(context: RequestContext): void {
    if (this.#deps.draining()) throw new YardmasterError("DRAINING", "the gateway is stopping");
    const upstreams = this.#deps.registry.all();
    const able = upstreams.filter((upstream) => upstream.unavailable("", true) === null).length;
    if (this.#deps.feed?.().view.state === "nothing_known" && able === 0)
      throw new YardmasterError("UPSTREAM_UNAVAILABLE", "no control plane has told yet what there is to serve");
    if (upstreams.length > 0 && able === 0)
      throw new YardmasterError("UPSTREAM_UNAVAILABLE", "no upstream has an endpoint that can take work");
    sendText(context, 200, `ready: ${able} of ${upstreams.length} upstreams can take work\n`);
  }

  #health(): Record<string, unknown> {
    const { registry, clock, startedAt, version } = this.#deps;
    const now = clock.mono();
    const feed = this.#deps.feed?.() ?? null;
    return {
      version,
      started_at: isoTime(startedAt),
      coordination: this.#deps.coordination(),
      control: feedHealth(feed?.view ?? null, feed?.warnings ?? []),
      draining: this.#deps.draining(),
      config: this.#deps.lastReload(),
      audit: this.#deps.audit.stats(),
      jobs: this.#deps.jobs(),
      gpu_health: this.#deps.gpuHealth()?.view() ?? null,
      upstreams: registry.shown().map((upstream) => upstreamHealth(upstream, now)),
    };
  }
}

const keyIdOf = (context: RequestContext): string => decodeId(context.rest) ?? context.rest;

function send(
  context: RequestContext,
  status: number,
  contentType: string,
  text: string,
  more: readonly string[] = [],
): void {
  const headers = [
    "content-type",
    contentType,
    "cache-control",
    "no-store",
    "x-content-type-options",
    "nosniff",
    "x-request-id",
    context.requestId,
    ...more,
  ];
  if (hasUnreadBody(context.req)) headers.push("connection", "close");
  context.res.sendWhole(status, headers, text);
}

const sendText = (context: RequestContext, status: number, text: string): void =>
  send(context, status, "text/plain; charset=utf-8", text);
const sendJson = (context: RequestContext, status: number, value: unknown): void =>
  send(context, status, "application/json", JSON.stringify(value));
