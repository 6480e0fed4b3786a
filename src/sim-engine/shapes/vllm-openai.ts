import type { Json, JsonObject } from "../json.ts";
import {
  dataEvent,
  DONE_EVENT,
  logprobOf,
  VLLM_FINGERPRINT,
  type AnswerFacts,
  type AnswerShape,
  type Emit,
} from "./shape.ts";

const totals = (
  facts: AnswerFacts,
  completion: number,
): { prompt_tokens: number; total_tokens: number; completion_tokens: number } => ({
  prompt_tokens: facts.request.promptTokens,
  total_tokens: facts.request.promptTokens + completion,
  completion_tokens: completion,
});

function chatLogprobs(facts: AnswerFacts, pieces: readonly string[]): Json {
  const top = facts.request.topLogprobs;
  if (top === undefined) return null;
  const row = (token: string, rank: number): { token: string; logprob: number; bytes: number[] } => ({
    token,
    logprob: logprobOf(token, rank),
    bytes: [...Buffer.from(token)],
  });
  return {
    content: pieces.map((piece) => ({
      ...row(piece, 0),
      top_logprobs: Array.from({ length: top }, (_, rank) => row(rank === 0 ? piece : `${piece}${rank}`, rank)),
    })),
  };
}

const pieces = (facts: AnswerFacts, choice: number): string[] =>
  Array.from({ length: facts.plan.tokens }, (_, index) => facts.plan.piece(choice, index));

export function vllmChat(facts: AnswerFacts): AnswerShape {
  const { request, plan } = facts;
  const base = {
    id: `chatcmpl-${facts.id}`,
    object: "chat.completion.chunk",
    created: facts.createdS,
    model: facts.model,
  };
  const head = `data: ${JSON.stringify(base).slice(0, -1)},"choices":[{"index":`;
  const last = plan.tokens - 1;
  const usageField = (completion: number): string =>
    request.continuousUsage
      ? `,"usage":${JSON.stringify({ ...totals(facts, completion), completion_tokens_details: null })}`
      : "";

  const delta = (choice: number, index: number): string => {
    if (plan.tool === undefined) return `{"content":${plan.pieceJson(choice, index)}}`;
    const start = index === 0 ? `"id":"chatcmpl-tool-${plan.tool.id}${choice}","type":"function",` : "";
    const name = index === 0 ? `"name":${JSON.stringify(plan.tool.name)},` : "";
    return `{"tool_calls":[{${start}"index":0,"function":{${name}"arguments":${plan.pieceJson(choice, index)}}}]}`;
  };
  const tail = (index: number): string => {
    if (index < last) return `,"finish_reason":null,"token_ids":null}]${usageField((index + 1) * request.n)}}\n\n`;
    const print = request.includeUsage ? "" : `,"system_fingerprint":"${VLLM_FINGERPRINT}"`;
    const stop = JSON.stringify(plan.stopReason);
    return `,"finish_reason":"${plan.finish}","stop_reason":${stop},"token_ids":null}]${usageField((index + 1) * request.n)}${print}}\n\n`;
  };
  return {
    open(emit) {
      for (let choice = 0; choice < request.n; choice += 1) {
        emit(
          `${head}${choice},"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]${usageField(0)},"prompt_token_ids":null,"prompt_text":null}\n\n`,
        );
      }
    },
    token(index, emit) {
      const end = tail(index);
      for (let choice = 0; choice < request.n; choice += 1) {
        const probs =
          request.topLogprobs === undefined ? "null" : JSON.stringify(chatLogprobs(facts, [plan.piece(choice, index)]));
        emit(`${head}${choice},"delta":${delta(choice, index)},"logprobs":${probs}${end}`);
      }
    },
    close(emit) {
      closeOpenAi(facts, base, { cached_tokens: facts.cachedTokens, created_cache_tokens: 0 }, emit);
    },
    whole: () => ({ ...base, ...wholeChat(facts) }),
  };
}

