import type { Json } from "../json.ts";
import type { SimDialect } from "../options.ts";
import { namedEvent, type AnswerFacts, type AnswerShape } from "./shape.ts";

/** Anthropic's messages, as each engine speaks them: named events, no `[DONE]`. */
export function messages(dialect: SimDialect, facts: AnswerFacts): AnswerShape {
  const { request, plan } = facts;
  const id = `chatcmpl-${facts.id}`;
  const vllm = dialect === "vllm";
  const tool = plan.tool;
  const stopReason = tool !== undefined ? "tool_use" : plan.stopReason !== null ? "stop_sequence" : plan.finish === "length" ? "max_tokens" : "end_turn";
  const toolId = `toolu_${tool?.id ?? ""}`;
  // vLLM counts the whole prompt as input; llama.cpp shows cached tokens apart.
  const startUsage = (): Json =>
    vllm
      ? { input_tokens: request.promptTokens, output_tokens: 0 }
      : { cache_read_input_tokens: facts.cachedTokens, input_tokens: request.promptTokens - facts.cachedTokens, output_tokens: 0 };
  const block = (): Json => (tool === undefined ? { type: "text", text: "" } : { type: "tool_use", id: toolId, name: tool.name, input: {} });
  const deltaHead = vllm ? `{"type":"content_block_delta","delta":` : `{"type":"content_block_delta","index":0,"delta":`;
  const deltaTail = vllm ? `,"index":0}\n\n` : "}\n\n";
  return {
    open(emit) {
      emit(namedEvent("message_start", {
        type: "message_start",
        message: { id, type: "message", role: "assistant", content: [], model: facts.model, stop_reason: null, stop_sequence: null, usage: startUsage() },
      }));
      emit(namedEvent("content_block_start", vllm ? { type: "content_block_start", content_block: block(), index: 0 } : { type: "content_block_start", index: 0, content_block: block() }));
    },
    token(index, emit) {
      const text = plan.pieceJson(0, index);
      const delta = tool === undefined ? `{"type":"text_delta","text":${text}}` : `{"type":"input_json_delta","partial_json":${text}}`;
      emit(`event: content_block_delta\ndata: ${deltaHead}${delta}${deltaTail}`);
    },
    close(emit) {
      emit(namedEvent("content_block_stop", { type: "content_block_stop", index: 0 }));
      const usage = vllm
        ? { input_tokens: request.promptTokens, output_tokens: plan.tokens, cache_creation_input_tokens: 0, cache_read_input_tokens: facts.cachedTokens }
        : { output_tokens: plan.tokens };
      emit(namedEvent("message_delta", { type: "message_delta", delta: { stop_reason: stopReason, stop_sequence: plan.stopReason }, usage }));
      emit(namedEvent("message_stop", { type: "message_stop" }));
    },
    whole: () => ({
      id,
      type: "message",
      role: "assistant",
      content: [tool === undefined ? { type: "text", text: plan.text(0) } : { type: "tool_use", id: toolId, name: tool.name, input: JSON.parse(plan.text(0)) as Json }],
      model: facts.model,
      stop_reason: stopReason,
      ...(vllm ? {} : { stop_sequence: plan.stopReason }),
      usage: vllm
        ? { input_tokens: request.promptTokens, output_tokens: plan.tokens, cache_creation_input_tokens: 0, cache_read_input_tokens: facts.cachedTokens }
        : { cache_read_input_tokens: facts.cachedTokens, input_tokens: request.promptTokens - facts.cachedTokens, output_tokens: plan.tokens },
    }),
  };
}
