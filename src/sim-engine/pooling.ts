import { hashText, mix, tokenCount } from "./token-text.ts";
import { isArray, isObject, countOf, textOf, type Json, type JsonObject } from "./json.ts";
import type { Refusal } from "./error-bodies.ts";
import type { SimDialect } from "./options.ts";

export type PoolingKind = "embeddings" | "rerank" | "score" | "classify";

export interface PoolingRequest {
  readonly promptText: string;
  readonly promptTokens: number;
  answer(id: string, createdS: number, model: string): Json;
}

export type PoolingOutcome =
  | { readonly kind: "ok"; readonly request: PoolingRequest }
  | { readonly kind: "refused"; readonly refusal: Refusal };

const DIMENSIONS = 64;
const DIMENSIONS_MAX = 8_192;

const missing = (dialect: SimDialect, field: string, body: JsonObject): PoolingOutcome => ({
  kind: "refused",
  refusal:
    dialect === "vllm"
      ? {
          status: 400,
          type: "Bad Request",
          param: `body.${field}`,
          message: `1 validation error:\n  {'type': 'missing', 'loc': 'body.${field}', 'msg': 'Field required', 'input': '<dict of ${Object.keys(body).length} items>'}`,
        }
      : { status: 400, type: "invalid_request_error", message: `"${field}" must be provided` },
});

export function parsePooling(dialect: SimDialect, kind: PoolingKind, body: JsonObject): PoolingOutcome {
  switch (kind) {
    case "embeddings":
      return embeddings(dialect, body);
    case "rerank":
      return rerank(dialect, body);
    case "score":
      return score(dialect, body);
    case "classify":
      return classify(dialect, body);
  }
}

/** The four forms of an input: text, texts, token ids, lists of token ids. */
function inputsOf(value: Json | undefined): { text: string; tokens: number }[] {
  if (typeof value === "string") return [{ text: value, tokens: tokenCount(value) }];
  if (!isArray(value)) return [];
  if (value.every((item) => typeof item === "number"))
    return value.length === 0 ? [] : [{ text: JSON.stringify(value), tokens: value.length }];
  return value.flatMap((item) =>
    isObject(item)
      ? [{ text: textOf(item["text"]) ?? "", tokens: tokenCount(textOf(item["text"]) ?? "") }]
      : inputsOf(item),
  );
}

const total = (inputs: readonly { tokens: number }[]): number => inputs.reduce((sum, input) => sum + input.tokens, 0);
const joined = (inputs: readonly { text: string }[]): string => inputs.map((input) => input.text).join("\n");

/** A unit vector that depends on the text alone. */
export function vectorOf(text: string, dimensions: number): number[] {
  const key = hashText(text, 0);
  const raw = Array.from({ length: dimensions }, (_, index) => (mix(key, index) % 2_001) / 1_000 - 1);
  const norm = Math.sqrt(raw.reduce((sum, value) => sum + value * value, 0)) || 1;
  return raw.map((value) => value / norm);
}

function embeddings(dialect: SimDialect, body: JsonObject): PoolingOutcome {
  if (body["input"] === undefined) return missing(dialect, "input", body);
  const inputs = inputsOf(body["input"]);
  if (inputs.length === 0) {
    const message = dialect === "vllm" ? "You must pass at least one prompt" : "input must not be empty";
    return {
      kind: "refused",
      refusal: { status: 400, type: dialect === "vllm" ? "BadRequestError" : "invalid_request_error", message },
    };
  }
  const dimensions = countOf(body["dimensions"], 1, DIMENSIONS_MAX) ?? DIMENSIONS;
  const base64 = body["encoding_format"] === "base64";
  const promptTokens = total(inputs);
  const vector = (text: string): Json => {
    const values = vectorOf(text, dimensions);
    return base64 ? Buffer.from(new Float32Array(values).buffer).toString("base64") : values;
  };
  return {
    kind: "ok",
    request: {
      promptText: joined(inputs),
      promptTokens,
      answer: (id, createdS, model) =>
        dialect === "vllm"
          ? {
              id: `embd-${id}`,
              object: "list",
              created: createdS,
              model,
              data: inputs.map(({ text }, index) => ({ index, object: "embedding", embedding: vector(text) })),
              usage: {
                prompt_tokens: promptTokens,
                total_tokens: promptTokens,
                completion_tokens: 0,
                prompt_tokens_details: null,
              },
            }
          : {
              model,
              object: "list",
              usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
              data: inputs.map(({ text }, index) => ({
                embedding: vector(text),
                index,
                object: "embedding",
                ...(base64 ? { encoding_format: "base64" } : {}),
              })),
            },
    },
  };
}

