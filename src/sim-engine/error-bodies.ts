import type { JsonObject } from "./json.ts";
import type { SimDialect } from "./options.ts";

/** A refusal before any work, in the terms that both dialects can render. */
export interface Refusal {
  readonly status: number;
  readonly type: string;
  readonly message: string;
  /** vLLM names the field. */
  readonly param?: string | null;
  /** llama.cpp adds fields to some errors. */
  readonly extra?: JsonObject;
  /** A body that is not an error object at all, such as vLLM's `{"detail":…}`. */
  readonly bare?: JsonObject;
}

export function errorBody(dialect: SimDialect, refusal: Refusal, anthropic: boolean): JsonObject {
  if (refusal.bare !== undefined) return refusal.bare;
  const { status, type, message } = refusal;
  // vLLM's own validation comes before its Anthropic layer and keeps the OpenAI shape there too.
  if (anthropic && !(dialect === "vllm" && type === "Bad Request")) return { type: "error", error: { type, message } };
  if (dialect === "vllm") return { error: { message, type, param: refusal.param ?? null, code: status } };
  return { error: { code: status, message, type, ...refusal.extra } };
}

export const ENGINE_DEAD: Refusal = {
  status: 500,
  type: "InternalServerError",
  message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
};
export const SHUTTING_DOWN: Refusal = {
  status: 500,
  type: "InternalServerError",
  message: "cannot schedule new futures after shutdown",
};
export const LOADING: Refusal = { status: 503, type: "unavailable_error", message: "Loading model" };

/** vLLM prints an error inside a stream with blanks after colons and commas, unlike its other events. */
export function vllmErrorEvent(refusal: Refusal): string {
  const field = (value: string): string => JSON.stringify(value);
  return (
    `data: {"error": {"message": ${field(refusal.message)}, "type": ${field(refusal.type)}, ` +
    `"param": null, "code": ${refusal.status}}}\n\n`
  );
}

export function errorEvent(dialect: SimDialect, kind: "chat" | "completions" | "responses" | "messages"): string {
  if (kind === "messages")
    return `event: error\ndata: {"type":"error","error":{"type":"api_error","message":${JSON.stringify(ENGINE_DEAD.message)}}}\n\n`;
  if (dialect === "vllm") return vllmErrorEvent(ENGINE_DEAD);
  return `data: ${JSON.stringify(errorBody(dialect, { status: 500, type: "server_error", message: "simulated failure" }, false))}\n\n`;
}

export function notFound(dialect: SimDialect): Refusal {
  if (dialect === "vllm") return { status: 404, type: "", message: "", bare: { detail: "Not Found" } };
  const bare = { error: { message: "File Not Found", type: "not_found_error", code: 404 } };
  return { status: 404, type: "", message: "", bare };
}

export function unauthorized(dialect: SimDialect): Refusal {
  if (dialect === "vllm") return { status: 401, type: "", message: "", bare: { error: "Unauthorized" } };
  return { status: 401, type: "authentication_error", message: "Invalid API Key" };
}
