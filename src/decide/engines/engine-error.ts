import { anthropicType, openaiType, type Dialect } from "../../contract/error-body.ts";
import { isJsonObject, type JsonObject } from "../http/token-usage.ts";
import { parseJson } from "./readings.ts";

const ORIGINAL_CHARS_MAX = 2_048;

/**
 * The JSON text of an error in the shape of the client's library for an engine's error answer that the library can't read: HTML,
 * nothing, plain text, a list, an object without an `error` object, and on Anthropic's routes an error in OpenAI's shape. The
 * status stays what it was. `null` for an answer that is fine and passes untouched.
 */
export function normaliseEngineError(
  { status, contentType, body }: { readonly status: number; readonly contentType: string; readonly body: Buffer },
  { dialect, requestId }: { readonly dialect: Dialect; readonly requestId: string },
): string | null {
  const text = body.toString("utf8");
  const value = parseJson(text);
  const held = isJsonObject(value) && isJsonObject(value["error"]) ? value["error"] : undefined;
  if (isJsonObject(value) && held !== undefined && (dialect !== "anthropic" || isAnthropicError(value, held))) {
    // Fine words under another label: the same text goes out as JSON.
    return isJsonType(contentType) ? null : text;
  }
  const said = isJsonObject(value) ? flatError(held ?? value) : undefined;
  const original = text === "" || tellsOfInside(text) ? {} : { upstream_body: visible(text) };
  const message =
    said?.message ?? (text === "" ? `the engine answered ${status} without a body` : `the engine answered ${status}`);
  const code = said?.code ?? null;
  const param = said?.param ?? null;
  if (dialect === "anthropic") {
    const error = { type: anthropicType(status), message, code, param, ...original };
    return JSON.stringify({ type: "error", error, request_id: requestId });
  }
  const type = said?.type ?? openaiType(status);
  return JSON.stringify({ error: { message, type, code, param, request_id: requestId, ...original } });
}

const isAnthropicError = (value: JsonObject, error: JsonObject): boolean =>
  value["type"] === "error" && typeof error["type"] === "string" && typeof error["message"] === "string";

interface FlatError {
  readonly message: string;
  readonly type: string | undefined;
  readonly code: string | number | null;
  readonly param: string | null;
}

/** `{message, type, code}` (SGLang, TEI), `{error: "text", error_type}` (vLLM without a key, TEI, Ollama), `{detail}` (FastAPI). */
function flatError(value: JsonObject): FlatError | undefined {
  const { message, error, detail, code, param } = value;
  const words = [message, error, detail].find((part) => typeof part === "string" && part !== "");
  const said = typeof words === "string" ? words : detail !== undefined ? JSON.stringify(detail) : undefined;
  if (said === undefined) return undefined;
  const type = value["type"] ?? value["error_type"];
  return {
    message: visible(said),
    type: typeof type === "string" ? type : undefined,
    code: typeof code === "string" || typeof code === "number" ? code : null,
    param: typeof param === "string" ? param : null,
  };
}

const isJsonType = (contentType: string): boolean => /^application\/(?:[\w.-]+\+)?json\b/i.test(contentType.trim());

/** Short, and with control characters written out, so that it can be shown in a terminal or a log. */
function visible(text: string): string {
  const short = text.length > ORIGINAL_CHARS_MAX ? `${text.slice(0, ORIGINAL_CHARS_MAX)}…` : text;
  return short.replace(/\p{Cc}/gu, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A stack trace, a file path or a private address is for the engine's operator, not for its callers. */
const INSIDE =
  /Traceback \(most recent call last\)|\bFile "|\bat .{1,200}:\d+:\d+|(?:^|[\s"'(=])\/(?:[\w.-]+\/)+[\w.-]+|\b[A-Z]:\\|\b(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}\b/;
const tellsOfInside = (text: string): boolean => INSIDE.test(text.slice(0, ORIGINAL_CHARS_MAX));
