import { canonicalPath } from "../../decide/http/request-line.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { RequestKey } from "../../access/request-key.ts";
import { matchRoute } from "../http/routes.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { JobOrder } from "./job-service.ts";
import type { ParsedSubmission } from "./parse-submission.ts";

/** Where jobs may go. */
export interface Upstreams {
  byId(id: string): Upstream | undefined;
  byModel(name: string): Upstream | undefined;
}

type Order = Omit<JobOrder, "idempotency">;

const bad = (message: string): YardmasterError => new YardmasterError("BAD_REQUEST", message);

/**
 * What a submit asks for as an order. Throws what the key may not, or what there is not: BAD_REQUEST for a path, CLASS_FORBIDDEN,
 * MODEL_UNKNOWN, MODEL_FORBIDDEN, UPSTREAM_UNKNOWN, EXTERNAL_UPSTREAM_FORBIDDEN, FORBIDDEN.
 */
export function orderOf(asked: ParsedSubmission, key: RequestKey, upstreams: Upstreams): Order {
  const { partPaths, ...order } = asked;
  const requestClass = asked.class ?? key.classes[0];
  if (!key.classes.includes(requestClass))
    throw new YardmasterError("CLASS_FORBIDDEN", `this key may not use class ${requestClass}`);
  if (asked.upstream === null) checkModel(asked.model ?? "", key, upstreams);
  else checkUpstream(asked.upstream, key, upstreams);
  const takes = asked.upstream === null ? undefined : upstreams.byId(asked.upstream)?.settings.kind;
  for (const each of [asked.path, ...partPaths]) {
    checkPath(each, asked.upstream, asked.method, key);
    if (takes === "comfyui" && (asked.method !== "POST" || each !== "/prompt"))
      throw bad("path: to an upstream of kind comfyui a job is `POST /prompt`");
  }
  return { ...order, class: requestClass };
}

function checkModel(model: string, key: RequestKey, upstreams: Upstreams): void {
  const upstream = upstreams.byModel(model);
  const shown = JSON.stringify(model.slice(0, 200));
  if (upstream === undefined || upstream.settings.kind !== "openai")
    throw new YardmasterError("MODEL_UNKNOWN", `the model ${shown} does not exist`);
  if (!key.allowsModel(model)) throw new YardmasterError("MODEL_FORBIDDEN", `this key may not use the model ${shown}`);
  checkExternal(upstream, key);
}

function checkUpstream(id: string, key: RequestKey, upstreams: Upstreams): void {
  const upstream = upstreams.byId(id);
  if (upstream === undefined || !["http", "comfyui"].includes(upstream.settings.kind))
    throw new YardmasterError("UPSTREAM_UNKNOWN", `there is no upstream ${JSON.stringify(id)} of kind http or comfyui`);
  const { models } = upstream.settings;
  if (!key.allowsModel(id) && !models.some((model) => key.allowsModel(model)))
    throw new YardmasterError("MODEL_FORBIDDEN", `this key may not use the upstream ${JSON.stringify(id)}`);
  checkExternal(upstream, key);
}

function checkExternal(upstream: Upstream, key: RequestKey): void {
  if (upstream.settings.external && !key.allowExternal)
    throw new YardmasterError("EXTERNAL_UPSTREAM_FORBIDDEN", "this key's data may not leave the house");
}

/** A job goes where a request of the same key could go, and nowhere else. */
function checkPath(path: string, upstream: string | null, method: string, key: RequestKey): void {
  const target = canonicalPath(path);
  if (target.kind !== "ok") throw bad(`path: ${target.kind === "bad" ? target.why : "it is longer than 8 KiB"}`);
  if (target.path + target.query !== path) throw bad(`path: write it as ${target.path}${target.query}`);
  const match = matchRoute(method, upstream === null ? target.path : `/upstreams/${upstream}${target.path}`);
  const handler = upstream === null ? "inference" : "upstream";
  if (match.kind !== "route" || match.route.handler !== handler)
    throw bad(`path: there is no such route for calls: ${path.slice(0, 200)}`);
  const { access } = match.route;
  if (Array.isArray(access) && !access.includes(key.role))
    throw new YardmasterError("FORBIDDEN", `a key with role ${key.role} may not use ${path.slice(0, 200)}`);
}
