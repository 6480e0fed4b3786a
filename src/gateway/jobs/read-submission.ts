import type { z } from "zod";
import { jobSubmission, type JobSubmission } from "../../contract/job-submission.ts";
import { JsonTopScan } from "../../decide/http/json-scan.ts";
import { canonicalPath } from "../../decide/http/request-line.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { RequestKey } from "../../access/request-key.ts";
import { matchRoute } from "../http/routes.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { JobOrder } from "./job-service.ts";
import { packPart } from "./run-job.ts";

/** Where jobs may go. */
export interface Upstreams {
  byId(id: string): Upstream | undefined;
  byModel(name: string): Upstream | undefined;
}

type Order = Omit<JobOrder, "idempotency">;

const bad = (message: string): YardmasterError => new YardmasterError("BAD_REQUEST", message);

/**
 * A submit's body as an order, with every mistake named. Throws BAD_JSON, BAD_REQUEST, or what the key may not: CLASS_FORBIDDEN,
 * MODEL_UNKNOWN, MODEL_FORBIDDEN, UPSTREAM_UNKNOWN, EXTERNAL_UPSTREAM_FORBIDDEN.
 */
export function readSubmission(bytes: Buffer, key: RequestKey, upstreams: Upstreams): Order {
  const parsed = jobSubmission.safeParse(parseJson(bytes));
  if (!parsed.success) throw bad(describe(parsed.error));
  const asked = parsed.data;
  const model = asked.model ?? modelIn(asked.body) ?? modelIn(asked.parts?.[0]?.body);
  const mistakes = mistakesOf(asked, model);
  if (mistakes.length > 0) throw bad(mistakes.join("; "));
  const requestClass = asked.class ?? key.classes[0];
  if (!key.classes.includes(requestClass))
    throw new YardmasterError("CLASS_FORBIDDEN", `this key may not use class ${requestClass}`);
  if (asked.upstream === undefined) checkModel(model ?? "", key, upstreams);
  else checkUpstream(asked.upstream, key, upstreams);
  const path = asked.path ?? "/v1/chat/completions";
  for (const each of [path, ...(asked.parts ?? []).flatMap((part) => part.path ?? [])])
    checkPath(each, asked.upstream, asked.method, key);
  return {
    class: requestClass,
    model: asked.upstream === undefined ? (model ?? null) : null,
    upstream: asked.upstream ?? null,
    method: asked.method,
    path,
    contentType:
      asked.content_type ?? (asked.body_base64 === undefined ? "application/json" : "application/octet-stream"),
    parts: asked.parts?.length ?? null,
    allowPartial: asked.allow_partial,
    onShed: asked.on_shed,
    metadata: asked.metadata ?? null,
    callbackUrl: asked.callback_url ?? null,
    deadlineMs: asked.deadline_s === undefined ? null : Math.round(asked.deadline_s * 1000),
    blobs: blobsOf(asked, asked.upstream === undefined ? model : undefined),
  };
}

/**
 * Judged as the body of any other call, its depth too: what is read here is written again for the engine, which recursion bounds.
 */
function parseJson(bytes: Buffer): unknown {
  const scan = new JsonTopScan([]);
  scan.push(bytes);
  const read = scan.end();
  if (read.kind === "invalid")
    throw new YardmasterError("BAD_JSON", `the body can't be read: ${read.why} (byte ${read.offset})`);
  const text = bytes.toString("utf8");
  try {
    return JSON.parse(text, LONG_NUMBER.test(text) ? keepNumber : undefined);
  } catch (cause) {
    throw new YardmasterError("BAD_JSON", "the body is not JSON", { cause });
  }
}

// A number that a double does not hold goes on to the engine as it was written.
const LONG_NUMBER = /[0-9]{16}|[0-9.]{17}|[0-9][eE]/;
function keepNumber(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || String(value) === source) return value;
  return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(source);
}

