import type { z } from "zod";
import { jobSubmission, type JobSubmission } from "../../contract/job-submission.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import { JsonTopScan } from "../../decide/http/json-scan.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { packPart } from "./part-bytes.ts";

/**
 * What a submit's body says, by itself: whether its key may, and whether there is such a place, is judged elsewhere. Nothing in it but
 * bytes and plain values, so that a thread can hand it over.
 */
export interface ParsedSubmission {
  /** Null: the key's first. */
  readonly class: RequestClass | null;
  /** Null where `upstream` says where to go. */
  readonly model: string | null;
  readonly upstream: string | null;
  readonly method: string;
  readonly path: string;
  /** Of parts that name one of their own. */
  readonly partPaths: readonly string[];
  readonly contentType: string;
  readonly parts: number | null;
  readonly allowPartial: boolean;
  readonly onShed: "requeue" | "fail";
  readonly metadata: Readonly<Record<string, unknown>> | null;
  readonly callbackUrl: string | null;
  readonly deadlineMs: number | null;
  readonly blobs: ReadonlyMap<string, Buffer>;
}

const bad = (message: string): YardmasterError => new YardmasterError("BAD_REQUEST", message);

/** Reads it whole, which takes about 10 ms for each MiB. Throws BAD_JSON or BAD_REQUEST, with every mistake named. */
export function parseSubmission(bytes: Buffer): ParsedSubmission {
  const parsed = jobSubmission.safeParse(parseJson(bytes));
  if (!parsed.success) throw bad(describe(parsed.error));
  const asked = parsed.data;
  const model = asked.model ?? modelIn(asked.body) ?? modelIn(asked.parts?.[0]?.body);
  const mistakes = mistakesOf(asked, model);
  if (mistakes.length > 0) throw bad(mistakes.join("; "));
  return {
    class: asked.class ?? null,
    model: asked.upstream === undefined ? (model ?? null) : null,
    upstream: asked.upstream ?? null,
    method: asked.method,
    path: asked.path ?? "/v1/chat/completions",
    partPaths: (asked.parts ?? []).flatMap((part) => part.path ?? []),
    contentType:
      asked.content_type ?? (asked.body_base64 === undefined ? "application/json" : "application/octet-stream"),
    parts: asked.parts?.length ?? null,
    allowPartial: asked.allow_partial,
    onShed: asked.on_shed,
    // Numbers that were kept as they are written have no plain form.
    metadata:
      asked.metadata === undefined ? null : (JSON.parse(JSON.stringify(asked.metadata)) as Record<string, unknown>),
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
