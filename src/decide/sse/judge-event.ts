import { isJsonObject, mergeUsage, readUsage, type JsonObject, type TokenUsage } from "../http/token-usage.ts";
import { statusOfErrorEvent } from "./refusal-event.ts";

/** One event of a stream, its bytes read as Latin-1: JSON's own signs are ASCII, so its structure is kept. */
export interface EventText {
  /** Empty when no `event` line names one. */
  readonly name: string;
  /** The `data` lines, joined with line feeds; `undefined` without one. */
  readonly data: string | undefined;
}

/** How the events say what they are: chat and completions by `choices`, the others by `type`. */
export type StreamFlavour = "choices" | "typed";

export interface EventFacts {
  readonly isDone: boolean;
  /** `status`: the HTTP status that the error stands for, where it says so. */
  readonly error: { readonly message: string; readonly status: number | undefined } | undefined;
  /** `null`: the event ends the answer by its type alone. `undefined`: it doesn't end it. */
  readonly finishReason: string | null | undefined;
  readonly usage: TokenUsage | undefined;
  /** The usage stands for the whole stream, rather than for a part of it. */
  readonly usageIsWhole: boolean;
  readonly hasContent: boolean;
  readonly sequenceNumber: number | undefined;
  readonly flavour: StreamFlavour | undefined;
}

const NOTHING: EventFacts = {
  isDone: false,
  error: undefined,
  finishReason: undefined,
  usage: undefined,
  usageIsWhole: false,
  hasContent: false,
  sequenceNumber: undefined,
  flavour: undefined,
};

const MESSAGE_CHARS_MAX = 512;

const END_TYPES: ReadonlySet<string> = new Set([
  "response.completed",
  "response.incomplete",
  "message_stop",
  "speech.audio.done",
  "transcript.text.done",
  "image_generation.completed",
  "image_edit.completed",
]);
const FAILURE_TYPES: ReadonlySet<string> = new Set(["error", "response.failed"]);
const CONTENT_TYPES: ReadonlySet<string> = new Set([
  "content_block_delta",
  "transcript.text.segment",
  "image_generation.partial_image",
  "image_edit.partial_image",
  "transcript.text.done",
  "image_generation.completed",
  "image_edit.completed",
]);

/** Takes one whole event apart. `text` may hold several comments and blank lines, but only one event. */
export function readEventText(text: string): EventText {
  let name = "";
  let data: string | undefined;
  for (const line of text.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") data = data === undefined ? value : `${data}\n${value}`;
    else if (field === "event") name = value;
  }
  return { name, data };
}

/** What one event says about the answer. Never throws: what is not JSON says nothing, unless its name is `error`. */
export function judgeEvent(event: EventText): EventFacts {
  const { name, data } = event;
  if (data === undefined) return NOTHING;
  if (data.trim() === "[DONE]") return { ...NOTHING, isDone: true };
  const body = parseObject(data);
  if (body === undefined)
    return name === "error" ? { ...NOTHING, error: { message: shorten(data), status: undefined } } : NOTHING;
  const type = typeof body["type"] === "string" ? body["type"] : "";
  const choices = Array.isArray(body["choices"]) ? body["choices"].filter(isJsonObject) : undefined;
  const usage = usageOf(body, type);
  const sequence = body["sequence_number"];
  return {
    isDone: false,
    error: errorOf(name, type, body),
    finishReason: finishReasonOf(type, choices, body),
    usage,
    usageIsWhole: usage !== undefined && type !== "message_start" && type !== "message_delta",
    hasContent: choices === undefined ? isContentType(type) : choices.some(choiceHasContent),
    sequenceNumber: typeof sequence === "number" && Number.isSafeInteger(sequence) ? sequence : undefined,
    flavour: choices !== undefined ? "choices" : type === "" ? undefined : "typed",
  };
}

function parseObject(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function errorOf(name: string, type: string, body: JsonObject): EventFacts["error"] {
  const response = isJsonObject(body["response"]) ? body["response"] : undefined;
  const error = body["error"] ?? (type === "response.failed" ? response?.["error"] : undefined);
  const says = (isJsonObject(error) && Object.keys(error).length > 0) || (typeof error === "string" && error !== "");
  if (!says && name !== "error" && !FAILURE_TYPES.has(type) && body["object"] !== "error") return undefined;
  const message =
    typeof error === "string" ? error : ((isJsonObject(error) ? error["message"] : undefined) ?? body["message"]);
  return {
    message: shorten(typeof message === "string" ? message : JSON.stringify(error ?? body)),
    status: statusOfErrorEvent(body),
  };
}

function finishReasonOf(
  type: string,
  choices: readonly JsonObject[] | undefined,
  body: JsonObject,
): string | null | undefined {
  if (choices !== undefined) {
    return choices.map((choice) => choice["finish_reason"]).find(isReason);
  }
  if (type === "message_delta" && isJsonObject(body["delta"])) {
    const reason = body["delta"]["stop_reason"];
    return isReason(reason) ? reason : undefined;
  }
  return END_TYPES.has(type) ? null : undefined;
}

const isReason = (value: unknown): value is string => typeof value === "string" && value !== "";

function usageOf(body: JsonObject, type: string): TokenUsage | undefined {
  const own = readUsage(body["usage"]);
  const holder =
    type === "message_start" ? body["message"] : type.startsWith("response.") ? body["response"] : undefined;
  const held = isJsonObject(holder) ? readUsage(holder["usage"]) : undefined;
  return own !== undefined && held !== undefined ? mergeUsage(held, own) : (own ?? held);
}

const isContentType = (type: string): boolean => type.endsWith(".delta") || CONTENT_TYPES.has(type);

function choiceHasContent(choice: JsonObject): boolean {
  if (typeof choice["text"] === "string" && choice["text"] !== "") return true;
  const delta = choice["delta"];
  if (!isJsonObject(delta)) return false;
  return Object.entries(delta).some(
    ([key, value]) => key !== "role" && (typeof value === "string" ? value !== "" : isFilled(value)),
  );
}

const isFilled = (value: unknown): boolean =>
  Array.isArray(value) ? value.length > 0 : isJsonObject(value) && Object.keys(value).length > 0;

/** Event texts are Latin-1 views of UTF-8 bytes; a message for people is read as what it is. */
function shorten(latin1: string): string {
  return Buffer.from(latin1.slice(0, MESSAGE_CHARS_MAX), "latin1").toString("utf8");
}
