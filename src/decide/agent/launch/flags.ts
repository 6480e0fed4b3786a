import type { Profile } from "../../../contract/catalog.ts";

/**
 * A profile's `args` as an engine's flags. Only flags on the engine's list are passed: not those that open another port, load
 * code or read another configuration, nor those that Yardmaster sets itself.
 */
export interface FlagRules {
  readonly engine: string;
  /** Separated by blanks. */
  readonly allowed: string;
  /** Set by Yardmaster; separated by blanks. */
  readonly own: string;
  /** "equals": `--flag=value`; "apart": two arguments. */
  readonly form: "equals" | "apart";
  /** How `false` is written; null leaves the flag out. */
  readonly negative: "no-" | null;
}

export type RenderedFlags =
  | { readonly kind: "flags"; readonly argv: readonly string[]; readonly names: ReadonlySet<string> }
  | { readonly kind: "refused"; readonly why: string };

const VALUE_CHARS_MAX = 4_096;
// oxlint-disable-next-line no-control-regex -- control characters are what it keeps out
const CONTROL = /[\u0000-\u001f\u007f]/;

export function renderFlags(args: Profile["args"], rules: FlagRules): RenderedFlags {
  const allowed = new Set(rules.allowed.split(/\s+/));
  const own = new Set(rules.own.split(/\s+/));
  const argv: string[] = [];
  const names = new Set<string>();
  for (const [key, value] of Object.entries(args)) {
    const name = key.replaceAll("_", "-");
    if (own.has(name)) return no(`\`${key}\` is set by Yardmaster itself`);
    if (!allowed.has(name)) return no(`\`${key}\` is not among the flags that an agent passes to ${rules.engine}`);
    if (names.has(name)) return no(`\`${key}\` is given twice`);
    names.add(name);
    const dashed = name.length <= 3 && rules.form === "apart" ? `-${name}` : `--${name}`;
    if (value === true || value === null) argv.push(dashed);
    else if (value === false) {
      if (rules.negative !== null) argv.push(`--${rules.negative}${name}`);
    } else {
      const text = String(value);
      if (text.length > VALUE_CHARS_MAX || CONTROL.test(text))
        return no(`the value of \`${key}\` holds a control character`);
      if (rules.form === "equals") argv.push(`${dashed}=${text}`);
      // A value that looks like a flag would be read as one.
      else if (text.startsWith("-") && typeof value === "string")
        return no(`the value of \`${key}\` looks like a flag`);
      else argv.push(dashed, text);
    }
  }
  return { kind: "flags", argv, names };
}

const no = (why: string): RenderedFlags => ({ kind: "refused", why });
