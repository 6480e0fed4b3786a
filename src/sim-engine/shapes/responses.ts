import type { Json, JsonObject } from "../json.ts";
import type { SimDialect } from "../options.ts";
import { namedEvent, timingsOf, type AnswerFacts, type AnswerShape, type Emit } from "./shape.ts";

export const responses = (dialect: SimDialect, facts: AnswerFacts): AnswerShape =>
  dialect === "vllm" ? vllmResponses(facts) : llamaResponses(facts);

/** vLLM's events carry a sequence number and its response object carries every field, most of them null. */
function vllmResponses(facts: AnswerFacts): AnswerShape {
  const { plan } = facts;
  const itemId = `msg_${facts.id}`;
  const tool = plan.tool;
  let sequence = 0;
  const event = (emit: Emit, type: string, fields: JsonObject): void => {
    emit(namedEvent(type, { ...fields, sequence_number: sequence, type }));
    sequence += 1;
  };
  return {
    open(emit) {
      event(emit, "response.created", { response: vllmObject(facts, false) });
      event(emit, "response.in_progress", { response: vllmObject(facts, false) });
      if (tool !== undefined) {
        event(emit, "response.output_item.added", {
          item: { ...vllmItem(facts), arguments: "", status: "in_progress" },
          output_index: 0,
        });
        return;
      }
      event(emit, "response.output_item.added", {
        item: { id: itemId, content: [], role: "assistant", status: "in_progress", type: "message", phase: null },
        output_index: 0,
      });
      event(emit, "response.content_part.added", {
        content_index: 0,
        item_id: itemId,
        output_index: 0,
        part: { annotations: [], text: "", type: "output_text", logprobs: [] },
      });
    },
    token(index, emit) {
      const delta = plan.piece(0, index);
      if (tool !== undefined)
        event(emit, "response.function_call_arguments.delta", { delta, item_id: `fc_${tool.id}`, output_index: 0 });
      else
        event(emit, "response.output_text.delta", {
          content_index: 0,
          delta,
          item_id: itemId,
          logprobs: [],
          output_index: 0,
        });
    },
    close: (emit) => closeVllm(facts, (type, fields) => event(emit, type, fields)),
    whole: () => vllmObject(facts, true),
  };
}

function closeVllm(facts: AnswerFacts, event: (type: string, fields: JsonObject) => void): void {
  const { plan } = facts;
  const { tool } = plan;
  const itemId = `msg_${facts.id}`;
  if (tool !== undefined) {
    event("response.function_call_arguments.done", {
      arguments: plan.text(0),
      item_id: `fc_${tool.id}`,
      name: tool.name,
      output_index: 0,
    });
  } else {
    event("response.output_text.done", {
      content_index: 0,
      item_id: itemId,
      logprobs: [],
      output_index: 0,
      text: plan.text(0),
    });
    event("response.content_part.done", {
      content_index: 0,
      item_id: itemId,
      output_index: 0,
      part: vllmText(facts),
    });
  }
  event("response.output_item.done", { item: vllmItem(facts), output_index: 0 });
  event("response.completed", { response: vllmObject(facts, true) });
}

function vllmText({ plan }: AnswerFacts): JsonObject {
  return { annotations: [], text: plan.text(0), type: "output_text", logprobs: null };
}

function vllmItem(facts: AnswerFacts): JsonObject {
  const { tool } = facts.plan;
  if (tool === undefined) {
    const id = `msg_${facts.id}`;
    return { id, content: [vllmText(facts)], role: "assistant", status: "completed", type: "message", phase: null };
  }
  const call = { arguments: facts.plan.text(0), call_id: `call_${tool.id}`, name: tool.name };
  return { ...call, type: "function_call", id: `fc_${tool.id}`, status: "completed" };
}

