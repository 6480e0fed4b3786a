import { statusOfErrorEvent } from "../sse/refusal-event.ts";
import {
  isJsonObject,
  readAnswerUsage,
  readUsage,
  UNKNOWN_USAGE,
  type JsonObject,
  type TokenUsage,
} from "./token-usage.ts";

export interface BodyFacts {
  readonly usage: TokenUsage;
  /** The body is JSON with an object or array outermost. Larger ones are judged by their first and last byte alone. */
  readonly looksComplete: boolean;
  /** An object whose `error` says something, or a choice that the engine gave up: some send these with status 200. */
  readonly isError: boolean;
  /** The HTTP status that its code or type stands for; undefined where it names none. */
  readonly errorStatus: number | undefined;
}

const PARSED_BYTES_MAX = 65_536;
export const HEAD_BYTES = 4_096;
export const TAIL_BYTES = 65_536;
const NO_ERROR = { isError: false, errorStatus: undefined };
const GIVEN_UP: ReadonlySet<unknown> = new Set(["abort", "error"]);
const USAGE_KEY = '"usage"';

/**
 * What a complete JSON answer tells, of any route. A small body is parsed. In a large one (embeddings are megabytes) the
 * `usage` member is looked for near the end and near the beginning, where every engine puts it.
 */
export function readBodyUsage(body: Buffer): BodyFacts {
  if (body.length > PARSED_BYTES_MAX) return readLarge(body);
  // Byte for character: no text of it is looked at but ASCII names, and decoding the rest would cost as much as parsing.
  const value = parse(body.toString("latin1"));
  if (!isJsonObject(value)) return { ...NO_ERROR, usage: UNKNOWN_USAGE, looksComplete: Array.isArray(value) };
  const error =
    saysError(value) || gaveUp(value) ? { isError: true, errorStatus: statusOfErrorEvent(value) } : NO_ERROR;
  return { ...error, usage: readAnswerUsage(value) ?? UNKNOWN_USAGE, looksComplete: true };
}

function saysError(value: JsonObject): boolean {
  const error = value["error"];
  return (isJsonObject(error) && Object.keys(error).length > 0) || (typeof error === "string" && error !== "");
}

/** As in a stream (`streamSucceeded`): what there is of such a choice is no whole answer. */
function gaveUp({ choices }: JsonObject): boolean {
  if (!Array.isArray(choices)) return false;
  return choices.some((choice) => isJsonObject(choice) && GIVEN_UP.has(choice["finish_reason"]));
}

function readLarge(body: Buffer): BodyFacts {
  const first = firstByte(body);
  const last = lastByte(body);
  const isObject = first === "{" && last === "}";
  const usage = isObject ? (usageInTail(body) ?? usageInHead(body)) : undefined;
  return { ...NO_ERROR, usage: usage ?? UNKNOWN_USAGE, looksComplete: isObject || (first === "[" && last === "]") };
}

// What follows the member must close exactly one object: that shows that the member is one of the outermost, and no text inside a string.
function usageInTail(body: Buffer): TokenUsage | undefined {
  const tail = body.toString("latin1", body.length - TAIL_BYTES);
  for (
    let at = tail.lastIndexOf(USAGE_KEY), tries = 0;
    at !== -1 && tries < 8;
    at = at === 0 ? -1 : tail.lastIndexOf(USAGE_KEY, at - 1), tries++
  ) {
    const whole = parse(`{${tail.slice(at)}`);
    const usage = isJsonObject(whole) ? readUsage(whole["usage"]) : undefined;
    if (usage !== undefined) return usage;
  }
  return undefined;
}

// What comes before the member must be an object that is still open, with whole members in it.
function usageInHead(body: Buffer): TokenUsage | undefined {
  const head = body.toString("latin1", 0, HEAD_BYTES);
  for (
    let at = head.indexOf(USAGE_KEY), tries = 0;
    at !== -1 && tries < 8;
    at = head.indexOf(USAGE_KEY, at + 1), tries++
  ) {
    if (!isJsonObject(parse(`${head.slice(0, at)}"usage":null}`))) continue;
    const value = firstObject(head, at + USAGE_KEY.length);
    if (value !== undefined) return readUsage(value);
  }
  return undefined;
}

/** The object that begins behind a colon. Usage objects hold no strings with braces; one that does is not found. */
function firstObject(text: string, from: number): unknown {
  const opening = /^\s*:\s*\{/.exec(text.slice(from, from + 64));
  if (opening === null) return undefined;
  const start = from + opening[0].length - 1;
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    if (text[at] === "{") depth += 1;
    else if (text[at] === "}" && --depth === 0) return parse(text.slice(start, at + 1));
  }
  return undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isBlank = (byte: number | undefined): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Whether the first bytes of a body can be those of an object or a list. */
export function beginsLikeJson(body: Buffer): boolean {
  const first = firstByte(body);
  return first === "{" || first === "[";
}

function firstByte(body: Buffer): string {
  let at = 0;
  while (isBlank(body[at])) at += 1;
  return String.fromCharCode(body[at] ?? 0);
}

function lastByte(body: Buffer): string {
  let at = body.length - 1;
  while (isBlank(body[at])) at -= 1;
  return String.fromCharCode(body[at] ?? 0);
}
