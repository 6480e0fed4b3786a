import type { FieldPath } from "../contract/schema-fields.ts";
import { valueAt } from "./describe-issue.ts";

/** What one key alone can't tell, found on raw values, of which any may have the wrong type. */
export interface Finding {
  readonly severity: "mistake" | "warning";
  readonly path: FieldPath;
  readonly message: string;
  readonly hint?: string;
  /** Where the first of two equal things stands; its line is added to the message. */
  readonly first?: FieldPath;
}

export const listAt = (raw: unknown, path: FieldPath): readonly unknown[] => {
  const value = valueAt(raw, path);
  return Array.isArray(value) ? value : [];
};
export const textAt = (raw: unknown, path: FieldPath): string | undefined => {
  const value = valueAt(raw, path);
  return typeof value === "string" ? value : undefined;
};
export const numberAt = (raw: unknown, path: FieldPath): number | undefined => {
  const value = valueAt(raw, path);
  return typeof value === "number" ? value : undefined;
};
export const mistake = (path: FieldPath, message: string, hint?: string): Finding =>
  hint === undefined ? { severity: "mistake", path, message } : { severity: "mistake", path, message, hint };
export const warning = (path: FieldPath, message: string): Finding => ({ severity: "warning", path, message });

export interface NamedPlace {
  readonly name: string | undefined;
  readonly path: FieldPath;
}

/** What each of a list has as its `key`. */
export const namesAt = (raw: unknown, list: FieldPath, key: string): NamedPlace[] =>
  listAt(raw, list).map((one, index) => ({ name: textAt(one, [key]), path: [...list, index, key] }));

/** Those that have the name of one before them. */
export function duplicates(named: readonly NamedPlace[], message: string): Finding[] {
  const seen = new Map<string, FieldPath>();
  return named.flatMap(({ name, path }): Finding[] => {
    if (name === undefined) return [];
    const first = seen.get(name);
    if (first !== undefined) return [{ severity: "mistake", path, message, first }];
    seen.set(name, path);
    return [];
  });
}
