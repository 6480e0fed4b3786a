import type { Branch } from "./source-tree.ts";

/** What `${NAME}` stands for in a text of llama-swap's file. */
export interface Macros {
  readonly values: ReadonlyMap<string, string>;
  /** Of the environment of whoever converts; undefined: not set, or not to be written down. */
  readonly env: (name: string) => string | undefined;
}

export type Expanded =
  | { readonly kind: "text"; readonly text: string; readonly fromEnv: readonly string[] }
  | { readonly kind: "unknown"; readonly name: string };

const REFERENCE = /\$\{([A-Za-z0-9_.-]+)\}/g;
/** Known only when the engine is started; they stay as they are. */
const LATE: ReadonlySet<string> = new Set(["PORT", "PID"]);
const DEPTH_MAX = 16;
const CHARS_MAX = 65_536;

/** A value is a text, a number or a truth value. Inner ones go over outer ones; all count as read, used or not. */
export function readMacros(
  branch: Branch,
  outer: ReadonlyMap<string, string> = new Map(),
): ReadonlyMap<string, string> {
  const values = new Map(outer);
  for (const [name, value] of branch.entries()) {
    const text = value.scalar();
    if (text !== undefined) values.set(name, text);
  }
  return values;
}

/** Every reference but the late ones replaced, also those that come in with a replacement. */
export function expand(text: string, macros: Macros): Expanded {
  const fromEnv = new Set<string>();
  let unknown: string | null = null;
  let current = text;
  for (let depth = 0; depth < DEPTH_MAX; depth += 1) {
    let isChanged = false;
    current = current.replaceAll(REFERENCE, (all, name: string) => {
      if (LATE.has(name)) return all;
      const value = valueOf(name, macros, fromEnv);
      if (value === undefined) unknown ??= name;
      else isChanged = true;
      return value ?? all;
    });
    if (unknown !== null) return { kind: "unknown", name: unknown };
    if (!isChanged) return { kind: "text", text: current, fromEnv: [...fromEnv] };
    if (current.length > CHARS_MAX) break;
  }
  return { kind: "unknown", name: "of macros that name each other without end" };
}

function valueOf(name: string, { values, env }: Macros, fromEnv: Set<string>): string | undefined {
  if (!name.startsWith("env.")) return values.get(name);
  const variable = name.slice("env.".length);
  fromEnv.add(variable);
  return env(variable);
}

/** A catalog is read by everybody who may read the cluster's state. */
const SECRET = /key|token|secret|passw|credential|auth/i;
export const isSecretName = (name: string): boolean => SECRET.test(name);
