import type { Json, JsonObject } from "../json.ts";
import type { SimDialect } from "../options.ts";
import { namedEvent, type AnswerFacts, type AnswerShape } from "./shape.ts";

/** Anthropic's messages, as each engine speaks them: named events, no `[DONE]`. */
export function messages(dialect: SimDialect, facts: AnswerFacts): AnswerShape {
  const { plan } = facts;
  const id = `chatcmpl-${facts.id}`;
  const vllm = dialect === "vllm";
  const tool = plan.tool;
  const deltaHead = vllm
    ? `{"type":"content_block_delta","delta":`
    : `{"type":"content_block_delta","index":0,"delta":`;
  const deltaTail = vllm ? `,"index":0}\n\n` : "}\n\n";
  return {
    open(emit) {
      const message = {
        ...{ id, type: "message", role: "assistant", content: [], model: facts.model, stop_reason: null },
        ...{ stop_sequence: null, usage: startUsage(vllm, facts) },
      };
      emit(namedEvent("message_start", { type: "message_start", message }));
      const block = tool === undefined ? { type: "text", text: "" } : { ...toolBlock(facts), input: {} };
      const start = vllm ? { content_block: block, index: 0 } : { index: 0, content_block: block };
      emit(namedEvent("content_block_start", { type: "content_block_start", ...start }));
    },
    token(index, emit) {
      const text = plan.pieceJson(0, index);
      const delta =
        tool === undefined
          ? `{"type":"text_delta","text":${text}}`
          : `{"type":"input_json_delta","partial_json":${text}}`;
      emit(`event: content_block_delta\ndata: ${deltaHead}${delta}${deltaTail}`);
    },
    close(emit) {
      emit(namedEvent("content_block_stop", { type: "content_block_stop", index: 0 }));
      const delta = { stop_reason: stopReason(facts), stop_sequence: plan.stopReason };
      const usage = vllm ? endUsage(vllm, facts) : { output_tokens: plan.tokens };
      emit(namedEvent("message_delta", { type: "message_delta", delta, usage }));
      emit(namedEvent("message_stop", { type: "message_stop" }));
    },
    whole: () => ({
      id,
      type: "message",
      role: "assistant",
      content: [tool === undefined ? { type: "text", text: plan.text(0) } : toolBlock(facts)],
      model: facts.model,
      stop_reason: stopReason(facts),
      ...(vllm ? {} : { stop_sequence: plan.stopReason }),
      usage: endUsage(vllm, facts),
    }),
  };
}

function stopReason({ plan }: AnswerFacts): string {
  if (plan.tool !== undefined) return "tool_use";
  if (plan.stopReason !== null) return "stop_sequence";
  return plan.finish === "length" ? "max_tokens" : "end_turn";
}

function toolBlock({ plan }: AnswerFacts): JsonObject {
  const input = JSON.parse(plan.text(0)) as Json;
  return { type: "tool_use", id: `toolu_${plan.tool?.id ?? ""}`, name: plan.tool?.name ?? "", input };
}

/** vLLM counts the whole prompt as input; llama.cpp shows cached tokens apart. */
function startUsage(vllm: boolean, { request, cachedTokens }: AnswerFacts): JsonObject {
  if (vllm) return { input_tokens: request.promptTokens, output_tokens: 0 };
  return {
    cache_read_input_tokens: cachedTokens,
    input_tokens: request.promptTokens - cachedTokens,
    output_tokens: 0,
  };
}

function endUsage(vllm: boolean, facts: AnswerFacts): JsonObject {
  const { request, plan, cachedTokens } = facts;
  if (!vllm) return { ...startUsage(vllm, facts), output_tokens: plan.tokens };
  return {
    input_tokens: request.promptTokens,
    output_tokens: plan.tokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
  };
}
