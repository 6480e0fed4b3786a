import { isJsonObject, type JsonObject } from "../http/token-usage.ts";
import type { EngineErrorKind } from "./adapter.ts";

export function parseJson(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

export function parseJsonObject(body: string): JsonObject | undefined {
  const value = parseJson(body);
  return isJsonObject(value) ? value : undefined;
}

/** The cards of an OpenAI-like model list. */
export function readModelCards(body: string): readonly JsonObject[] | undefined {
  const data = parseJsonObject(body)?.["data"];
  return Array.isArray(data) ? data.filter(isJsonObject) : undefined;
}

/** Ids of an OpenAI-like model list, with the aliases that some engines add to a card. */
export function readModelNames(body: string): readonly string[] | undefined {
  const cards = readModelCards(body);
  if (cards === undefined) return undefined;
  const names = cards.flatMap((card) => [card["id"], ...(Array.isArray(card["aliases"]) ? card["aliases"] : [])]);
  return [...new Set(names.filter((name): name is string => typeof name === "string" && name !== ""))];
}

export const listsModelsOf =
  (owner: string) =>
  (status: number, body: string): boolean =>
    status === 200 && (readModelCards(body) ?? []).some((card) => card["owned_by"] === owner);

/** What a status alone says. A 4xx is the caller's fault, wherever it is sent; 501 is a feature that the model lacks. */
export function classifyStatus(status: number): EngineErrorKind {
  if (status === 429 || status === 408 || status === 529) return "overloaded";
  if (status === 501) return "clientFault";
  if (status >= 400 && status < 500) return "clientFault";
  return "engineFault";
}

/** Maps the path alone and keeps the query. */
export function mapPath(routePath: string, names: Readonly<Record<string, string>>): string {
  const query = routePath.indexOf("?");
  const path = query === -1 ? routePath : routePath.slice(0, query);
  const mapped = Object.hasOwn(names, path) ? names[path] : undefined;
  return mapped === undefined ? routePath : mapped + (query === -1 ? "" : routePath.slice(query));
}
