import { hash } from "node:crypto";
import type { InvalidYaml } from "../../config/checked-yaml.ts";
import { parseCatalogText } from "../../config/load-catalog.ts";
import type { Catalog } from "../../contract/catalog.ts";
import { canonicalJson, resolveCatalog } from "../../contract/resolve-catalog.ts";
import { type CatalogDiff, diffCatalogs, type DiffHarm, judgeHarm } from "../../decide/catalog/diff-catalog.ts";

export interface CatalogQuestion {
  readonly text: string;
  /** What the text is called in messages about its mistakes. */
  readonly source: string;
  /** What it is to follow; null: it is the first one. */
  readonly before: { readonly revision: number; readonly text: string } | null;
  /** Replicas that run now, by model. */
  readonly running: ReadonlyMap<string, number>;
}

/** What a text is, and what it would change. */
export interface Assessed {
  readonly kind: "valid";
  /** SHA-256 of the text. */
  readonly digest: string;
  readonly warnings: readonly string[];
  readonly base: number;
  readonly diff: CatalogDiff;
  readonly harm: DiffHarm;
  /** What confirms this change and no other. */
  readonly token: string;
  readonly models: Catalog["models"];
}

type Opened = Pick<Assessed, "kind" | "digest" | "warnings" | "models"> | InvalidYaml;

export const NO_CATALOG: Catalog = Object.freeze({ revision: 0, models: new Map() });
const TOKEN_CHARS = 16;
/** The catalog in force, and the one that is to follow it. */
const KEPT = 2;

/** Reads texts and compares them; a text that was just read is not read again. */
export class CatalogAssessor {
  readonly #opened = new Map<string, Opened>();

  assess({ text, source, before, running }: CatalogQuestion): Assessed | InvalidYaml {
    const old = before === null ? NO_CATALOG : this.#known(before);
    const fresh = this.#open(text, source);
    if (fresh.kind === "invalid") return fresh;
    const catalog = { revision: old.revision + 1, models: fresh.models };
    const diff = diffCatalogs(old, catalog);
    const harm = judgeHarm(old, catalog, (model) => running.get(model) ?? 0);
    return { ...fresh, base: old.revision, diff, harm, token: tokenOf(old, catalog, diff) };
  }

  #known({ revision, text }: { readonly revision: number; readonly text: string }): Catalog {
    const opened = this.#open(text, `revision ${revision}`);
    return { revision, models: opened.kind === "valid" ? opened.models : new Map() };
  }

  #open(text: string, source: string): Opened {
    const key = `${hash("sha256", text, "hex")} ${source}`;
    const opened = this.#opened.get(key) ?? read(text, source);
    this.#opened.delete(key);
    this.#opened.set(key, opened);
    for (const oldest of this.#opened.keys()) if (this.#opened.size > KEPT) this.#opened.delete(oldest);
    return opened;
  }
}

function read(text: string, source: string): Opened {
  const parsed = parseCatalogText(text, source);
  if (parsed.kind === "invalid") return parsed;
  const { digest, warnings, data } = parsed;
  return { kind: "valid", digest, warnings, models: resolveCatalog(data, 0).models };
}

/** Of the revision, the difference and what it leads to. */
function tokenOf(before: Catalog, after: Catalog, diff: CatalogDiff): string {
  const content = [before.revision, diff, [...after.models.values()]];
  return hash("sha256", canonicalJson(content), "hex").slice(0, TOKEN_CHARS);
}