function wholeChat(facts: AnswerFacts): JsonObject {
  const { request, plan } = facts;
  return {
    object: "chat.completion",
    choices: Array.from({ length: request.n }, (_, choice) => ({
      index: choice,
      message: {
        role: "assistant",
        content: plan.tool === undefined ? plan.text(choice) : null,
        refusal: null,
        annotations: null,
        audio: null,
        function_call: null,
        ...toolCalls(facts, choice),
        reasoning: null,
      },
      logprobs: chatLogprobs(facts, pieces(facts, choice)),
      finish_reason: plan.finish,
      stop_reason: plan.stopReason,
      token_ids: null,
      routed_experts: null,
    })),
    service_tier: null,
    system_fingerprint: VLLM_FINGERPRINT,
    usage: wholeUsage(facts, 0),
    prompt_logprobs: null,
    prompt_token_ids: null,
    prompt_text: null,
    kv_transfer_params: null,
    ec_transfer_params: null,
    metrics: null,
  };
}

function toolCalls(facts: AnswerFacts, choice: number): { readonly [key: string]: Json } {
  const tool = facts.plan.tool;
  if (tool === undefined) return {};
  return {
    tool_calls: [
      {
        id: `chatcmpl-tool-${tool.id}${choice}`,
        type: "function",
        function: { name: tool.name, arguments: facts.plan.text(choice) },
      },
    ],
  };
}

function wholeUsage(facts: AnswerFacts, createdCacheTokens: number | null): Json {
  return {
    ...totals(facts, facts.plan.tokens * facts.request.n),
    prompt_tokens_details: {
      cached_tokens: facts.cachedTokens,
      created_cache_tokens: createdCacheTokens,
      multimodal_tokens: null,
    },
    completion_tokens_details: null,
  };
}

function closeOpenAi(facts: AnswerFacts, base: { readonly [key: string]: Json }, details: Json, emit: Emit): void {
  if (facts.request.includeUsage) {
    const usage = { ...totals(facts, facts.plan.tokens * facts.request.n), prompt_tokens_details: details };
    emit(dataEvent({ ...base, choices: [], usage, system_fingerprint: VLLM_FINGERPRINT }));
  }
  emit(DONE_EVENT);
}

export function vllmCompletions(facts: AnswerFacts): AnswerShape {
  const { request, plan } = facts;
  const base = { id: `cmpl-${facts.id}`, object: "text_completion", created: facts.createdS, model: facts.model };
  const head = `data: ${JSON.stringify(base).slice(0, -1)},"choices":[{"index":`;
  const logprobs = (texts: readonly string[]): Json =>
    request.topLogprobs === undefined
      ? null
      : {
          text_offset: texts.map((_, index) => texts.slice(0, index).join("").length),
          token_logprobs: texts.map((text) => logprobOf(text, 0)),
          tokens: [...texts],
          top_logprobs: texts.map((text) => ({ [text]: logprobOf(text, 0) })),
        };
  return {
    open() {},
    token(index, emit) {
      const ended = index === plan.tokens - 1;
      const usage = request.continuousUsage ? `,"usage":${JSON.stringify(totals(facts, (index + 1) * request.n))}` : "";
      const tail = `,"finish_reason":${ended ? `"${plan.finish}"` : "null"},"stop_reason":${ended ? JSON.stringify(plan.stopReason) : "null"},"prompt_token_ids":null,"token_ids":null}]${usage}}\n\n`;
      for (let choice = 0; choice < request.n; choice += 1) {
        const probs =
          request.topLogprobs === undefined ? "null" : JSON.stringify(logprobs([plan.piece(choice, index)]));
        emit(`${head}${choice},"text":${plan.pieceJson(choice, index)},"logprobs":${probs}${tail}`);
      }
    },
    close(emit) {
      closeOpenAi(facts, base, { cached_tokens: facts.cachedTokens }, emit);
    },
    whole: () => ({
      ...base,
      choices: Array.from({ length: request.n }, (_, choice) => ({
        index: choice,
        text: plan.text(choice),
        logprobs: logprobs(pieces(facts, choice)),
        finish_reason: plan.finish,
        stop_reason: plan.stopReason,
        token_ids: null,
        prompt_logprobs: null,
        prompt_token_ids: null,
        routed_experts: null,
      })),
      service_tier: null,
      system_fingerprint: VLLM_FINGERPRINT,
      usage: wholeUsage(facts, null),
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    }),
  };
}
