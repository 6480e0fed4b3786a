import type { Json } from "../json.ts";
import {
  dataEvent,
  DONE_EVENT,
  LLAMA_FINGERPRINT,
  logprobOf,
  timingsOf,
  type AnswerFacts,
  type AnswerShape,
} from "./shape.ts";

const usageOf = (facts: AnswerFacts): Json => ({
  completion_tokens: facts.plan.tokens * facts.request.n,
  prompt_tokens: facts.request.promptTokens,
  total_tokens: facts.request.promptTokens + facts.plan.tokens * facts.request.n,
  prompt_tokens_details: { cached_tokens: facts.cachedTokens },
});

function logprobsOf(facts: AnswerFacts, tokens: readonly string[]): { readonly [key: string]: Json } {
  if (facts.request.topLogprobs === undefined) return {};
  const rows = tokens.map((token) => ({
    id: token.length,
    token,
    bytes: [...Buffer.from(token)],
    logprob: logprobOf(token, 0),
    top_logprobs: [],
  }));
  return { logprobs: { content: rows } };
}

export function llamaChat(facts: AnswerFacts): AnswerShape {
  const { request, plan } = facts;
  const id = `chatcmpl-${facts.id}`;
  const base = {
    created: facts.createdS,
    id,
    model: facts.model,
    system_fingerprint: LLAMA_FINGERPRINT,
    object: "chat.completion.chunk",
  };
  const tail = `}}],${JSON.stringify(base).slice(1)}\n\n`;
  const tool = plan.tool;
  return {
    open(emit) {
      for (let choice = 0; choice < request.n; choice += 1) {
        emit(
          `data: {"choices":[{"finish_reason":null,"index":${choice},"delta":{"role":"assistant","content":null${tail}`,
        );
      }
    },
    token(index, emit) {
      for (let choice = 0; choice < request.n; choice += 1) {
        const head = `data: {"choices":[{"finish_reason":null,"index":${choice}${logprobs(facts, choice, index)},"delta":{`;
        if (tool === undefined) {
          emit(`${head}"content":${plan.pieceJson(choice, index)}${tail}`);
        } else {
          const start = index === 0 ? `"id":"${tool.id}${choice}","type":"function",` : "";
          const name = index === 0 ? `"name":${JSON.stringify(tool.name)},` : "";
          emit(
            `${head}"tool_calls":[{"index":0,${start}"function":{${name}"arguments":${plan.pieceJson(choice, index)}}}]${tail}`,
          );
        }
      }
    },
    close(emit) {
      for (let choice = 0; choice < request.n; choice += 1) {
        emit(dataEvent({ choices: [{ finish_reason: plan.finish, index: choice, delta: {} }], ...base }));
      }
      if (request.includeUsage)
        emit(dataEvent({ choices: [], ...base, usage: usageOf(facts), timings: timingsOf(facts) }));
      emit(DONE_EVENT);
    },
    whole: () => wholeChat(facts, id),
  };
}

function wholeChat(facts: AnswerFacts, id: string): Json {
  const { request, plan } = facts;
  const tool = plan.tool;
  return {
    choices: Array.from({ length: request.n }, (_, choice) => ({
      finish_reason: plan.finish,
      index: choice,
      message:
        tool === undefined
          ? { role: "assistant", content: plan.text(choice) }
          : {
              role: "assistant",
              content: null,
              tool_calls: [
                {
                  type: "function",
                  function: { name: tool.name, arguments: plan.text(choice) },
                  id: `${tool.id}${choice}`,
                },
              ],
            },
      ...logprobsOf(
        facts,
        Array.from({ length: request.topLogprobs === undefined ? 0 : plan.tokens }, (_, index) =>
          plan.piece(choice, index),
        ),
      ),
    })),
    created: facts.createdS,
    model: facts.model,
    system_fingerprint: LLAMA_FINGERPRINT,
    object: "chat.completion",
    usage: usageOf(facts),
    id,
    timings: timingsOf(facts),
  };
}

function logprobs(facts: AnswerFacts, choice: number, index: number): string {
  if (facts.request.topLogprobs === undefined) return "";
  return `,${JSON.stringify(logprobsOf(facts, [facts.plan.piece(choice, index)])).slice(1, -1)}`;
}

export function llamaCompletions(facts: AnswerFacts): AnswerShape {
  const { request, plan } = facts;
  const id = `chatcmpl-${facts.id}`;
  const base = {
    created: facts.createdS,
    model: facts.model,
    system_fingerprint: LLAMA_FINGERPRINT,
    object: "text_completion",
  };
  const tail = `],${JSON.stringify({ ...base, id }).slice(1)}\n\n`;
  return {
    open() {},
    token(index, emit) {
      for (let choice = 0; choice < request.n; choice += 1) {
        emit(
          `data: {"choices":[{"text":${plan.pieceJson(choice, index)},"index":${choice},"logprobs":null,"finish_reason":null}${tail}`,
        );
      }
    },
    close(emit) {
      const choices = Array.from({ length: request.n }, (_, choice) => ({
        text: "",
        index: choice,
        logprobs: null,
        finish_reason: plan.finish,
      }));
      emit(dataEvent({ choices, ...base, usage: usageOf(facts), id, timings: timingsOf(facts) }));
      emit(DONE_EVENT);
    },
    whole: () => ({
      choices: Array.from({ length: request.n }, (_, choice) => ({
        text: plan.text(choice),
        index: choice,
        logprobs: null,
        finish_reason: plan.finish,
      })),
      ...base,
      usage: usageOf(facts),
      id,
      timings: timingsOf(facts),
    }),
  };
}
