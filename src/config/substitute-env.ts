import type { Env } from "../contract/resolve-config.ts";

export type Substitution =
  /** `whole`: the text was one `${…}` and nothing else, so its value may be a number or true/false. */
  | { readonly kind: "text"; readonly text: string; readonly fromEnv: boolean; readonly whole: boolean }
  | { readonly kind: "invalid"; readonly why: string };

const REFERENCE = /^\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/;

/**
 * `${NAME}` and `${NAME:-default}`, the default standing in for an unset and for an empty variable, as in a shell.
 * `$${` is a plain `${`. Values are taken as they are: a `${` inside one is not looked at again. With null there is no
 * environment to refer to.
 */
export function substituteEnv(text: string, env: Env | null): Substitution {
  let out = "";
  let at = 0;
  let references = 0;
  for (;;) {
    const start = text.indexOf("${", at);
    if (start < 0) break;
    if (start > at && text[start - 1] === "$") {
      out += `${text.slice(at, start - 1)}\${`;
      at = start + 2;
      continue;
    }
    const match = REFERENCE.exec(text.slice(start));
    if (match === null)
      return { kind: "invalid", why: "a `${` that is neither ${NAME} nor ${NAME:-default}; write $${ for a plain ${" };
    if (env === null)
      return { kind: "invalid", why: "environment variables can't be referred to here; write $${ for a plain ${" };
    const [whole, name = "", fallback] = match;
    if (fallback?.includes("${"))
      return { kind: "invalid", why: `the default of \${${name}} holds another \${…}; defaults are plain text` };
    const value = Object.hasOwn(env, name) ? env[name] : undefined;
    const chosen = fallback !== undefined && (value === undefined || value === "") ? fallback : value;
    if (chosen === undefined)
      return {
        kind: "invalid",
        why: `the environment variable ${name} is not set; set it, or write \${${name}:-default}`,
      };
    out += text.slice(at, start) + chosen;
    at = start + whole.length;
    references += 1;
  }
  out += text.slice(at);
  return {
    kind: "text",
    text: out,
    fromEnv: references > 0,
    whole: references === 1 && REFERENCE.exec(text)?.[0] === text,
  };
}

/** A plain scalar's value by YAML 1.2's core schema. */
export function coreScalar(text: string): string | number | boolean | null {
  if (/^(?:~|null|Null|NULL|)$/.test(text)) return null;
  if (/^(?:true|True|TRUE)$/.test(text)) return true;
  if (/^(?:false|False|FALSE)$/.test(text)) return false;
  if (/^[-+]?[0-9]+$/.test(text)) return Number(text);
  if (/^0o[0-7]+$/.test(text) || /^0x[0-9a-fA-F]+$/.test(text)) return Number(text);
  if (/^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$/.test(text)) return Number(text);
  return text;
}
