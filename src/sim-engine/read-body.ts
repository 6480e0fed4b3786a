import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Refusal } from "./error-bodies.ts";
import { isObject, type Json, type JsonObject } from "./json.ts";
import { parseMultipart, type MultipartForm } from "./multipart.ts";
import type { SimDialect } from "./options.ts";

export const BODY_BYTES_MAX = 512 * 1024 * 1024;

export type BodyRead =
  | { readonly kind: "read"; readonly bytes: Buffer; readonly sha256: string }
  /** The client went away, or its framing was wrong. */
  | { readonly kind: "lost" }
  | { readonly kind: "tooLarge" };

export function readBody(request: IncomingMessage): Promise<BodyRead> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    const hash = createHash("sha256");
    let size = 0;
    request.on("data", (part: Buffer) => {
      size += part.length;
      if (size > BODY_BYTES_MAX) {
        parts.length = 0;
        resolve({ kind: "tooLarge" });
        return;
      }
      hash.update(part);
      parts.push(part);
    });
    request.on("end", () =>
      resolve({
        kind: "read",
        bytes: parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts),
        sha256: hash.digest("hex"),
      }),
    );
    request.on("error", () => resolve({ kind: "lost" }));
    request.on("close", () => resolve({ kind: "lost" }));
  });
}

export type BodyParsed =
  | { readonly kind: "json"; readonly body: JsonObject }
  | { readonly kind: "form"; readonly body: JsonObject; readonly form: MultipartForm }
  | { readonly kind: "refused"; readonly refusal: Refusal };

export function parseBody(dialect: SimDialect, contentType: string, bytes: Buffer): BodyParsed {
  if (/^multipart\/form-data/i.test(contentType)) {
    const form = parseMultipart(contentType, bytes);
    if (form === undefined)
      return wrong(dialect, "body", "value_error", "There was an error parsing the body", "<form>");
    const sim = form.fields.get("sim");
    const fields = Object.fromEntries(form.fields);
    return { kind: "form", form, body: sim === undefined ? fields : { ...fields, sim: parseJson(sim) ?? null } };
  }
  if (dialect === "vllm" && !/^application\/json\b/i.test(contentType)) {
    const message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
    return { kind: "refused", refusal: { status: 400, type: "Bad Request", message, param: null } };
  }
  if (bytes.length === 0) return wrong(dialect, "body", "missing", "Field required", "None");
  const value = parseJson(bytes.toString("utf8"));
  if (value === undefined) return wrong(dialect, "body.0", "json_invalid", "JSON decode error", "<dict of 0 items>");
  if (!isObject(value))
    return wrong(
      dialect,
      "body",
      "model_attributes_type",
      "Input should be a valid dictionary or object to extract fields from",
      "<list of 0 items>",
    );
  return { kind: "json", body: value };
}

function wrong(dialect: SimDialect, loc: string, type: string, msg: string, input: string): BodyParsed {
  const vllm = `1 validation error:\n  {'type': '${type}', 'loc': '${loc}', 'msg': '${msg}', 'input': '${input}'}`;
  const llama = `[json.exception.parse_error.101] parse error at line 1, column 1: ${msg}`;
  const refusal =
    dialect === "vllm"
      ? { status: 400, type: "Bad Request", message: vllm, param: loc }
      : { status: 400, type: "invalid_request_error", message: llama };
  return { kind: "refused", refusal };
}

/** Undefined when the text is not JSON. */
export function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined; // The caller answers with the dialect's own error.
  }
}
