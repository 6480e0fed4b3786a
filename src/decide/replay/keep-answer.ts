import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { RefusalRule, UpstreamSettings } from "../../contract/gateway-config.ts";

/** How a call ended, and what its client was given. */
export interface EndedAnswer {
  readonly outcome: RequestOutcome;
  /** The client was given all of it, to its regular end. */
  readonly whole: boolean;
  readonly status: number;
  /** Flat, as they went out. */
  readonly headers: readonly string[];
  /** The engine finished and said nothing. */
  readonly empty: boolean;
  /** The codes that an error answer gives itself; asked only where it matters. */
  readonly errorCodes: () => readonly string[];
}

/** Answers that another try may do better: the engine's own key, its load, its time, its state of the moment. */
const WORTH_RETRYING: ReadonlySet<number> = new Set([401, 403, 407, 408, 409, 421, 423, 425, 429]);

/** Why an answer is not kept; closed, because it is a metric's label. */
export type NotKept =
  | "unfinished"
  | "worth_retrying"
  | "encoded"
  | "no_store"
  | "empty"
  | "not_ok"
  | "too_large"
  | "no_memory"
  | "claim_lost"
  | "store_away";

/** For an idempotency key: whatever the request has led to, unless asking again may lead to something else. Null: keep it. */
export function whyNotForKey(answer: EndedAnswer): NotKept | null {
  if (!isFinished(answer)) return "unfinished";
  if (answer.status >= 500 || WORTH_RETRYING.has(answer.status)) return "worth_retrying";
  return isEncoded(answer.headers) ? "encoded" : null;
}

export type ForContent =
  | { readonly kind: "keep"; readonly as: "answer" | "refusal"; readonly ttlMs: number }
  | { readonly kind: "not"; readonly why: NotKept };

type ContentRules = Pick<UpstreamSettings, "cache" | "refusals" | "refusalTtlMs">;

/**
 * For an upstream's memory of contents: a good answer where it has a cache, or one of the refusals that it names as lasting.
 * `remembers`: whether refusals of this request may be remembered.
 */
export function judgeForContent(answer: EndedAnswer, rules: ContentRules, remembers: boolean): ForContent {
  if (remembers && isLastingRefusal(answer, rules.refusals))
    return { kind: "keep", as: "refusal", ttlMs: rules.refusalTtlMs };
  const why = whyNotForCache(answer);
  if (why !== null) return { kind: "not", why };
  return rules.cache === null
    ? { kind: "not", why: "not_ok" }
    : { kind: "keep", as: "answer", ttlMs: rules.cache.ttlMs };
}

function whyNotForCache(answer: EndedAnswer): NotKept | null {
  if (!isFinished(answer)) return "unfinished";
  if (answer.outcome !== "ok" || answer.status !== 200) return "not_ok";
  if (answer.empty) return "empty";
  if (isEncoded(answer.headers)) return "encoded";
  const said = valueOf(answer.headers, "cache-control")?.toLowerCase() ?? "";
  return said.includes("no-store") || said.includes("private") || valueOf(answer.headers, "set-cookie") !== undefined
    ? "no_store"
    : null;
}

function isLastingRefusal(answer: EndedAnswer, rules: readonly RefusalRule[]): boolean {
  if (!isFinished(answer) || answer.outcome !== "engine_error" || isEncoded(answer.headers)) return false;
  return rules.some(
    ({ status, code }) => status === answer.status && (code === null || answer.errorCodes().includes(code)),
  );
}

const isFinished = ({ outcome, whole, status }: EndedAnswer): boolean =>
  whole &&
  status >= 200 &&
  (outcome === "ok" || outcome === "engine_error") &&
  !(outcome === "engine_error" && status < 400);

const isEncoded = (headers: readonly string[]): boolean => {
  const coding = valueOf(headers, "content-encoding")?.trim().toLowerCase();
  return coding !== undefined && coding !== "" && coding !== "identity";
};

function valueOf(headers: readonly string[], name: string): string | undefined {
  for (let i = 0; i + 1 < headers.length; i += 2) if (headers[i]?.toLowerCase() === name) return headers[i + 1];
  return undefined;
}

const PARSED_BYTES_MAX = 65_536;

/** The JSON object or list that a body is; null for one that is too large to look into, and for anything else. */
function smallObject(body: Buffer): object | null {
  if (body.length > PARSED_BYTES_MAX) return null;
  try {
    const value: unknown = JSON.parse(body.toString("utf8"));
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

/** `error.code`, `error.type`, `code` and `type` of a JSON error, where they are text or numbers. */
export function errorCodesOf(body: Buffer): string[] {
  const value = smallObject(body);
  if (value === null) return [];
  const error: unknown = "error" in value ? value.error : undefined;
  return [error, value].flatMap((part) => {
    if (typeof part !== "object" || part === null) return [];
    const said = part as { readonly code?: unknown; readonly type?: unknown };
    return [said.code, said.type].filter((code) => typeof code === "string" || typeof code === "number").map(String);
  });
}

/** A chat or completion in one piece that finished and holds nothing: legal, and nothing that others should be given. */
export function isEmptyCompletion(body: Buffer): boolean {
  const value = smallObject(body);
  const choices = value !== null && "choices" in value ? value.choices : undefined;
  if (!Array.isArray(choices)) return false;
  return choices.every((choice: { message?: Record<string, unknown>; text?: unknown } | null) => {
    const says = (part: unknown): boolean => part !== undefined && part !== null && part !== "" && !isEmptyList(part);
    const { message } = choice ?? {};
    const spoken = ["content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning", "audio"];
    return !says(choice?.text) && !spoken.some((name) => says(message?.[name]));
  });
}

const isEmptyList = (part: unknown): boolean => Array.isArray(part) && part.length === 0;
