import { isArray, isObject, type Json, type JsonObject } from "./json.ts";

/** Ways in which an answer can go wrong on the wire. */
export type WrongFraming = "clAndTe" | "twoCl" | "negativeCl" | "badChunk" | "hugeHeader" | "noFraming" | "http10";
export type Garbage = "binary" | "html200" | "badSse" | "halfJson" | "longLine" | "nul" | "ansi";

/** What the engine shall do with a request; keys combine. `docs/reference/sim-engine.md` describes each. */
export interface SimAction {
  // Time.
  readonly delayHeadMs?: number;
  readonly delayFirstMs?: number;
  readonly delayBetweenMs?: number;
  readonly tokens?: number;
  readonly hangAfterHead?: boolean;
  readonly hangNoHead?: boolean;
  readonly hangAfterTokens?: number;
  // The answer itself.
  readonly status?: number;
  readonly body?: Json;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  readonly contentType?: string;
  readonly garbage?: Garbage;
  readonly bigBodyBytes?: number;
  readonly replyWith?: string;
  readonly setCookieTwice?: boolean;
  readonly connectionHeader?: string;
  // Events of a stream.
  readonly lineEnding?: "\n" | "\r\n" | "\r" | "mixed";
  readonly splitCrLf?: boolean;
  readonly noSpaceAfterData?: boolean;
  readonly comments?: number;
  readonly pingEveryMs?: number;
  readonly noDone?: boolean;
  readonly noFinishReason?: boolean;
  readonly onlyDone?: boolean;
  readonly emptyStream?: boolean;
  readonly errorEventFirst?: boolean;
  readonly errorEventAfter?: number;
  readonly thenDone?: boolean;
  readonly cutAfterEvents?: number;
  // Bytes.
  readonly cutBeforeHead?: boolean;
  readonly cutAfterBytes?: number;
  readonly hangAfterBytes?: number;
  readonly cut?: "fin" | "rst" | "chunkedEnd";
  readonly chunkBytes?: number;
  readonly chunkGapMs?: number;
  readonly slowLorisMs?: number;
  readonly gzip?: boolean;
  readonly br?: boolean;
  readonly deflate?: boolean;
  readonly trailers?: Readonly<Record<string, string>>;
  readonly wrongFraming?: WrongFraming;
  readonly flood1xx?: number;
  readonly early103?: boolean;
  readonly expect100?: "refuse" | "ignore" | "twice";
  readonly closeAfterResponse?: boolean;
  // The whole engine, until the script is deleted.
  readonly hangWhileHealthy?: boolean;
  readonly engineDead?: boolean;
  readonly shuttingDown?: boolean;
  readonly loading?: boolean;
  readonly healthStatus?: number;
  readonly healthDelayMs?: number;
  readonly metricsBody?: string;
}

export interface SimMatch {
  /** Exact, or a prefix when it ends in `*`. Absent: every inference path. */
  readonly path?: string;
  readonly model?: string;
  /** The class that the body names (`metadata.class`, else `user`). */
  readonly tag?: string;
  /** Only the n-th request that matches otherwise; 1 is the first. */
  readonly nth?: number;
  /** At most so many requests. */
  readonly times?: number;
}

export interface SimRule {
  readonly match?: SimMatch;
  readonly do: SimAction;
}

export interface ScriptSubject {
  readonly path: string;
  readonly inference: boolean;
  readonly model: string;
  readonly tag: string;
}

interface Held {
  readonly rule: SimRule;
  seen: number;
  used: number;
}

const KEYS: Readonly<Record<keyof SimAction, "number" | "boolean" | "string" | "object" | "any">> = {
  delayHeadMs: "number",
  delayFirstMs: "number",
  delayBetweenMs: "number",
  tokens: "number",
  hangAfterHead: "boolean",
  hangNoHead: "boolean",
  hangAfterTokens: "number",
  status: "number",
  body: "any",
  headers: "object",
  contentType: "string",
  garbage: "string",
  bigBodyBytes: "number",
  replyWith: "string",
  setCookieTwice: "boolean",
  connectionHeader: "string",
  lineEnding: "string",
  splitCrLf: "boolean",
  noSpaceAfterData: "boolean",
  comments: "number",
  pingEveryMs: "number",
  noDone: "boolean",
  noFinishReason: "boolean",
  onlyDone: "boolean",
  emptyStream: "boolean",
  errorEventFirst: "boolean",
  errorEventAfter: "number",
  thenDone: "boolean",
  cutAfterEvents: "number",
  cutBeforeHead: "boolean",
  cutAfterBytes: "number",
  hangAfterBytes: "number",
  cut: "string",
  chunkBytes: "number",
  chunkGapMs: "number",
  slowLorisMs: "number",
  gzip: "boolean",
  br: "boolean",
  deflate: "boolean",
  trailers: "object",
  wrongFraming: "string",
  flood1xx: "number",
  early103: "boolean",
  expect100: "string",
  closeAfterResponse: "boolean",
  hangWhileHealthy: "boolean",
  engineDead: "boolean",
  shuttingDown: "boolean",
  loading: "boolean",
  healthStatus: "number",
  healthDelayMs: "number",
  metricsBody: "string",
};

export const SIM_ACTIONS: readonly string[] = Object.keys(KEYS);

const NUMBER_MAX = 1e12;

const CHOICES: Readonly<Partial<Record<keyof SimAction, readonly string[]>>> = {
  lineEnding: ["\n", "\r\n", "\r", "mixed"],
  cut: ["fin", "rst", "chunkedEnd"],
  wrongFraming: ["clAndTe", "twoCl", "negativeCl", "badChunk", "hugeHeader", "noFraming", "http10"],
  garbage: ["binary", "html200", "badSse", "halfJson", "longLine", "nul", "ansi"],
  expect100: ["refuse", "ignore", "twice"],
};

