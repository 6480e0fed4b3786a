import type { SimDialect } from "./options.ts";
import type { GenerationKind } from "./parse-generation.ts";
import type { PoolingKind } from "./pooling.ts";

export type Task =
  | { readonly kind: "generation"; readonly of: GenerationKind }
  | { readonly kind: "pooling"; readonly of: PoolingKind }
  | { readonly kind: "media"; readonly of: "speech" | "transcription" | "image" };

const generation = (of: GenerationKind): Task => ({ kind: "generation", of });
const pooling = (of: PoolingKind): Task => ({ kind: "pooling", of });

const BOTH: Readonly<Record<string, Task>> = {
  "/v1/chat/completions": generation("chat"),
  "/v1/completions": generation("completions"),
  "/v1/responses": generation("responses"),
  "/v1/messages": generation("messages"),
  "/v1/embeddings": pooling("embeddings"),
  "/v1/rerank": pooling("rerank"),
  "/rerank": pooling("rerank"),
  "/v1/score": pooling("score"),
  "/v1/classify": pooling("classify"),
  "/v1/audio/speech": { kind: "media", of: "speech" },
  "/v1/audio/transcriptions": { kind: "media", of: "transcription" },
  "/v1/audio/translations": { kind: "media", of: "transcription" },
  "/v1/images/generations": { kind: "media", of: "image" },
};

const OWN: Readonly<Record<SimDialect, Readonly<Record<string, Task>>>> = {
  vllm: {
    "/invocations": generation("chat"),
    "/score": pooling("score"),
    "/classify": pooling("classify"),
    "/v2/rerank": pooling("rerank"),
  },
  "llama.cpp": {
    "/chat/completions": generation("chat"),
    "/completion": generation("completions"),
    "/completions": generation("completions"),
    "/embeddings": pooling("embeddings"),
    "/reranking": pooling("rerank"),
  },
};

export const taskOf = (dialect: SimDialect, path: string): Task | undefined => {
  if (Object.hasOwn(BOTH, path)) return BOTH[path];
  return Object.hasOwn(OWN[dialect], path) ? OWN[dialect][path] : undefined;
};

const VLLM_PROTECTED = /^\/(v1|v2|inference)(\/|$)/;
const LLAMA_OPEN = ["/health", "/v1/health"];

/** Which paths ask for the key. vLLM leaves everything outside three prefixes open, `/invocations` included. */
export const needsKey = (dialect: SimDialect, path: string): boolean =>
  dialect === "vllm" ? VLLM_PROTECTED.test(path) : !LLAMA_OPEN.includes(path);
