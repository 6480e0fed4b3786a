import type { ProviderPrice, ProviderSettings } from "../../../contract/provider-settings.ts";
import { isJsonObject, type JsonObject } from "../../http/token-usage.ts";
import { words } from "../../http/words.ts";
import {
  get,
  isSuccess,
  judgeSubmitStatus,
  membersAt,
  NO_CANCELLATION,
  postJson,
  readErrorStatus,
  readMembers,
  type CloudAnswer,
  type CloudPlan,
  type CloudProtocol,
} from "./cloud-call.ts";
import { chargeFor, quote } from "./price-quote.ts";
import type { ProviderWork, SubmitOutcome } from "./provider-work.ts";

/** Of a chat template around a prompt, per message and in all: tokens that stand in no byte of the body. */
const TEMPLATE_TOKENS = 64;
const EMBEDDINGS = "/v1/embeddings";
/** What costs no more than its tokens. */
const TOKEN_PATHS: ReadonlySet<string> = new Set([
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/responses",
  "/v1/messages",
  EMBEDDINGS,
]);
/** What else a model is asked for. The key opens more than that at the place, and a job's owner is to have none of it. */
const OTHER_PATHS: ReadonlySet<string> = new Set([
  "/v1/rerank",
  "/v1/score",
  "/v1/classify",
  "/v1/moderations",
  "/v1/audio/speech",
  "/v1/images/generations",
]);
/** A whole answer of any of the API's routes has one of these. */
const RESULTS = ["choices", "data", "output", "results", "content", "text"];

/** Any service with OpenAI's API, another site's gateway included. The whole answer is the result, so nothing is left to ask for. */
export function openai(settings: ProviderSettings): CloudProtocol {
  return {
    plan: (work) => plan(settings, work),
    readSubmission: (answer) => readSubmission(settings.price, answer),
    look: () => get("/"),
    readLook: () => ({ kind: "lost", why: "the service answers at once and has no tasks" }),
    place: () => ({ kind: "lost", why: "the service answers at once and has no tasks" }),
    ...NO_CANCELLATION,
  };
}

function plan({ model, price }: ProviderSettings, work: ProviderWork): CloudPlan {
  if (!isJsonObject(work.body)) return { kind: "unfit", why: "the job's body is not a JSON object" };
  const [path = ""] = work.path.split("?", 1);
  if (!TOKEN_PATHS.has(path) && (price?.unit === "1kTokens" || !OTHER_PATHS.has(path)))
    return {
      kind: "unfit",
      why: `a job for ${path} is not sent there: what it costs is not told by tokens, or it asks no model`,
    };
  const { stream: _stream, stream_options: _options, ...asked } = work.body;
  const body = model === null ? asked : { ...asked, model };
  const call = postJson(work.path, body, { "idempotency-key": work.idempotencyKey });
  return {
    kind: "ok",
    call,
    quote: quote(price, { tokens: tokensAtMost(asked, call.body ?? "", path === EMBEDDINGS) }),
  };
}

/** No token is shorter than a byte. Undefined where the answer's length is left open, as nobody can say what that costs. */
function tokensAtMost(asked: JsonObject, body: string, embeds: boolean): number | undefined {
  if (showsMoreThanText(asked["messages"]) || showsMoreThanText(asked["input"])) return undefined;
  if (WITH_PRICE_OF_THEIR_OWN.some((name) => isGiven(asked[name])) || callsPlacesTools(asked["tools"]))
    return undefined;
  if (speaks(asked["modalities"]) || isHurried(asked["service_tier"])) return undefined;
  const answer = largestOf(asked, ["max_completion_tokens", "max_tokens", "max_output_tokens"]);
  const choices = largestOf(asked, ["n", "best_of"]) ?? 1;
  if (!embeds && !(isCount(answer) && isCount(choices))) return undefined;
  const messages = Array.isArray(asked["messages"]) ? asked["messages"].length : 1;
  const prompt = Buffer.byteLength(body) + TEMPLATE_TOKENS * messages;
  return prompt + (embeds ? 0 : Number(answer) * Number(choices));
}

