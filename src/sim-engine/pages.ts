import type { EngineCore } from "./engine-core.ts";
import { isArray, isObject, numberOf, textOf, type Json, type JsonObject } from "./json.ts";
import { LLAMACPP_METRICS_TYPE, llamacppMetrics } from "./llamacpp-metrics.ts";
import { CONTEXT_TOKENS_DEFAULT, type SimEngineOptions } from "./options.ts";
import { messagesText } from "./parse-generation.ts";
import { decodeTokens, encodeTokens } from "./token-text.ts";
import { hashText } from "./token-text.ts";
import { VLLM_METRICS_TYPE, vllmMetrics } from "./vllm-metrics.ts";

/** Everything an engine shows that is not inference. */
export type Page =
  | { readonly kind: "empty"; readonly status: number }
  | { readonly kind: "json"; readonly status: number; readonly value: Json }
  | { readonly kind: "text"; readonly type: string; readonly text: string; readonly headers: readonly string[] }
  | { readonly kind: "wrongMethod"; readonly allow: string }
  | { readonly kind: "unknown" };

export interface PageRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: JsonObject;
}

const json = (value: Json, status = 200): Page => ({ kind: "json", status, value });

export function pageOf(options: SimEngineOptions, core: EngineCore, request: PageRequest, dead: boolean): Page {
  return options.dialect === "vllm" ? vllmPage(options, core, request, dead) : llamaPage(options, core, request);
}

const contextOf = (options: SimEngineOptions): number => options.contextTokens ?? CONTEXT_TOKENS_DEFAULT;

const VLLM_GET = ["/health", "/ping", "/version", "/load", "/metrics", "/v1/models", "/kv_event_sources"];
const VLLM_POST = ["/ping", "/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize", "/v1/messages/count_tokens"];

function vllmPage(options: SimEngineOptions, core: EngineCore, request: PageRequest, dead: boolean): Page {
  const { method, path, body } = request;
  const get = VLLM_GET.includes(path);
  const post = VLLM_POST.includes(path);
  if (!get && !post) return { kind: "unknown" };
  if (!((get && method === "GET") || (post && method === "POST")))
    return { kind: "wrongMethod", allow: get ? "GET" : "POST" };
  switch (path) {
    case "/health":
    case "/ping":
      return { kind: "empty", status: dead ? 503 : 200 };
    case "/version":
      return json({ version: "0.32.0" });
    case "/load":
      return json({ server_load: core.running + core.waiting });
    case "/metrics":
      return {
        kind: "text",
        type: VLLM_METRICS_TYPE,
        text: vllmMetrics(options.models[0] ?? "", core.stats, core.gauges()),
        headers: [],
      };
    case "/v1/models":
      return json({ object: "list", data: options.models.map((model) => vllmCard(options, model)) });
    case "/kv_event_sources":
      return json({});
    case "/v1/messages/count_tokens": {
      const count = encodeTokens(`${messagesText(body["messages"])}<|assistant|>`).length;
      return json({ input_tokens: count, context_management: { original_input_tokens: count } });
    }
    case "/tokenize":
    case "/v1/tokenize": {
      const text = textOf(body["prompt"]) ?? `${messagesText(body["messages"])}<|assistant|>`;
      const tokens = encodeTokens(text);
      const strings = body["return_token_strs"] === true ? tokens.map((id) => decodeTokens([id])) : null;
      return json({ count: tokens.length, max_model_len: contextOf(options), tokens, token_strs: strings });
    }
    default:
      return json({ prompt: decodeTokens(idsOf(body["tokens"])) });
  }
}

const idsOf = (value: Json | undefined): number[] => (isArray(value) ? value.flatMap((id) => numberOf(id) ?? []) : []);

function vllmCard(options: SimEngineOptions, model: string): Json {
  const created = Math.floor(options.clock.wall() / 1_000);
  return {
    id: model,
    object: "model",
    created,
    owned_by: "vllm",
    root: options.models[0] ?? model,
    parent: null,
    max_model_len: contextOf(options),
    permission: [
      {
        id: `modelperm-${hashText(model, options.seed).toString(16).padStart(16, "0")}`,
        object: "model_permission",
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: "*",
        group: null,
        is_blocking: false,
      },
    ],
  };
}