function describe(error: z.ZodError): string {
  return error.issues
    .slice(0, 20)
    .map((issue) => {
      const where = issue.path.map(String).join(".");
      return where === "" ? issue.message : `${where}: ${issue.message}`;
    })
    .join("; ");
}

const modelIn = (body: unknown): string | undefined => {
  const model = typeof body === "object" && body !== null && "model" in body ? body.model : undefined;
  return typeof model === "string" && model.length > 0 && model.length <= 256 ? model : undefined;
};

function mistakesOf(asked: JobSubmission, model: string | undefined): string[] {
  const mistakes: string[] = [];
  const bodies = [asked.body, asked.body_base64, asked.parts].filter((each) => each !== undefined).length;
  if (bodies > 1) mistakes.push("body, body_base64 and parts: use one of them");
  if (bodies === 0 && asked.method === "POST" && asked.upstream === undefined)
    mistakes.push("body: is missing (or parts, or body_base64)");
  if (asked.upstream !== undefined && asked.model !== undefined) mistakes.push("model and upstream: use one of them");
  if (asked.upstream === undefined && model === undefined) mistakes.push("model: is missing (or upstream)");
  if (asked.upstream === undefined && asked.method !== "POST") mistakes.push("method: calls to a model are POST");
  if (asked.upstream !== undefined && asked.path === undefined) mistakes.push("path: is missing for an upstream");
  if (asked.upstream === undefined && asked.body_base64 === undefined) {
    for (const [index, body] of (asked.parts ?? [{ body: asked.body }]).map((part) => part.body).entries()) {
      const where = asked.parts === undefined ? "body" : `parts.${index}.body`;
      if (typeof body !== "object" || body === null || Array.isArray(body)) mistakes.push(`${where}: is no object`);
      else if ("model" in body && body.model !== model)
        mistakes.push(`${where}.model: is not ${JSON.stringify(model)}`);
      if (mistakes.length >= 20) break;
    }
  }
  return mistakes;
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
  if (upstream === undefined || upstream.settings.kind !== "http")
    throw new YardmasterError("UPSTREAM_UNKNOWN", `there is no upstream ${JSON.stringify(id)} of kind http`);
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
function checkPath(path: string, upstream: string | undefined, method: string, key: RequestKey): void {
  const target = canonicalPath(path);
  if (target.kind !== "ok") throw bad(`path: ${target.kind === "bad" ? target.why : "it is longer than 8 KiB"}`);
  if (target.path + target.query !== path) throw bad(`path: write it as ${target.path}${target.query}`);
  const match = matchRoute(method, upstream === undefined ? target.path : `/upstreams/${upstream}${target.path}`);
  const handler = upstream === undefined ? "inference" : "upstream";
  if (match.kind !== "route" || match.route.handler !== handler)
    throw bad(`path: there is no such route for calls: ${path.slice(0, 200)}`);
  const { access } = match.route;
  if (Array.isArray(access) && !access.includes(key.role))
    throw new YardmasterError("FORBIDDEN", `a key with role ${key.role} may not use ${path.slice(0, 200)}`);
}

function blobsOf(asked: JobSubmission, model: string | undefined): Map<string, Buffer> {
  if (asked.parts !== undefined)
    return new Map(
      asked.parts.map((part, index) => [`body/${index}`, packPart(part.path, jsonBody(part.body, model))] as const),
    );
  if (asked.body_base64 !== undefined) return new Map([["body", Buffer.from(asked.body_base64, "base64")]]);
  return asked.body === undefined ? new Map() : new Map([["body", jsonBody(asked.body, model)]]);
}

/** The engine wants the model in the body; a client that named it beside the body need not say it twice. */
function jsonBody(body: unknown, model: string | undefined): Buffer {
  const whole = model !== undefined && typeof body === "object" && body !== null ? { model, ...body } : body;
  return Buffer.from(JSON.stringify(whole));
}
