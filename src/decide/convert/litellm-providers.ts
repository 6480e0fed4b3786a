import type { UpstreamFile } from "../../contract/config-schema.ts";

/** What the word before the first slash of LiteLLM's `model` says of the server behind it. */
export type Provider =
  /** A server of one's own that is asked in OpenAI's words; it has an `api_base`. */
  | { readonly kind: "own"; readonly engine: UpstreamFile["engine"]; readonly note?: string }
  /** A cloud that is asked in OpenAI's words, at this address unless `api_base` names another. */
  | { readonly kind: "cloud"; readonly url: string; readonly keyEnv: string }
  /** Asked in words of its own, which LiteLLM translates. */
  | { readonly kind: "foreign" };

const own = (engine: UpstreamFile["engine"], note?: string): Provider =>
  note === undefined ? { kind: "own", engine } : { kind: "own", engine, note };
const cloud = (url: string, keyEnv: string): Provider => ({ kind: "cloud", url, keyEnv });

const NATIVE_OLLAMA = "LiteLLM asks Ollama in Ollama's own words; here it is asked at its OpenAI-compatible address";

const PROVIDERS: Readonly<Record<string, Provider>> = {
  hosted_vllm: own("vllm"),
  ollama: own("ollama", NATIVE_OLLAMA),
  ollama_chat: own("ollama", NATIVE_OLLAMA),
  llamafile: own("llama.cpp"),
  lm_studio: own("generic"),
  xinference: own("generic"),
  openai_like: own("generic"),
  custom_openai: own("generic"),
  litellm_proxy: own("generic"),
  docker_model_runner: own("generic"),
  infinity: own("generic"),
  huggingface: own("tei", "taken for text-embeddings-inference; say another `engine` if it is not"),
  openai: cloud("https://api.openai.com", "OPENAI_API_KEY"),
  "text-completion-openai": cloud("https://api.openai.com", "OPENAI_API_KEY"),
  mistral: cloud("https://api.mistral.ai", "MISTRAL_API_KEY"),
  deepseek: cloud("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
  groq: cloud("https://api.groq.com/openai", "GROQ_API_KEY"),
  openrouter: cloud("https://openrouter.ai/api", "OPENROUTER_API_KEY"),
  together_ai: cloud("https://api.together.xyz", "TOGETHERAI_API_KEY"),
  xai: cloud("https://api.x.ai", "XAI_API_KEY"),
};

/** The provider's word and the engine's own name of the model. A name with a slash and no known word is OpenAI's to LiteLLM. */
export function splitModel(model: string): { readonly provider: string; readonly name: string } {
  const slash = model.indexOf("/");
  const word = slash < 0 ? "" : model.slice(0, slash);
  return slash > 0 && /^[a-z][a-z0-9_-]*$/.test(word)
    ? { provider: word, name: model.slice(slash + 1) }
    : { provider: "openai", name: model };
}

export const providerOf = (word: string): Provider =>
  Object.hasOwn(PROVIDERS, word) ? (PROVIDERS[word] ?? { kind: "foreign" }) : { kind: "foreign" };
