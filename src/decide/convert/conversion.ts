import type { FieldPath } from "../../contract/schema-fields.ts";
import { type Branch, SourceTree } from "./source-tree.ts";

/**
 * `dropped`: it has no counterpart, or could not be read. `changed`: taken over, and not quite the same here. `assumed`: the other file
 * does not say it, and something had to stand there. `secret`: it stood there in plain text, and is to come from the environment.
 */
export const NOTE_KINDS = ["dropped", "changed", "assumed", "secret"] as const;
export type NoteKind = (typeof NOTE_KINDS)[number];

export interface ConversionNote {
  /** Of the other program's file. */
  readonly path: FieldPath;
  readonly kind: NoteKind;
  /** Never holds a value that could be a secret. */
  readonly message: string;
}

export interface Converted {
  readonly kind: "converted";
  /** What `yardmaster.yaml` holds. */
  readonly config: Readonly<Record<string, unknown>>;
  /** What `catalog.yaml` holds; null where no model is started here. */
  readonly catalog: Readonly<Record<string, unknown>> | null;
  /** In the order of the other file, as far as they have a place there. */
  readonly notes: readonly ConversionNote[];
  /** Environment variables that the configuration names. */
  readonly variables: readonly string[];
}

export type Conversion = Converted | { readonly kind: "refused"; readonly why: string };

/** One conversion under way: the other file, what is to be told of it, and names that are given out once. */
export class Draft {
  readonly tree: SourceTree;
  readonly #notes: ConversionNote[] = [];
  readonly #ids = new Set<string>();
  readonly #variables = new Set<string>();
  /** What each variable that was made for a secret is to hold. */
  readonly #secrets = new Map<string, string>();

  constructor(value: unknown) {
    this.tree = new SourceTree(value);
  }

  get root(): Branch {
    return this.tree.root;
  }

  note(branch: Branch, kind: NoteKind, message: string): void {
    // What is dropped goes with all that is below it; of a place that is only remarked upon the rest is still to be told.
    if (kind === "dropped" || typeof branch.value !== "object") branch.take();
    this.#notes.push({ path: branch.path, kind, message });
  }

  /** Says the same of each key of a list that is there. */
  noteAll(parent: Branch, messages: Readonly<Record<string, string>>): void {
    for (const [key, message] of Object.entries(messages)) {
      const branch = parent.at(key);
      if (branch.isThere) this.note(branch, "dropped", message);
    }
  }

  /** An id of the configuration that is like the name, and that no other has. */
  id(name: string): string {
    const plain = name
      .replaceAll(/[^A-Za-z0-9._-]+/g, "-")
      .replace(/^[^A-Za-z0-9]+/, "")
      .slice(0, 56);
    const base = plain === "" ? "upstream" : plain;
    let id = base;
    for (let next = 2; this.#ids.has(id); next += 1) id = `${base}-${next}`;
    this.#ids.add(id);
    return id;
  }

  /** The configuration asks the environment for it. */
  variable(name: string): string {
    this.#variables.add(name);
    return name;
  }

  /**
   * A variable for a secret that stood in the file. Each secret has one of its own: two in one variable would be sent to each other's
   * server. The same secret keeps the name that it has.
   */
  secretVariable(like: string, secret: string): string {
    let name = like;
    for (let next = 2; this.#isOther(name, secret); next += 1) name = `${like}_${next}`;
    this.#secrets.set(name, secret);
    return this.variable(name);
  }

  #isOther(name: string, secret: string): boolean {
    const held = this.#secrets.get(name);
    return held === undefined ? this.#variables.has(name) : held !== secret;
  }

  finish(config: Converted["config"], catalog: Converted["catalog"]): Converted {
    const left = this.tree
      .left()
      .map((path): ConversionNote => ({ path, kind: "dropped", message: "has no counterpart, and was left out" }));
    return {
      kind: "converted",
      config,
      catalog,
      notes: [...this.#notes, ...left],
      variables: [...this.#variables].toSorted(),
    };
  }
}

/** A text that the configuration takes as it is: what looks like a reference to the environment is none. */
export const plain = (text: string): string => text.replaceAll("${", () => "$${");

/** The same for each text in it. */
export function allPlain(value: unknown): unknown {
  if (typeof value === "string") return plain(value);
  if (Array.isArray(value)) return value.map(allPlain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, allPlain(inner)]));
}

/** A name for a variable that is like the words. */
export const variableName = (...words: readonly string[]): string => {
  const name = words
    .join("_")
    .toUpperCase()
    .replaceAll(/[^A-Z0-9]+/g, "_")
    .replaceAll(/^_+|_+$/g, "");
  return /^[A-Z]/.test(name) ? name.slice(0, 100) : `KEY_${name}`.slice(0, 100);
};

export const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Leaves out what is not there, since an absent key and an empty one are not the same. */
export function present(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