/**
 * Members by which more is bought than the tokens of this text by this model: searches, sounds, other models, and texts that the place
 * keeps.
 */
const WITH_PRICE_OF_THEIR_OWN = [
  "web_search_options",
  "audio",
  "models",
  "plugins",
  "mcp_servers",
  "container",
  "previous_response_id",
  "conversation",
];

const isGiven = (value: unknown): boolean => value !== undefined && value !== null;

/** Tokens of sound cost more than those of text. */
const speaks = (modalities: unknown): boolean =>
  isGiven(modalities) && !(Array.isArray(modalities) && modalities.every((each) => each === "text"));

/** A better place in the line is dearer. */
const isHurried = (serviceTier: unknown): boolean =>
  isGiven(serviceTier) && !["auto", "default", "flex"].includes(String(serviceTier));

/** A place may go by any of them. NaN: one is no count, undefined: none is given. */
function largestOf(asked: JsonObject, names: readonly string[]): number | undefined {
  const given = names.map((name) => asked[name]).filter((value) => value !== undefined && value !== null);
  if (given.length === 0) return undefined;
  return given.every(isCount) ? Math.max(...given.map(Number)) : Number.NaN;
}

/** What a picture or a sound costs stands in no byte of the body: it may be an address of anything. */
const showsMoreThanText = (messages: unknown): boolean =>
  Array.isArray(messages) &&
  messages.some((message) => {
    const content: unknown = isJsonObject(message) ? message["content"] : null;
    return Array.isArray(content) && content.some((part) => !isJsonObject(part) || !isText(part["type"]));
  });

/** A search or a program that the place runs has a price of its own. */
const callsPlacesTools = (tools: unknown): boolean =>
  Array.isArray(tools) && tools.some((tool) => isJsonObject(tool) && (tool["type"] ?? "function") !== "function");

const isText = (type: unknown): boolean => type === "text" || type === "input_text" || type === "output_text";

const isCount = (value: unknown): boolean => typeof value === "number" && Number.isSafeInteger(value) && value > 0;

function readSubmission(price: ProviderPrice | null, answer: CloudAnswer): SubmitOutcome {
  const members = readMembers(answer);
  const error = errorOf(members);
  if (error !== undefined && ["insufficient_quota", "billing_hard_limit_reached"].includes(error.code))
    return { kind: "refused", reason: "quota", why: `the service has no money left: ${error.said}` };
  if (!isSuccess(answer)) {
    if (answer.status === 400 && error !== undefined && /content_(?:policy|filter)/.test(error.code))
      return { kind: "refused", reason: "policy", why: `the service refused the content: ${error.said}` };
    return judgeSubmitStatus(answer, error?.said ?? "no words");
  }
  if (error !== undefined) {
    const status = readErrorStatus(error.code);
    // An error with status 200 names the status that it would have had, or nobody knows what was done.
    return status === undefined
      ? { kind: "unknown", why: `the service answered with an error: ${error.said}` }
      : judgeSubmitStatus({ ...answer, status }, error.said);
  }
  if (members === undefined || !RESULTS.some((name) => members[name] !== undefined))
    return { kind: "unknown", why: "the service answered with what holds no result" };
  const { status, contentType, body } = answer;
  const tokens = membersAt(members, "usage")["total_tokens"];
  return { kind: "done", result: { status, contentType, body }, chargedMicros: chargeOf(price, tokens) };
}

function chargeOf(price: ProviderPrice | null, tokens: unknown): number | undefined {
  if (price === null) return 0;
  if (price.unit === "call") return price.micros;
  return price.unit === "1kTokens" && typeof tokens === "number" ? chargeFor(price, tokens) : undefined;
}

function errorOf(members: JsonObject | undefined): { readonly said: string; readonly code: string } | undefined {
  const error = members?.["error"];
  if (error === undefined || error === null) return undefined;
  const { message, code, type } = isJsonObject(error) ? error : { message: error, code: "", type: "" };
  const name = code ?? type;
  return {
    said: words(message, "no words"),
    code: typeof name === "string" || typeof name === "number" ? String(name) : "",
  };
}
