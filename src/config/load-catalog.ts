import { catalogFile } from "../contract/catalog-schema.ts";
import type { CatalogFile } from "../contract/catalog-schema.ts";
import { checkCatalog } from "./check-catalog.ts";
import { checkYaml, readTextFile } from "./checked-yaml.ts";
import type { CheckedYaml } from "./checked-yaml.ts";

export type LoadedCatalog =
  | (Extract<CheckedYaml<CatalogFile>, { kind: "valid" }> & { readonly text: string })
  | Extract<CheckedYaml<CatalogFile>, { kind: "invalid" }>;

export const CATALOG_BYTES_MAX = 8 * 1_048_576;

/**
 * YAML, of which JSON is a part. All mistakes at once. A catalog may not refer to environment variables: every reader of it would
 * see the control plane's.
 */
export function parseCatalogText(text: string, source: string): LoadedCatalog {
  const checked = checkYaml(text, source, {
    schema: catalogFile,
    env: null,
    findingsOf: checkCatalog,
    bytesMax: CATALOG_BYTES_MAX,
    emptyMessage: "the catalog is empty: `models` is missing; write `models: []` if that is meant",
  });
  return checked.kind === "valid" ? { ...checked, text } : checked;
}

export async function loadCatalogFile(path: string): Promise<LoadedCatalog> {
  const read = await readTextFile(path, CATALOG_BYTES_MAX);
  return read.kind === "invalid" ? read : parseCatalogText(read.text, path);
}