const LLAMA_GET = ["/health", "/v1/health", "/metrics", "/slots", "/props", "/v1/models", "/models"];
const LLAMA_POST = ["/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize", "/v1/messages/count_tokens"];

function llamaPage(options: SimEngineOptions, core: EngineCore, request: PageRequest): Page {
  const { method, path, body, query } = request;
  const known = (method === "GET" && LLAMA_GET.includes(path)) || (method === "POST" && LLAMA_POST.includes(path));
  if (!known) return { kind: "unknown" };
  switch (path) {
    case "/health":
    case "/v1/health":
      return json({ status: "ok" });
    case "/metrics": {
      const gauges = core.gauges();
      return {
        kind: "text",
        type: LLAMACPP_METRICS_TYPE,
        text: llamacppMetrics(core.stats, gauges),
        headers: ["Process-Start-Time-Unix", String(Math.floor(gauges.startedEpochS))],
      };
    }
    case "/slots":
      if (query.get("fail_on_no_slot") === "1" && core.running >= options.slots) {
        return json({ error: { code: 503, message: "no slot available", type: "unavailable_error" } }, 503);
      }
      return json(slotsOf(options, core));
    case "/props":
      return json({
        default_generation_settings: {
          id: 0,
          n_ctx: contextOf(options),
          speculative: false,
          is_processing: false,
          params: { temperature: 0.8, top_k: 40, top_p: 0.95 },
        },
        total_slots: options.slots,
        model_alias: options.models[0] ?? "",
        model_path: `${options.models[0] ?? "model"}.gguf`,
        modalities: { vision: false, audio: false },
        chat_template: "",
        bos_token: "",
        eos_token: "",
        build_info: "b0-sim",
        is_sleeping: false,
      });
    case "/v1/models":
    case "/models":
      return json(llamaModels(options));
    case "/v1/messages/count_tokens":
      return json({ input_tokens: encodeTokens(`${messagesText(body["messages"])}<|assistant|>`).length });
    case "/tokenize":
    case "/v1/tokenize":
      return json({ tokens: encodeTokens(textOf(body["content"]) ?? textOf(body["prompt"]) ?? "") });
    default:
      return json({ content: decodeTokens(idsOf(body["tokens"])) });
  }
}

function slotsOf(options: SimEngineOptions, core: EngineCore): Json {
  const runs = core.runningWork();
  return Array.from({ length: options.slots }, (_, id) => {
    const run = runs[id];
    const idle = { id, n_ctx: contextOf(options), speculative: false, is_processing: run !== undefined };
    if (run === undefined) return idle;
    const { request, emitted } = run;
    return {
      ...idle,
      id_task: id,
      n_prompt_tokens: request.promptTokens,
      n_prompt_tokens_processed: request.promptTokens,
      n_prompt_tokens_cache: 0,
      params: {
        seed: options.seed,
        temperature: 0.8,
        max_tokens: request.outputTokens,
        n_predict: request.outputTokens,
        stream: true,
      },
      next_token: [
        { has_next_token: true, has_new_line: false, n_remain: request.outputTokens - emitted, n_decoded: emitted },
      ],
    };
  });
}

function llamaModels(options: SimEngineOptions): Json {
  const created = Math.floor(options.clock.wall() / 1_000);
  return {
    models: options.models.map((name) => ({
      name,
      model: name,
      modified_at: "",
      size: "",
      digest: "",
      type: "model",
      description: "",
      tags: [""],
      capabilities: ["completion"],
      parameters: "",
      details: {
        parent_model: "",
        format: "gguf",
        family: "",
        families: [""],
        parameter_size: "",
        quantization_level: "",
      },
    })),
    object: "list",
    data: options.models.map((id) => ({
      id,
      aliases: [id],
      tags: [],
      object: "model",
      architecture: { input_modalities: ["text"], output_modalities: ["text"] },
      created,
      owned_by: "llamacpp",
      meta: {
        vocab_type: 2,
        n_vocab: 49_152,
        n_ctx: contextOf(options),
        n_ctx_train: contextOf(options),
        n_embd: 576,
        n_params: 134_515_008,
        size: 96_576_768,
        ftype: "Q4_1",
      },
    })),
  };
}

/** The class that a body names for itself. */
export function tagOf(body: JsonObject): string {
  const metadata = body["metadata"];
  return (isObject(metadata) ? textOf(metadata["class"]) : undefined) ?? textOf(body["user"]) ?? "";
}