function vllmObject(facts: AnswerFacts, done: boolean): JsonObject {
  const { request, plan } = facts;
  const cut = plan.finish === "length";
  return {
    id: `resp_${facts.id}`,
    created_at: facts.createdS,
    incomplete_details: done && cut ? { reason: "max_output_tokens" } : null,
    instructions: null,
    metadata: null,
    model: facts.model,
    object: "response",
    output: done ? [vllmItem(facts)] : [],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: request.tools.length > 0 ? "auto" : "none",
    tools: request.tools,
    top_p: 1,
    background: false,
    max_output_tokens: request.maxTokens ?? null,
    max_tool_calls: null,
    previous_response_id: null,
    prompt: null,
    reasoning: null,
    service_tier: "auto",
    status: done ? (cut ? "incomplete" : "completed") : "in_progress",
    text: null,
    top_logprobs: null,
    truncation: "disabled",
    usage: done ? vllmUsage(facts) : null,
    user: null,
    presence_penalty: 0,
    frequency_penalty: 0,
    kv_transfer_params: null,
    ec_transfer_params: null,
    input_messages: null,
    output_messages: null,
  };
}

function vllmUsage(facts: AnswerFacts): Json {
  const { request, plan, cachedTokens } = facts;
  return {
    input_tokens: request.promptTokens,
    input_tokens_details: {
      cached_tokens: cachedTokens,
      cache_write_tokens: 0,
      input_tokens_per_turn: [],
      cached_tokens_per_turn: [],
    },
    output_tokens: plan.tokens,
    output_tokens_details: {
      reasoning_tokens: 0,
      tool_output_tokens: 0,
      output_tokens_per_turn: [],
      tool_output_tokens_per_turn: [],
    },
    total_tokens: request.promptTokens + plan.tokens,
  };
}

function llamaResponses(facts: AnswerFacts): AnswerShape {
  const { request, plan } = facts;
  const id = `resp_${facts.id}`;
  const itemId = `msg_${facts.id}`;
  const tool = plan.tool;
  const callId = `fc_${tool?.id ?? ""}`;
  const event = (emit: Emit, type: string, fields: JsonObject): void => emit(namedEvent(type, { type, ...fields }));
  const part = (): JsonObject => ({ type: "output_text", annotations: [], logprobs: [], text: plan.text(0) });
  const item = (): JsonObject =>
    tool === undefined
      ? { type: "message", status: "completed", id: itemId, content: [part()], role: "assistant" }
      : {
          type: "function_call",
          status: "completed",
          id: callId,
          call_id: callId,
          name: tool.name,
          arguments: plan.text(0),
        };
  const response = (): JsonObject => ({
    id,
    object: "response",
    created_at: facts.createdS,
    status: "completed",
    model: facts.model,
    output: [item()],
    usage: {
      input_tokens: request.promptTokens,
      output_tokens: plan.tokens,
      total_tokens: request.promptTokens + plan.tokens,
      input_tokens_details: { cached_tokens: facts.cachedTokens },
    },
  });
  return {
    open(emit) {
      event(emit, "response.created", { response: { id, object: "response", status: "in_progress" } });
      event(emit, "response.in_progress", { response: { id, object: "response", status: "in_progress" } });
      if (tool !== undefined) {
        event(emit, "response.output_item.added", { item: { ...item(), arguments: "", status: "in_progress" } });
        return;
      }
      event(emit, "response.output_item.added", {
        item: { content: [], id: itemId, role: "assistant", status: "in_progress", type: "message" },
      });
      event(emit, "response.content_part.added", { item_id: itemId, part: { type: "output_text", text: "" } });
    },
    token(index, emit) {
      const delta = plan.piece(0, index);
      if (tool !== undefined) event(emit, "response.function_call_arguments.delta", { item_id: callId, delta });
      else event(emit, "response.output_text.delta", { item_id: itemId, delta });
    },
    close(emit) {
      if (tool === undefined) {
        event(emit, "response.output_text.done", { item_id: itemId, text: plan.text(0) });
        event(emit, "response.content_part.done", { item_id: itemId, part: part() });
      }
      event(emit, "response.output_item.done", { item: item() });
      event(emit, "response.completed", { response: response(), timings: timingsOf(facts) });
    },
    whole: response,
  };
}
