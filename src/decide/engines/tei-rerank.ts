import { isJsonObject, type JsonObject } from "../http/token-usage.ts";
import type { RerankTranslation } from "./adapter.ts";

interface Ranked {
  readonly index: number;
  readonly score: number;
}

/**
 * Between the rerank that clients speak, `{query, documents, top_n, return_documents}` and `{results: [{index, relevance_score}]}`,
 * and the engine's `{query, texts}` and bare list of `{index, score}`. The engine knows no `top_n`: the cut is made here.
 */
export const teiRerank: RerankTranslation = {
  request(body) {
    const texts = documentTexts(body["documents"]);
    if (typeof body["query"] !== "string") return { kind: "invalid", why: "`query` must be a string" };
    if (texts === undefined)
      return { kind: "invalid", why: "`documents` must be a list of strings, or of objects with a string `text`" };
    if (body["top_n"] !== undefined && body["top_n"] !== null && !isCount(body["top_n"]))
      return { kind: "invalid", why: "`top_n` must be a whole number of at least 1" };
    const { documents: _documents, top_n: _topN, return_documents: _returnDocuments, model: _model, ...rest } = body;
    return { kind: "translated", body: { ...rest, query: body["query"], texts } };
  },
  answer(answer, request, id) {
    const texts = documentTexts(request["documents"]);
    if (texts === undefined || !Array.isArray(answer)) return undefined;
    const ranked: Ranked[] = [];
    for (const entry of answer as readonly unknown[]) {
      if (!isRanked(entry) || entry.index >= texts.length) return undefined;
      ranked.push(entry);
    }
    const best = ranked.toSorted((a, b) => b.score - a.score || a.index - b.index);
    const topN = isCount(request["top_n"]) ? request["top_n"] : best.length;
    const withDocument = request["return_documents"] === true;
    const results = best.slice(0, topN).map(({ index, score }) => ({
      index,
      relevance_score: score,
      ...(withDocument ? { document: { text: texts[index] } } : {}),
    }));
    return { id, ...(typeof request["model"] === "string" ? { model: request["model"] } : {}), results };
  },
};

const isCount = (value: unknown): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 1;

function documentTexts(documents: unknown): string[] | undefined {
  if (!Array.isArray(documents)) return undefined;
  const texts = (documents as readonly unknown[]).map((document) =>
    isJsonObject(document) ? document["text"] : document,
  );
  return texts.every((text): text is string => typeof text === "string") ? texts : undefined;
}

const isRanked = (entry: unknown): entry is JsonObject & Ranked =>
  isJsonObject(entry) &&
  Number.isSafeInteger(entry["index"]) &&
  (entry["index"] as number) >= 0 &&
  typeof entry["score"] === "number";
