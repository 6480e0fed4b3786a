import type { EngineName } from "../../contract/gateway-config.ts";
import type { EngineAdapter } from "./adapter.ts";
import { comfyUi } from "./comfyui.ts";
import { documentIntelligence, ocr } from "./documents.ts";
import { generic } from "./generic.ts";
import { llamaCpp } from "./llama-cpp.ts";
import { ollama } from "./ollama.ts";
import { sglang } from "./sglang.ts";
import { tei } from "./tei.ts";
import { vllm } from "./vllm.ts";

const ADAPTERS: Readonly<Record<EngineName, EngineAdapter>> = {
  vllm,
  sglang,
  "llama.cpp": llamaCpp,
  tei,
  ollama,
  "document-intelligence": documentIntelligence,
  ocr,
  comfyui: comfyUi,
  generic,
};

export const ENGINES: readonly EngineAdapter[] = Object.values(ADAPTERS);

export const adapterFor = (name: EngineName): EngineAdapter => ADAPTERS[name];
