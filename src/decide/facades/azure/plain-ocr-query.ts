import { API_VERSIONS, type AnalyzeTarget } from "./analyze-paths.ts";
import { STRING_INDEX_TYPES } from "./plain-ocr.ts";

/** Parameters of a submission that a plain OCR engine's text meets, whatever they say. */
const MET: ReadonlySet<string> = new Set(["api-version", "locale", "outputContentFormat", "stringIndexType"]);

/**
 * Why a plain OCR engine can't give what is asked for, in words for the client; undefined where it can. What would silently
 * come out otherwise than asked is refused: the pages of a choice, add-on features, other files.
 */
export function refusalOfOcrQuery({ family, apiVersion }: AnalyzeTarget, query: string): string | undefined {
  if (!API_VERSIONS[family].includes(apiVersion))
    return `api-version ${apiVersion} is not offered here: use ${API_VERSIONS[family].join(" or ")}`;
  const parameters = new URLSearchParams(query);
  for (const name of parameters.keys())
    if (!MET.has(name)) return `the engine behind this model reads text only: \`${name.slice(0, 40)}\` is not offered`;
  const type = parameters.get("stringIndexType");
  if (type !== null && !STRING_INDEX_TYPES.some((known) => known === type))
    return `stringIndexType is one of ${STRING_INDEX_TYPES.join(", ")}`;
  return undefined;
}
