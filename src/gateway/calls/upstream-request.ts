import { forwardRequestHeaders } from "../../decide/http/forward-headers.ts";
import { setMembers, spliceBody, type BodyEdit, type ScannedObject } from "../../decide/http/json-splice.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { RequestSpan } from "../../trace/tracer.ts";
import type { UpstreamRequest } from "../upstream/port.ts";
import { engineModelName, type Endpoint } from "../upstreams/endpoint.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import { headerValue } from "./answer-headers.ts";
import type { PreparedRequest } from "./prepared-request.ts";

interface NewMember {
  readonly key: string;
  readonly valueText: string;
}

const STREAM_OPTIONS_PATHS = new Set(["/v1/chat/completions", "/v1/completions"]);
const VIA_1_1 = "1.1 yardmaster";
const VIA_1_0 = "1.0 yardmaster";

/** Whether the engine is asked for usage that the client did not ask for, so that the extra event must be taken out again. */
export const injectsUsage = (upstream: Upstream, request: PreparedRequest): boolean =>
  request.scan !== null && usageMember(upstream, request, request.scan) !== null;

/** The request as one endpoint gets it. Bytes are the client's own; what must change is spliced in. */
export function buildUpstreamRequest(
  upstream: Upstream,
  endpoint: Endpoint,
  request: PreparedRequest,
  context: RequestContext,
  span: RequestSpan | null,
  how: { readonly now: MonoMs; readonly freshConnection: boolean },
): UpstreamRequest {
  const { settings } = upstream;
  const http = settings.kind === "http";
  const edits = editsOf(upstream, endpoint, request);
  const spliced = edits.length === 0 ? null : spliceBody(request.chunks, edits);
  const headers = forwardRequestHeaders(context.req.rawHeaders, {
    mode: http ? "http" : "engine",
    extra: upstream.forwardHeaders,
    host: endpoint.hostHeader,
    requestId: context.requestId,
    engineAuth: endpoint.engineAuth,
    via: context.req.httpVersion === "1.1" ? VIA_1_1 : VIA_1_0,
    forwarded: http
      ? {
          for: context.req.remoteAddress ?? "unknown",
          proto: "http",
          host: headerValue(context.req.rawHeaders, "host"),
        }
      : null,
    traceparent: span?.traceparent(),
    plainAnswer: request.plainAnswer || (!http && (request.wantsStream || request.rewriteAnswer !== null)),
    remainingMs: request.deadline === undefined ? undefined : request.deadline - how.now,
  });
  return {
    method: request.method,
    path: endpoint.basePath + (http ? request.path : endpoint.adapter.enginePath(request.path)) + request.query,
    headers,
    body: spliced === null ? request.chunks : spliced.chunks,
    bodyBytes: spliced === null ? request.bytes : spliced.bytes,
    freshConnection: how.freshConnection || !request.idempotent || request.startsOnce,
  };
}

function editsOf(upstream: Upstream, endpoint: Endpoint, request: PreparedRequest): readonly BodyEdit[] {
  const { scan, modelAt } = request;
  if (scan !== null) return setMembers(scan, newMembers(upstream, endpoint, request, scan));
  const model = modelFor(upstream, endpoint, request);
  return modelAt === null || model === request.model ? [] : [{ ...modelAt, text: model }];
}

const modelFor = ({ settings }: Upstream, endpoint: Endpoint, { model }: PreparedRequest): string =>
  settings.engineModel ?? engineModelName(endpoint, settings.models, model);

function newMembers(
  upstream: Upstream,
  endpoint: Endpoint,
  request: PreparedRequest,
  scan: ScannedObject,
): NewMember[] {
  const members: NewMember[] = [];
  const usage = usageMember(upstream, request, scan);
  if (usage !== null) members.push(usage);
  if (upstream.settings.enginePriority) {
    const priority = endpoint.adapter.priorityField(request.class);
    if (priority !== null) members.push({ key: priority.field, valueText: String(priority.value) });
  }
  const model = modelFor(upstream, endpoint, request);
  if (model !== request.model) members.push({ key: "model", valueText: JSON.stringify(model) });
  return members;
}

/** What the client said of usage is never overwritten, also when it said no. */
function usageMember(upstream: Upstream, request: PreparedRequest, scan: ScannedObject): NewMember | null {
  if (upstream.settings.usage !== "inject" || !request.wantsStream || !STREAM_OPTIONS_PATHS.has(request.path))
    return null;
  const options = scan.fields.get("stream_options");
  if (options === undefined || options.text === "null")
    return { key: "stream_options", valueText: '{"include_usage":true}' };
  if (options.text === undefined || !options.text.startsWith("{")) return null;
  const said: Record<string, unknown> = JSON.parse(options.text);
  return Object.hasOwn(said, "include_usage")
    ? null
    : { key: "stream_options", valueText: JSON.stringify({ ...said, include_usage: true }) };
}
