/**
 * The addresses of Azure's Document Intelligence, as its clients build them: two path families, the version in the query,
 * and a result that is named in full by the `Operation-Location` of its submission.
 */

export type Family = "documentintelligence" | "formrecognizer";

/** What a submission names beside its document. */
export interface AnalyzeTarget {
  readonly family: Family;
  readonly modelId: string;
  readonly apiVersion: string;
}

export type PathReading<T> =
  | { readonly kind: "ok"; readonly value: T }
  /** Nothing that these routes know. */
  | { readonly kind: "unknown" }
  /** `why` is for the client. */
  | { readonly kind: "bad"; readonly why: string };

export const MODEL_ID = /^[a-zA-Z0-9][a-zA-Z0-9._~-]{1,63}$/;
const API_VERSION = /^\d{4}-\d{2}-\d{2}(?:-preview)?$/;
const RESULT_ID = /^[A-Za-z0-9_.~-]{1,128}$/;
const BASE = /^\/(documentintelligence|formrecognizer)\/documentModels\//;
const RESULTS = "/analyzeResults/";

/** The versions that are generally available, by family. What a container is asked for is its own business. */
export const API_VERSIONS: Readonly<Record<Family, readonly string[]>> = {
  documentintelligence: ["2024-11-30"],
  formrecognizer: ["2023-07-31", "2022-08-31"],
};

const bad = (why: string): { readonly kind: "bad"; readonly why: string } => ({ kind: "bad", why });

/** `/{family}/documentModels/{model}:analyze` with its query. */
export function readAnalyzeTarget(path: string, query: string): PathReading<AnalyzeTarget> {
  const family = familyOf(path);
  if (family === undefined || !path.endsWith(":analyze")) return { kind: "unknown" };
  const modelId = path.slice(`/${family}/documentModels/`.length, -":analyze".length);
  return readVersion(query, (apiVersion) => withModel(family, modelId, apiVersion));
}

/** `/{family}/documentModels/{model}/analyzeResults/{id}` with its query. */
export function readResultTarget(
  path: string,
  query: string,
): PathReading<AnalyzeTarget & { readonly resultId: string }> {
  const family = familyOf(path);
  const results = path.indexOf(RESULTS);
  if (family === undefined || results < 0) return { kind: "unknown" };
  const modelId = path.slice(`/${family}/documentModels/`.length, results);
  const resultId = path.slice(results + RESULTS.length);
  if (!RESULT_ID.test(resultId)) return bad("the result's id can't be one");
  return readVersion(query, (apiVersion) => {
    const target = withModel(family, modelId, apiVersion);
    return target.kind === "ok" ? { kind: "ok", value: { ...target.value, resultId } } : target;
  });
}

export const resultPath = ({ family, modelId, apiVersion }: AnalyzeTarget, resultId: string): string =>
  `/${family}/documentModels/${modelId}${RESULTS}${resultId}?api-version=${apiVersion}`;

/**
 * The id by which an analyzer calls the operation that it has taken in; undefined where the header tells of none that can be
 * one. Only the path is read: the host is whatever the analyzer takes itself for, and nobody is sent there.
 */
export function operationIdOf(location: string, target: AnalyzeTarget): string | undefined {
  const url = URL.parse(location, "http://analyzer");
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) return undefined;
  const from = url.pathname.search(/\/(?:documentintelligence|formrecognizer)\//);
  const read = from < 0 ? undefined : readResultTarget(url.pathname.slice(from), `?api-version=${target.apiVersion}`);
  if (read?.kind !== "ok") return undefined;
  const { family, modelId, resultId } = read.value;
  return family === target.family && modelId === target.modelId ? resultId : undefined;
}

const familyOf = (path: string): Family | undefined => BASE.exec(path)?.[1] as Family | undefined;

function withModel(family: Family, modelId: string, apiVersion: string): PathReading<AnalyzeTarget> {
  return MODEL_ID.test(modelId)
    ? { kind: "ok", value: { family, modelId, apiVersion } }
    : bad("a model id has 2 to 64 letters, digits, '.', '_', '~' or '-', the first a letter or digit");
}

function readVersion<T>(query: string, then: (apiVersion: string) => PathReading<T>): PathReading<T> {
  const given = new URLSearchParams(query).getAll("api-version");
  const [apiVersion, second] = given;
  if (apiVersion === undefined) return bad("the query names no `api-version`");
  if (second !== undefined) return bad("`api-version` is given twice");
  return API_VERSION.test(apiVersion) ? then(apiVersion) : bad("`api-version` is no date such as 2024-11-30");
}
