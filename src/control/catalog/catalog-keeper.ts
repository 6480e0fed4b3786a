import { hash } from "node:crypto";
import { formatProblemsInLine, type ConfigProblem } from "../../config/config-problem.ts";
import type { Catalog } from "../../contract/catalog.ts";
import { controlEvent } from "../../contract/control-event.ts";
import { type CatalogDiff, type DiffHarm, isEmptyDiff } from "../../decide/catalog/diff-catalog.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { CatalogRevision, StoredCatalog } from "../store/catalogs.ts";
import type { ControlStore } from "../store/control-store.ts";
import { type Assessed, NO_CATALOG } from "./assess-catalog.ts";
import type { CatalogReader } from "./catalog-reader.ts";

/**
 * The catalog in force.
 *
 * Invariants:
 *   K1. A catalog is a frozen snapshot with a revision; a change swaps the pointer. Readers go on with the one they took.
 *   K2. Only what the store has saved is in force, on every control plane: the one that takes a change tells of it after the
 *       store has it, the others read it there.
 *   K3. A change is judged against the revision that it follows, and saved only if that still is the newest.
 *   K4. A confirmation is bound to the revision, to the difference and to what it leads to: it fits no other change.
 *   K5. Only what is asked of the store has the store's time limit, and who is refused by it is told what of the change is not known.
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
  /** What is about to be saved is on record when it resolves. Throws: it is not, and nothing is saved. */
  readonly onRecord: (what: string) => Promise<void>;
}

export type JudgedDiff = Pick<Assessed, "base" | "diff" | "harm" | "token" | "warnings">;

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
  readonly reader: CatalogReader;
  readonly log: Logger;
  /** Replicas that run now, by model. */
  readonly running: () => Promise<ReadonlyMap<string, number>>;
  /** Ends work on the store that takes too long, with these words. */
  readonly bounded: <T>(work: Promise<T>, words?: string) => Promise<T>;
}

const EMPTY: CatalogSnapshot = { catalog: NO_CATALOG, stored: null };
const NOBODY: ReadonlyMap<string, number> = new Map();
/** At the start nobody waits for an answer. */
const unbounded: CatalogPorts["bounded"] = (work) => work;

export class CatalogKeeper {
  readonly #ports: CatalogPorts;
  readonly #listeners = new Set<(catalog: Catalog) => void>();
  #snapshot: CatalogSnapshot = EMPTY;
  /** The revision that is being read, and when that has ended. */
  #opening: { readonly revision: number; readonly done: Promise<void> } | null = null;

  /** Reads the newest revision. Throws STORE_REFUSED when this program can't read it. */
  static async open(ports: CatalogPorts): Promise<CatalogKeeper> {
    const keeper = new CatalogKeeper(ports);
    await (
      await keeper.#find(unbounded)
    ).done;
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
    const { done } = await this.#find();
    await done;
    return this.#snapshot;
  }

  /** The same without waiting for a large catalog to be read: until then the one before it is in force. */
  async look(): Promise<CatalogSnapshot> {
    const { done } = await this.#find();
    // Whoever waits for it is told, and the next look tries again.
    done.catch((error: unknown) => this.#ports.log.warn("catalog.notRead", { why: messageOf(error) }));
    return this.#snapshot;
  }

  /** As the store has it, in force here or not yet. */
  async newest(): Promise<StoredCatalog | null> {
    const { store, bounded } = this.#ports;
    const { stored, catalog } = this.#snapshot;
    if ((await bounded(store.catalogRevision())) === catalog.revision) return stored;
    return (await bounded(store.catalog())) ?? null;
  }

  /** What a change would do. Nothing is saved. */
  async judge(text: string, source: string): Promise<ProposalOutcome | ({ readonly kind: "judged" } & JudgedDiff)> {
    const judged = await this.#judge(await this.refresh(), text, source);
    return judged.kind === "invalid" ? judged : { ...judged, kind: "judged" };
  }

  async propose(proposal: CatalogProposal): Promise<ProposalOutcome> {
    const { text, source, author, origin, base, confirm, onRecord } = proposal;
    const before = await this.refresh();
    const { catalog, stored } = before;
    if (base !== undefined && base !== catalog.revision) return { kind: "changed", revision: catalog.revision };
    if (stored !== null && stored.digest === hash("sha256", text, "hex"))
      return { kind: "unchanged", revision: stored.revision };
    const judged = await this.#judge(before, text, source);
    if (judged.kind === "invalid") return judged;
    if (judged.harm.destructive && confirm !== judged.token) return { ...judged, kind: "unconfirmed" };
    const revision = catalog.revision + 1;
    const what = `revision ${revision} (${origin}): ${describeDiff(judged.diff)}`;
    await onRecord(`${what}; sha256:${hash("sha256", text, "hex")}`);
    const saved = await this.#ports.bounded(
      this.#ports.store.saveCatalog({ base: catalog.revision, author, origin, text }, (given) =>
        controlEvent("catalogApplied", `revision ${given} (${origin}): ${describeDiff(judged.diff)}`, { by: author }),
      ),
      `the store did not answer in time: whether the change was saved as revision ${revision} is not known, the catalog's history tells`,
    );
    if (saved.kind === "changed") return saved;
    // It is saved, whatever becomes of the look at it; whoever comes next takes it over.
    await this.refresh().catch((error: unknown) => this.#ports.log.warn("catalog.notRead", { why: messageOf(error) }));
    return { ...judged, kind: "applied", revision: saved.revision };
  }

