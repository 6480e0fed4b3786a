import { classifyStatus } from "../engines/readings.ts";
import { isJsonObject, type JsonObject } from "../http/token-usage.ts";

/** An error event that blames the request, as the error answer that it would have been before the stream's head. */
export interface EventRefusal {
  readonly status: number;
  /** JSON. */
  readonly body: Buffer;
}

/** For events that name no status: the words of Anthropic, OpenAI, vLLM and llama.cpp for the request's own faults. */
const STATUS_OF_WORD: ReadonlyMap<unknown, number> = new Map([
  ["invalid_request_error", 400],
  ["BadRequestError", 400],
  ["exceed_context_size_error", 400],
  ["context_length_exceeded", 400],
  ["invalid_prompt", 400],
  ["authentication_error", 401],
  ["permission_error", 403],
  ["not_found_error", 404],
  ["NotFoundError", 404],
  ["request_too_large", 413],
]);

/**
 * The HTTP status that an error event stands for: a number that it gives as its code, else what its code or type mean.
 * `undefined` when it says neither.
 */
export function statusOfErrorEvent(body: JsonObject): number | undefined {
  const holder = errorObject(body) ?? body;
  const code = holder["code"] ?? body["code"];
  const number = typeof code === "string" && /^\d{3}$/.test(code) ? Number(code) : code;
  if (typeof number === "number" && Number.isInteger(number) && number >= 400 && number < 600) return number;
  return STATUS_OF_WORD.get(code) ?? STATUS_OF_WORD.get(holder["type"]);
}

/** The fault is the request's own: every engine would say the same, and it is no sign against this one. */
export const blamesRequest = (status: number | undefined): boolean =>
  status !== undefined && classifyStatus(status) === "clientFault";

/** `data`: of an error event, read as Latin-1. `undefined` when it does not blame the request. */
export function refusalOfEvent(data: string, status: number | undefined): EventRefusal | undefined {
  if (status === undefined || !blamesRequest(status)) return undefined;
  const bytes = Buffer.from(data, "latin1");
  const body: unknown = JSON.parse(bytes.toString("utf8"));
  const held = isJsonObject(body) && !isJsonObject(body["error"]) ? errorObject(body) : undefined;
  return { status, body: held === undefined ? bytes : Buffer.from(JSON.stringify({ error: held })) };
}

/** Responses carry it inside the response that failed. */
function errorObject(body: JsonObject): JsonObject | undefined {
  const response = isJsonObject(body["response"]) ? body["response"] : undefined;
  return [body["error"], response?.["error"]].find(isJsonObject);
}
