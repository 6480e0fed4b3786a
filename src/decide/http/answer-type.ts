/** What a good answer of a route is, besides an event stream. "vectors": JSON, or bare numbers for clients that ask for them. */
export type AnswerKind = "json" | "vectors" | "any";

/** Whether a body under this label can be a good answer. `contentType` in lower case, empty where there is none. */
export function mayAnswerWith(kind: AnswerKind, contentType: string): boolean {
  if (kind === "any" || contentType === "" || contentType.includes("json")) return true;
  return kind === "vectors" && contentType.startsWith("application/octet-stream");
}

/** Many documents one behind the other, each of use when it has come. */
const JSON_SERIES = /ndjson|jsonl|json-?lines|json-seq|stream\+json|json-?stream/;

/** Whether a body is read as one document of JSON: by its label, or without one by what the route answers with. */
export const isReadAsJson = (kind: AnswerKind, contentType: string): boolean =>
  contentType === "" ? kind !== "any" : contentType.includes("json") && !JSON_SERIES.test(contentType);
