import type { FieldPath } from "../../contract/schema-fields.ts";

/**
 * A foreign configuration that is read key by key.
 *
 * Invariant:
 *   S1. What nobody has read or spoken of is told by `left`, so that a converter can't drop a key in silence: neither one that it forgot,
 *       nor one that a later version of the other program adds.
 */
export class SourceTree {
  readonly root: Branch;
  readonly #read = new Set<string>();

  constructor(value: unknown) {
    this.root = new Branch(value, [], (path) => this.#read.add(nameOf(path)));
  }

  /** The highest keys of which nothing was read, in the order of the document. */
  left(): FieldPath[] {
    return this.#leftIn(this.root.value, []);
  }

  #leftIn(value: unknown, path: FieldPath): FieldPath[] {
    if (this.#read.has(nameOf(path)) || isEmpty(value)) return [];
    const inner = childrenOf(value).map(([key, child]) => ({ path: [...path, key], child }));
    if (inner.length === 0) return [path];
    const touched = path.length === 0 || inner.some((one) => this.#isTouched(one.child, one.path));
    return touched ? inner.flatMap((one) => this.#leftIn(one.child, one.path)) : [path];
  }

  #isTouched(value: unknown, path: FieldPath): boolean {
    return (
      this.#read.has(nameOf(path)) || childrenOf(value).some(([key, child]) => this.#isTouched(child, [...path, key]))
    );
  }
}

const nameOf = (path: FieldPath): string => JSON.stringify(path);

function childrenOf(value: unknown): (readonly [string | number, unknown])[] {
  if (Array.isArray(value)) return value.map((child, index) => [index, child] as const);
  return isMapping(value) ? Object.entries(value) : [];
}

const isMapping = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Says nothing, so nothing is lost with it. */
const isEmpty = (value: unknown): boolean =>
  value === null ||
  value === undefined ||
  (typeof value === "object" && childrenOf(value).every(([, child]) => isEmpty(child)));

/** One place of a `SourceTree`. Reading a value of the expected kind marks it; one of another kind stays unread. */
export class Branch {
  readonly value: unknown;
  readonly path: FieldPath;
  readonly #mark: (path: FieldPath) => void;

  constructor(value: unknown, path: FieldPath, mark: (path: FieldPath) => void) {
    this.value = value;
    this.path = path;
    this.#mark = mark;
  }

  /** The place below; it need not be there. */
  at(...steps: readonly (string | number)[]): Branch {
    let value = this.value;
    for (const step of steps) {
      const own =
        typeof value === "object" && value !== null && Object.hasOwn(value, step)
          ? (value as Record<string | number, unknown>)[step]
          : undefined;
      value = own;
    }
    return new Branch(value, [...this.path, ...steps], this.#mark);
  }

  get isThere(): boolean {
    return this.value !== undefined && this.value !== null;
  }

  /** All of it counts as read. */
  take(): void {
    this.#mark(this.path);
  }

  text(): string | undefined {
    return this.#taken((value) => (typeof value === "string" && value !== "" ? value : undefined));
  }

  /** A number, also one that is written as text. */
  number(): number | undefined {
    return this.#taken((value) => {
      const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
      return typeof number === "number" && Number.isFinite(number) ? number : undefined;
    });
  }

  flag(): boolean | undefined {
    return this.#taken((value) => (typeof value === "boolean" ? value : undefined));
  }

  /** A text, or the numbers and truth values that a careless author leaves without quotes. */
  scalar(): string | undefined {
    return this.#taken((value) =>
      typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : undefined,
    );
  }

  list(): readonly Branch[] {
    return Array.isArray(this.value) ? this.value.map((_, index) => this.at(index)) : [];
  }

  entries(): readonly (readonly [string, Branch])[] {
    return isMapping(this.value) ? Object.keys(this.value).map((key) => [key, this.at(key)] as const) : [];
  }

  #taken<T>(read: (value: unknown) => T | undefined): T | undefined {
    const value = read(this.value);
    if (value !== undefined) this.#mark(this.path);
    return value;
  }
}
