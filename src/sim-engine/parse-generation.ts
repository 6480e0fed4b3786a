import type { Refusal } from "./error-bodies.ts";
import { isArray, isObject, countOf, numberOf, textOf, type Json, type JsonObject } from "./json.ts";
import type { SimDialect } from "./options.ts";
import { tokenCount } from "./token-text.ts";

export type GenerationKind = "chat" | "completions" | "responses" | "messages";

export interface GenerationRequest {
  readonly kind: GenerationKind;
  readonly stream: boolean;
  readonly promptText: string;
  readonly promptTokens: number;
  readonly maxTokens: number | undefined;
  readonly stop: readonly string[];
  readonly n: number;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  readonly tools: readonly Json[];
  readonly toolChoice: Json | undefined;
  readonly priority: number;
  /** Number of alternatives to show per token; undefined when no probabilities are asked for. */
  readonly topLogprobs: number | undefined;
}

export type GenerationOutcome =
  | { readonly kind: "ok"; readonly request: GenerationRequest }
  | { readonly kind: "refused"; readonly refusal: Refusal };

const CHOICES_MAX = 128;
const LOGPROBS_MAX = 20;

const refuse = (refusal: Refusal): GenerationOutcome => ({ kind: "refused", refusal });

export function parseGeneration(
  dialect: SimDialect,
  kind: GenerationKind,
  body: JsonObject,
  contextTokens: number,
): GenerationOutcome {
  const field = kind === "completions" ? "prompt" : kind === "responses" ? "input" : "messages";
  const wrong = dialect === "vllm" ? vllmFault(kind, field, body, contextTokens) : llamaFault(field, body);
  if (wrong !== undefined) return refuse(wrong);

  const prompts = promptsOf(kind, body);
  const promptText = prompts.join("");
  const given = kind === "completions" && isArray(body["prompt"]) && typeof body["prompt"][0] === "number";
  const promptTokens = given ? (body["prompt"] as readonly Json[]).length : tokenCount(promptText);
  const tooLong = contextFault(dialect, promptTokens, contextTokens);
  if (tooLong !== undefined) return refuse(tooLong);

  const options = isObject(body["stream_options"]) ? body["stream_options"] : {};
  const limit = maxTokensOf(kind, body);
  const stop = body["stop"] ?? body["stop_sequences"];
  return {
    kind: "ok",
    request: {
      kind,
      stream: body["stream"] === true,
      promptText,
      promptTokens,
      maxTokens:
        limit === undefined || limit < 0
          ? undefined
          : Math.min(Math.floor(limit), Math.max(1, contextTokens - promptTokens)),
      stop: (isArray(stop) ? stop : [stop]).flatMap((text) => textOf(text) ?? []),
      n: (countOf(body["n"], 1, CHOICES_MAX) ?? 1) * (kind === "completions" ? prompts.length : 1),
      includeUsage: options["include_usage"] === true,
      continuousUsage: options["include_usage"] === true && options["continuous_usage_stats"] === true,
      tools: isArray(body["tools"]) && !endsWithToolResult(body) ? body["tools"] : [],
      toolChoice: body["tool_choice"],
      priority: dialect === "vllm" ? (numberOf(body["priority"]) ?? 0) : 0,
      topLogprobs: logprobsOf(kind, body),
    },
  };
}

function maxTokensOf(kind: GenerationKind, body: JsonObject): number | undefined {
  if (kind === "responses") return numberOf(body["max_output_tokens"]);
  return numberOf(body["max_completion_tokens"]) ?? numberOf(body["max_tokens"]) ?? numberOf(body["n_predict"]);
}

function logprobsOf(kind: GenerationKind, body: JsonObject): number | undefined {
  if (kind === "chat" && body["logprobs"] === true) return countOf(body["top_logprobs"], 0, LOGPROBS_MAX) ?? 0;
  return kind === "completions" ? countOf(body["logprobs"], 0, LOGPROBS_MAX) : undefined;
}

/** One text for each prompt; a conversation is one. */
export function promptsOf(kind: GenerationKind, body: JsonObject): string[] {
  if (kind === "completions") {
    const prompt = body["prompt"];
    if (isArray(prompt) && prompt.length > 0 && typeof prompt[0] !== "number")
      return prompt.map((item) => textOf(item) ?? JSON.stringify(item));
    return [textOf(prompt) ?? JSON.stringify(prompt ?? "")];
  }
  const system = body["system"] ?? body["instructions"];
  const source = body[kind === "responses" ? "input" : "messages"];
  const head = system === undefined || system === null ? "" : turn("system", system);
  const turns = typeof source === "string" ? turn("user", source) : messagesText(source);
  const tools = isArray(body["tools"]) ? JSON.stringify(body["tools"]) : "";
  return [`${tools}${head}${turns}<|assistant|>`];
}

