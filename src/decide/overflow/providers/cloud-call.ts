import { isJsonObject, type JsonObject } from "../../http/token-usage.ts";
import type {
  CancelOutcome,
  FindOutcome,
  PollOutcome,
  PriceQuote,
  ProviderWork,
  SubmitOutcome,
} from "./provider-work.ts";

/** A request as it goes to a place; what authorises it is added by who sends it. */
export interface CloudCall {
  readonly method: string;
  /** After the tier's base URL. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON; null: none. */
  readonly body: string | null;
}

/** A whole answer. */
export interface CloudAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly retryAfterMs: number | undefined;
  readonly body: Buffer;
}

export type CloudPlan =
  | { readonly kind: "ok"; readonly call: CloudCall; readonly quote: PriceQuote }
  /** The place has no use for such work. `why` is for the job's owner. */
  | { readonly kind: "unfit"; readonly why: string };

/** Where the bytes of a result are. */
export type ResultPlace =
  /** As the place told it: an address of anybody's. */
  | { readonly kind: "url"; readonly url: string }
  | { readonly kind: "call"; readonly call: CloudCall }
  | { readonly kind: "unavailable"; readonly why: string; readonly retryAfterMs?: number | undefined }
  | { readonly kind: "lost"; readonly why: string };

/**
 * What one place's API looks like, as functions of what was sent and answered. Each `read…` is given a whole answer, of any status;
 * an exchange without one is judged alike for all places.
 */
export interface CloudProtocol {
  plan(work: ProviderWork): CloudPlan;
  readSubmission(answer: CloudAnswer, call: CloudCall): SubmitOutcome;
  look(taskId: string): CloudCall;
  readLook(answer: CloudAnswer, taskId: string): PollOutcome;
  /** By what a look named as the result. */
  place(result: string): ResultPlace;
  /** What a `call` of `place` brought; absent where it brings the bytes themselves. */
  readPlace?(answer: CloudAnswer): ResultPlace;
  /** Asks for the task of a key; absent: there is no such request. */
  readonly finding?: {
    readonly call: (key: string) => CloudCall;
    readonly read: (answer: CloudAnswer) => FindOutcome;
  };
  /** Null: there is no such request. */
  cancellation(taskId: string): CloudCall | null;
  readCancellation(answer: CloudAnswer): CancelOutcome;
}

export const TASK_ID_CHARS_MAX = 512;

export const postJson = (path: string, body: unknown, headers: Readonly<Record<string, string>> = {}): CloudCall => ({
  method: "POST",
  path,
  headers: { ...headers, "content-type": "application/json" },
  body: JSON.stringify(body),
});

export const get = (path: string): CloudCall => ({ method: "GET", path, headers: {}, body: null });

/** The object at a member; an empty one where there is none. */
export const membersAt = (value: unknown, name: string): JsonObject => {
  const found = isJsonObject(value) ? value[name] : undefined;
  return isJsonObject(found) ? found : {};
};

/**
 * The JSON object of an answer; undefined where it is none. Whole numbers beyond what a double holds come as their digits: ids of
 * 64 bits stand there as numbers.
 */
export function readMembers(answer: CloudAnswer): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(answer.body.toString("utf8"), keepDigits);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

const keepDigits = (_key: string, value: unknown, context?: { readonly source?: string }): unknown =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? context?.source
    : value;

/** An id that can be stored and put into a path: text or digits, neither empty nor longer than TASK_ID_CHARS_MAX. */
export function readId(value: unknown): string | undefined {
  const text = typeof value === "number" && Number.isSafeInteger(value) ? String(value) : value;
  if (typeof text !== "string" || text.length > TASK_ID_CHARS_MAX) return undefined;
  // A path step of dots is no name but a way elsewhere.
  return /^[\x21-\x7e]+$/.test(text) && !/^\.{1,2}$/.test(text) ? text : undefined;
}

/** The status that an error inside an answer names; undefined where it names none. */
export function readErrorStatus(value: unknown): number | undefined {
  const status = Number(value);
  return Number.isInteger(status) && status >= 400 && status <= 599 ? status : undefined;
}

/** By its status alone, what an answer other than 2xx says of a submission. `said`: the place's own words. */
export function judgeSubmitStatus(answer: CloudAnswer, said: string): SubmitOutcome {
  const { status, retryAfterMs } = answer;
  const why = `the place answered ${status}: ${said}`;
  if (status === 429 || status === 503) return { kind: "unavailable", why, retryAfterMs };
  if (status === 401 || status === 403) return { kind: "refused", reason: "auth", why };
  if (status === 402) return { kind: "refused", reason: "quota", why };
  // After 408 and 409 the place may be at work on it.
  if (status >= 400 && status < 500 && status !== 408 && status !== 409)
    return { kind: "refused", reason: "input", why };
  return { kind: "unknown", why };
}

/** By its status alone, what an answer other than 2xx says of a task. A key that is refused now says nothing of the task. */
export function judgeLookStatus(answer: CloudAnswer, said: string): PollOutcome {
  const why = `the place answered ${answer.status}: ${said}`;
  if (answer.status === 404 || answer.status === 410) return { kind: "lost", why };
  return { kind: "unavailable", why, retryAfterMs: answer.retryAfterMs };
}

export const isSuccess = ({ status }: CloudAnswer): boolean => status >= 200 && status < 300;

/** By the look that is for tasks, for what hands out a result. */
export function judgePlaceStatus(answer: CloudAnswer, said: string): ResultPlace {
  const outcome = judgeLookStatus(answer, said);
  return outcome.kind === "lost" ? outcome : { kind: "unavailable", why: said, retryAfterMs: answer.retryAfterMs };
}

/** What no place but one with such a request is asked. */
export const NO_CANCELLATION = {
  cancellation: (): null => null,
  readCancellation: (): CancelOutcome => ({ kind: "unsupported" }),
};
