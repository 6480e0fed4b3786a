import { hash } from "node:crypto";
import { formatProblemsInLine, type ConfigProblem } from "../../config/config-problem.ts";
import { parseCatalogText } from "../../config/load-catalog.ts";
import type { Catalog } from "../../contract/catalog.ts";
import { controlEvent } from "../../contract/control-event.ts";
import { canonicalJson, resolveCatalog } from "../../contract/resolve-catalog.ts";
import {
  type CatalogDiff,
  diffCatalogs,
  type DiffHarm,
  isEmptyDiff,
  judgeHarm,
} from "../../decide/catalog/diff-catalog.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { CatalogRevision, StoredCatalog } from "../store/catalogs.ts";
import type { ControlStore } from "../store/control-store.ts";

/**
 * The catalog in force.
 *
 * Invariants:
 *   K1. A catalog is a frozen snapshot with a revision; a change swaps the pointer. Readers go on with the one they took.
 *   K2. Only what the store has saved is in force, on every control plane: the one that takes a change tells of it after the
 *       store has it, the others read it there.
 *   K3. A change is judged against the revision that it follows, and saved only if that still is the newest.
 *   K4. A confirmation is bound to the revision, to the difference and to what it leads to: it fits no other change.
 */
export interface CatalogSnapshot {
  readonly catalog: Catalog;
  /** Null before the first revision. */
  readonly stored: StoredCatalog | null;
}

export interface CatalogProposal {
  readonly text: string;
  /** What the text is called in messages about its mistakes. */
  readonly source: string;
  /** Id of the key, or what gave it by itself. */
  readonly author: string;
  readonly origin: string;
  /** The revision that the author saw; absent: whichever is the newest. */
  readonly base?: number;
  readonly confirm?: string;
}

export interface JudgedDiff {
  readonly base: number;
  readonly diff: CatalogDiff;
  readonly harm: DiffHarm;
  /** What confirms this change and no other. */
  readonly token: string;
  readonly warnings: readonly string[];
}

export type ProposalOutcome =
  | ({ readonly kind: "applied"; readonly revision: number } & JudgedDiff)
  /** The same text is in force. */
  | { readonly kind: "unchanged"; readonly revision: number }
  | { readonly kind: "invalid"; readonly problems: readonly ConfigProblem[] }
  /** Somebody else was faster, or the author saw another revision. */
  | { readonly kind: "changed"; readonly revision: number }
  /** It takes much away: the same again with the token. */
  | ({ readonly kind: "unconfirmed" } & JudgedDiff);

export interface CatalogPorts {
  readonly store: Pick<ControlStore, "catalog" | "catalogRevision" | "catalogHistory" | "saveCatalog">;
  readonly log: Logger;
  /** Replicas that run now, by model. */
  readonly running: () => Promise<ReadonlyMap<string, number>>;
}

const EMPTY: CatalogSnapshot = { catalog: Object.freeze({ revision: 0, models: new Map() }), stored: null };
const TOKEN_CHARS = 16;

export class CatalogKeeper {
  readonly #ports: CatalogPorts;
  readonly #listeners = new Set<(catalog: Catalog) => void>();
  #snapshot: CatalogSnapshot = EMPTY;

  /** Reads the newest revision. Throws STORE_REFUSED when this program can't read it. */
  static async open(ports: CatalogPorts): Promise<CatalogKeeper> {
    const keeper = new CatalogKeeper(ports);
    await keeper.refresh();
    return keeper;
  }

  private constructor(ports: CatalogPorts) {
    this.#ports = ports;
  }

  get snapshot(): CatalogSnapshot {
    return this.#snapshot;
  }