export function messagesText(messages: Json | undefined): string {
  if (!isArray(messages)) return "";
  return messages
    .map((message) => (isObject(message) ? turn(textOf(message["role"]) ?? "", message["content"]) : ""))
    .join("");
}

function turn(role: string, content: Json | undefined): string {
  return `<|${role}|>${contentText(content)}`;
}

function contentText(content: Json | undefined): string {
  if (typeof content === "string") return content;
  if (!isArray(content)) return "";
  return content
    .map((part) => (isObject(part) ? (textOf(part["text"]) ?? JSON.stringify(part)) : (textOf(part) ?? "")))
    .join("");
}

function endsWithToolResult(body: JsonObject): boolean {
  const source = body["messages"] ?? body["input"];
  const last = isArray(source) ? source.at(-1) : undefined;
  if (!isObject(last)) return false;
  if (last["role"] === "tool" || last["type"] === "function_call_output") return true;
  return isArray(last["content"]) && last["content"].some((part) => isObject(part) && part["type"] === "tool_result");
}

function vllmFault(kind: GenerationKind, field: string, body: JsonObject, contextTokens: number): Refusal | undefined {
  const schema = (loc: string, type: string, msg: string, input: string): Refusal => ({
    status: 400,
    type: "Bad Request",
    message: `1 validation error:\n  {'type': '${type}', 'loc': 'body.${loc}', 'msg': '${msg}', 'input': '${input}'}`,
    param: `body.${loc}`,
  });
  const value = (param: string | null, message: string, shown?: string): Refusal => ({
    status: 400,
    type: "BadRequestError",
    message:
      param === null ? message : `${message} (parameter=${param}${shown === undefined ? "" : `, value=${shown}`})`,
    param,
  });
  if (body[field] === undefined)
    return schema(field, "missing", "Field required", `<dict of ${Object.keys(body).length} items>`);
  if (kind === "messages" && body["max_tokens"] === undefined)
    return schema("max_tokens", "missing", "Field required", `<dict of ${Object.keys(body).length} items>`);
  for (const name of ["temperature", "top_p", "max_tokens", "max_completion_tokens", "n"]) {
    const given = body[name];
    if (typeof given === "string")
      return schema(name, "float_parsing", "Input should be a valid number, unable to parse string as a number", given);
  }
  const priority = body["priority"];
  if (priority !== undefined && priority !== null && typeof priority !== "number") {
    return schema(
      "priority",
      "int_parsing",
      "Input should be a valid integer, unable to parse string as an integer",
      JSON.stringify(priority),
    );
  }
  if (isArray(body[field]) && body[field].length === 0) {
    return value(
      null,
      kind === "completions"
        ? "You must pass at least one prompt"
        : "Cannot apply chat template to an empty conversation. Provide at least one message.",
    );
  }
  const temperature = numberOf(body["temperature"]);
  if (temperature !== undefined && temperature < 0)
    return value(
      "temperature",
      `temperature must be non-negative, got ${temperature.toFixed(1)}.`,
      temperature.toFixed(1),
    );
  const topP = numberOf(body["top_p"]);
  if (topP !== undefined && (topP <= 0 || topP > 1))
    return value("top_p", `top_p must be in (0, 1], got ${topP.toFixed(1)}.`, topP.toFixed(1));
  const limit = maxTokensOf(kind, body);
  if (limit !== undefined && limit < 1)
    return value("max_tokens", `max_tokens must be at least 1, got ${limit}.`, String(limit));
  if (limit !== undefined && limit > contextTokens) {
    return value(
      "max_tokens",
      `max_tokens=${limit} cannot be greater than max_model_len=${contextTokens}. Please request fewer output tokens.`,
      String(limit),
    );
  }
  if (isObject(body["stream_options"]) && body["stream"] !== true)
    return value("stream_options", "Stream options can only be defined when `stream=True`.");
  return undefined;
}

function llamaFault(field: string, body: JsonObject): Refusal | undefined {
  const fault = (message: string): Refusal => ({ status: 400, type: "invalid_request_error", message });
  if (body[field] === undefined) return fault(`'${field}' is required`);
  if (field === "messages" && !isArray(body[field])) return fault("'messages' must be an array");
  return undefined;
}

export function contextFault(dialect: SimDialect, promptTokens: number, contextTokens: number): Refusal | undefined {
  if (promptTokens < contextTokens) return undefined;
  if (dialect === "vllm") {
    const least = contextTokens + 1;
    const message =
      `This model's maximum context length is ${contextTokens} tokens. However, your prompt contains at least ${least} input tokens, ` +
      `which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=${least})`;
    return { status: 400, type: "BadRequestError", message, param: "input_tokens" };
  }
  return {
    status: 400,
    type: "exceed_context_size_error",
    message: `request (${promptTokens} tokens) exceeds the available context size (${contextTokens} tokens), try increasing it`,
    extra: { n_prompt_tokens: promptTokens, n_ctx: contextTokens },
  };
}