  /** Proposes the text of an earlier revision. Undefined when it is not kept. */
  async rollback(
    revision: number,
    facts: Omit<CatalogProposal, "text" | "source" | "origin">,
  ): Promise<ProposalOutcome | undefined> {
    const earlier = await this.revision(revision);
    if (earlier === undefined) return undefined;
    return this.propose({
      ...facts,
      text: earlier.text,
      source: `revision ${revision}`,
      origin: `rollback to ${revision}`,
    });
  }

  revision(revision: number): Promise<StoredCatalog | undefined> {
    return this.#ports.bounded(this.#ports.store.catalog(revision));
  }

  /** The one before a revision: null where it was the first, undefined when it can't be read any more. */
  async catalogBefore(revision: number): Promise<Catalog | null | undefined> {
    if (revision <= 1) return null;
    const stored = await this.revision(revision - 1);
    if (stored === undefined) return undefined;
    const source = `revision ${stored.revision}`;
    const read = await this.#ports.reader.open({ text: stored.text, source, before: null, running: NOBODY });
    return read.kind === "invalid" ? undefined : { revision: stored.revision, models: read.models };
  }

  /** Newest first. */
  history(limit: number): Promise<CatalogRevision[]> {
    return this.#ports.bounded(this.#ports.store.catalogHistory(limit));
  }

  /** What a text is, compared with the catalog in force and with nothing running. */
  check(text: string, source: string): ReturnType<CatalogReader["judge"]> {
    return this.#ports.reader.judge({ text, source, before: this.#snapshot.stored, running: NOBODY });
  }

  async #judge({ stored }: CatalogSnapshot, text: string, source: string): ReturnType<CatalogReader["judge"]> {
    const { reader, bounded, running } = this.#ports;
    return reader.judge({ text, source, before: stored, running: await bounded(running()) });
  }

  /** Each revision is read once, however many ask for it. */
  async #find(bounded = this.#ports.bounded): Promise<{ readonly done: Promise<void> }> {
    const { store, reader } = this.#ports;
    const idle = { done: Promise.resolve() };
    const known = (): number => Math.max(this.#snapshot.catalog.revision, this.#opening?.revision ?? 0);
    if ((await bounded(store.catalogRevision())) > known()) {
      const stored = await bounded(store.catalog());
      if (stored !== undefined && stored.revision > known()) {
        const done = this.#open(stored).finally(() => {
          if (this.#opening?.revision === stored.revision) this.#opening = null;
        });
        this.#opening = { revision: stored.revision, done };
        // A small one is there at once.
        if (reader.isSmall({ text: stored.text, before: this.#snapshot.stored })) await done;
      }
    }
    return this.#opening ?? idle;
  }

  async #open(stored: StoredCatalog): Promise<void> {
    const { revision, text, author, origin } = stored;
    const source = `revision ${revision}`;
    const opened = await this.#ports.reader.open({ text, source, before: this.#snapshot.stored, running: NOBODY });
    if (opened.kind === "invalid") {
      const mistakes = formatProblemsInLine(opened.problems);
      throw new YardmasterError(
        "STORE_REFUSED",
        `the catalog that the store has can't be read by this program: ${mistakes}`,
      );
    }
    // Of two that were read side by side the newer one stays.
    if (revision <= this.#snapshot.catalog.revision) return;
    const catalog: Catalog = Object.freeze({ revision, models: opened.models });
    this.#snapshot = { catalog, stored };
    this.#ports.log.info("catalog.applied", { revision, author, origin, difference: describeDiff(opened.diff) });
    for (const listener of this.#listeners) listener(catalog);
  }
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