const relevance = (query: string, document: string): number => (hashText(`${query}\n${document}`, 1) % 10_000) / 10_000;

function rerank(dialect: SimDialect, body: JsonObject): PoolingOutcome {
  const query = textOf(body["query"]);
  if (query === undefined) return missing(dialect, "query", body);
  const tei = dialect === "llama.cpp" && isArray(body["texts"]);
  const documents = inputsOf(tei ? body["texts"] : body["documents"]);
  if (documents.length === 0) return missing(dialect, "documents", body);
  const ranked = documents
    .map(({ text }, index) => ({ index, text, relevance_score: relevance(query, text) }))
    .toSorted((a, b) => b.relevance_score - a.relevance_score || a.index - b.index)
    .slice(0, countOf(body["top_n"], 0, documents.length) ?? documents.length);
  const promptTokens = tokenCount(query) * documents.length + total(documents);
  return {
    kind: "ok",
    request: {
      promptText: `${query}\n${joined(documents)}`,
      promptTokens,
      answer: (id, _createdS, model) => {
        if (tei) return ranked.map(({ index, relevance_score }) => ({ index, score: relevance_score }));
        const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens };
        if (dialect === "llama.cpp")
          return {
            model,
            object: "list",
            usage,
            results: ranked.map(({ index, relevance_score }) => ({ index, relevance_score })),
          };
        return {
          id: `score-${id}`,
          model,
          usage,
          results: ranked.map(({ index, text, relevance_score }) => ({
            index,
            document: { text, multi_modal: null },
            relevance_score,
          })),
        };
      },
    },
  };
}

function score(dialect: SimDialect, body: JsonObject): PoolingOutcome {
  const left = inputsOf(body["text_1"] ?? body["queries"]);
  const right = inputsOf(body["text_2"] ?? body["documents"]);
  if (left.length === 0) return missing(dialect, "text_1", body);
  if (right.length === 0) return missing(dialect, "text_2", body);
  const pairs = right.map((document, index) => ({ query: left[left.length === 1 ? 0 : index] ?? document, document }));
  const promptTokens = pairs.reduce((sum, pair) => sum + pair.query.tokens + pair.document.tokens, 0);
  return {
    kind: "ok",
    request: {
      promptText: joined([...left, ...right]),
      promptTokens,
      answer: (id, createdS, model) => ({
        id: `score-${id}`,
        object: "list",
        created: createdS,
        model,
        data: pairs.map((pair, index) => ({
          index,
          object: "score",
          score: relevance(pair.query.text, pair.document.text),
        })),
        usage: {
          prompt_tokens: promptTokens,
          total_tokens: promptTokens,
          completion_tokens: 0,
          prompt_tokens_details: null,
        },
      }),
    },
  };
}

function classify(dialect: SimDialect, body: JsonObject): PoolingOutcome {
  const inputs = inputsOf(body["input"]);
  if (inputs.length === 0) return missing(dialect, "input", body);
  const promptTokens = total(inputs);
  return {
    kind: "ok",
    request: {
      promptText: joined(inputs),
      promptTokens,
      answer: (id, createdS, model) => ({
        id: `classify-${id}`,
        object: "list",
        created: createdS,
        model,
        data: inputs.map(({ text }, index) => {
          const positive = relevance("label", text);
          return {
            index,
            label: positive >= 0.5 ? "LABEL_1" : "LABEL_0",
            probs: [1 - positive, positive],
            num_classes: 2,
          };
        }),
        usage: {
          prompt_tokens: promptTokens,
          total_tokens: promptTokens,
          completion_tokens: 0,
          prompt_tokens_details: null,
        },
      }),
    },
  };
}