  /** Calls back with each new catalog. */
  onChange(listener: (catalog: Catalog) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  /** Takes over what another control plane has saved. */
  async refresh(): Promise<CatalogSnapshot> {
    if ((await this.#ports.store.catalogRevision()) > this.#snapshot.catalog.revision) {
      const stored = await this.#ports.store.catalog();
      if (stored !== undefined && stored.revision > this.#snapshot.catalog.revision) this.#swap(stored);
    }
    return this.#snapshot;
  }

  /** What a change would do. Nothing is saved. */
  async judge(text: string, source: string): Promise<ProposalOutcome | ({ readonly kind: "judged" } & JudgedDiff)> {
    const parsed = parseCatalogText(text, source);
    if (parsed.kind === "invalid") return parsed;
    const current = await this.refresh();
    return { kind: "judged", ...(await this.#judge(current.catalog, resolveCatalog(parsed.data, 0), parsed.warnings)) };
  }

  async propose(proposal: CatalogProposal): Promise<ProposalOutcome> {
    const { text, source, author, origin, base, confirm } = proposal;
    const parsed = parseCatalogText(text, source);
    if (parsed.kind === "invalid") return parsed;
    const { catalog, stored } = await this.refresh();
    if (base !== undefined && base !== catalog.revision) return { kind: "changed", revision: catalog.revision };
    if (stored !== null && stored.digest === parsed.digest) return { kind: "unchanged", revision: stored.revision };
    const judged = await this.#judge(catalog, resolveCatalog(parsed.data, catalog.revision + 1), parsed.warnings);
    if (judged.harm.destructive && confirm !== judged.token) return { kind: "unconfirmed", ...judged };
    const saved = await this.#ports.store.saveCatalog({ base: catalog.revision, author, origin, text }, (revision) =>
      controlEvent("catalogApplied", `revision ${revision} (${origin}): ${describeDiff(judged.diff)}`, { by: author }),
    );
    if (saved.kind === "changed") return saved;
    await this.refresh();
    return { kind: "applied", revision: saved.revision, ...judged };
  }

  /** Proposes the text of an earlier revision. Undefined when it is not kept. */
  async rollback(
    revision: number,
    facts: Omit<CatalogProposal, "text" | "source" | "origin">,
  ): Promise<ProposalOutcome | undefined> {
    const earlier = await this.#ports.store.catalog(revision);
    if (earlier === undefined) return undefined;
    return this.propose({
      ...facts,
      text: earlier.text,
      source: `revision ${revision}`,
      origin: `rollback to ${revision}`,
    });
  }

  revision(revision: number): Promise<StoredCatalog | undefined> {
    return this.#ports.store.catalog(revision);
  }

  /** Newest first. */
  history(limit: number): Promise<CatalogRevision[]> {
    return this.#ports.store.catalogHistory(limit);
  }

  async #judge(before: Catalog, after: Catalog, warnings: readonly string[]): Promise<JudgedDiff> {
    const running = await this.#ports.running();
    const diff = diffCatalogs(before, after);
    const harm = judgeHarm(before, after, (model) => running.get(model) ?? 0);
    return { base: before.revision, diff, harm, token: tokenOf(before, after, diff), warnings };
  }

  #swap(stored: StoredCatalog): void {
    const parsed = parseCatalogText(stored.text, `revision ${stored.revision}`);
    if (parsed.kind === "invalid") {
      throw new YardmasterError(
        "STORE_REFUSED",
        `the catalog that the store has can't be read by this program: ${formatProblemsInLine(parsed.problems)}`,
      );
    }
    const catalog = resolveCatalog(parsed.data, stored.revision);
    const diff = diffCatalogs(this.#snapshot.catalog, catalog);
    this.#snapshot = { catalog, stored };
    this.#ports.log.info("catalog.applied", {
      revision: stored.revision,
      author: stored.author,
      origin: stored.origin,
      difference: describeDiff(diff),
    });
    for (const listener of this.#listeners) listener(catalog);
  }
}

/** K4. */
function tokenOf(before: Catalog, after: Catalog, diff: CatalogDiff): string {
  const content = [before.revision, diff, [...after.models.values()]];
  return hash("sha256", canonicalJson(content), "hex").slice(0, TOKEN_CHARS);
}

const NAMES_SHOWN = 5;

/** What a change takes away, in words. */
export function describeHarm({ lost, replicas, emptied }: DiffHarm): string {
  const last = emptied.length === 0 ? "" : `, and the last one of ${emptied.slice(0, NAMES_SHOWN).join(", ")}`;
  return `${lost} of ${replicas} replicas${last}`;
}

/** In one line, for logs and events. */
export function describeDiff(diff: CatalogDiff): string {
  if (isEmptyDiff(diff)) return "no model differs";
  const list = (names: readonly string[]): string =>
    names.length > NAMES_SHOWN
      ? `${names.slice(0, NAMES_SHOWN).join(", ")} and ${names.length - NAMES_SHOWN} more`
      : names.join(", ");
  const parts = [
    { word: "added", names: diff.added },
    { word: "removed", names: diff.removed },
    { word: "changed", names: diff.changed.map(({ model, fields }) => `${model} (${fields.join(", ")})`) },
  ];
  return parts
    .filter(({ names }) => names.length > 0)
    .map(({ word, names }) => `${word} ${list(names)}`)
    .join("; ");
}