export type Parsed<T> =
  | { readonly kind: "ok"; readonly value: T }
  | { readonly kind: "wrong"; readonly message: string };

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
// Line ends and NUL would end the header; the keys for wrong framing are the way to send such bytes.
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

const isHeaders = (value: Json | undefined): boolean =>
  isObject(value) &&
  Object.entries(value).every(
    ([name, of]) =>
      HEADER_NAME.test(name) &&
      (isArray(of) ? of : [of]).every((text) => typeof text === "string" && HEADER_VALUE.test(text)),
  );

/** Unknown keys and wrong types are refused: a test with a misspelt action would pass for the wrong reason. */
export function parseAction(raw: Json | undefined): Parsed<SimAction> {
  if (!isObject(raw)) return { kind: "wrong", message: "an action is an object" };
  for (const [key, value] of Object.entries(raw)) {
    const type = Object.hasOwn(KEYS, key) ? KEYS[key as keyof SimAction] : undefined;
    if (type === undefined) return { kind: "wrong", message: `unknown action: ${key}` };
    if (type !== "any" && (typeof value !== type || value === null))
      return { kind: "wrong", message: `${key} must be of type ${type}` };
    if (typeof value === "number" && !(value >= 0 && value <= NUMBER_MAX)) {
      return { kind: "wrong", message: `${key} must be from 0 to ${NUMBER_MAX}` };
    }
    if ((key === "headers" || key === "trailers") && !isHeaders(value)) {
      return { kind: "wrong", message: `${key} must hold header names and values` };
    }
    if (key === "status" && !(Number.isInteger(value) && Number(value) >= 200 && Number(value) <= 999)) {
      return { kind: "wrong", message: "status must be a whole number from 200 to 999" };
    }
    const choices = CHOICES[key as keyof SimAction];
    if (choices !== undefined && !(typeof value === "string" && choices.includes(value)))
      return { kind: "wrong", message: `${key} must be one of ${JSON.stringify(choices)}` };
  }
  // The loop above has checked every key against the type's own table.
  return { kind: "ok", value: raw as SimAction };
}

export function parseRules(raw: Json | undefined): Parsed<SimRule[]> {
  const list = isArray(raw) ? raw : isObject(raw) && isArray(raw["rules"]) ? raw["rules"] : [raw];
  const rules: SimRule[] = [];
  for (const item of list) {
    if (!isObject(item)) return { kind: "wrong", message: "a rule is an object with `do` and, if wanted, `match`" };
    const action = parseAction(item["do"]);
    if (action.kind === "wrong") return action;
    const match = parseMatch(item["match"]);
    if (match.kind === "wrong") return match;
    rules.push({ match: match.value, do: action.value });
  }
  return { kind: "ok", value: rules };
}

function parseMatch(raw: Json | undefined): Parsed<SimMatch> {
  if (raw === undefined) return { kind: "ok", value: {} };
  if (!isObject(raw)) return { kind: "wrong", message: "match is an object" };
  const types: JsonObject = { path: "string", model: "string", tag: "string", nth: "number", times: "number" };
  for (const [key, value] of Object.entries(raw)) {
    if (typeof value !== types[key])
      return { kind: "wrong", message: `match.${key} is not known or of the wrong type` };
  }
  return { kind: "ok", value: raw as SimMatch };
}

const HEALTH_KEYS: readonly (keyof SimAction)[] = ["healthStatus", "healthDelayMs"];

/** The rules in force, oldest first. Where several fit a request, later ones add to and override earlier ones. */
export class Script {
  #held: Held[] = [];

  add(rule: SimRule): void {
    this.#held.push({ rule, seen: 0, used: 0 });
  }

  clear(): void {
    this.#held = [];
  }

  rules(): readonly SimRule[] {
    return this.#held.map((held) => held.rule);
  }

  /** How an `Expect: 100-continue` on this path is met; looked up by path alone, before there is a body. */
  expectation(path: string): SimAction["expect100"] {
    return this.#held.findLast(({ rule }) => rule.do.expect100 !== undefined && pathFits(rule.match?.path ?? "*", path))
      ?.rule.do.expect100;
  }

  /** What applies to this request; counts it for `nth` and `times`. */
  take(subject: ScriptSubject): SimAction {
    let action: SimAction = {};
    for (const held of this.#held) {
      if (!fits(held.rule, subject)) continue;
      held.seen += 1;
      const { nth, times } = held.rule.match ?? {};
      if (nth !== undefined && held.seen !== nth) continue;
      if (times !== undefined && held.used >= times) continue;
      held.used += 1;
      action = { ...action, ...held.rule.do };
    }
    return action;
  }
}

const pathFits = (pattern: string, path: string): boolean =>
  pattern.endsWith("*") ? path.startsWith(pattern.slice(0, -1)) : pattern === path;

function fits(rule: SimRule, subject: ScriptSubject): boolean {
  const { path, model, tag } = rule.match ?? {};
  if (model !== undefined && model !== subject.model) return false;
  if (tag !== undefined && tag !== subject.tag) return false;
  if (path !== undefined) return pathFits(path, subject.path);
  const keys = Object.keys(rule.do);
  if (keys.some((key) => (HEALTH_KEYS as readonly string[]).includes(key)) && subject.path === "/health") return true;
  if (keys.includes("metricsBody") && subject.path === "/metrics") return true;
  return subject.inference;
}
