/**
 * A command line as llama-swap reads it, in words: quotes hold a word together, a backslash takes the meaning from the next character,
 * and a line that begins with `#` is a comment. Null where a quote is not closed. No shell: `$`, `|` and `>` are characters.
 */
export function commandWords(text: string): string[] | null {
  const joined = text
    .split("\n")
    .filter((line) => !line.trimStart().startsWith("#"))
    .join("\n")
    .replaceAll(/\\\r?\n/g, " ");
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let at = 0; at < joined.length; at += 1) {
    const char = joined[at] ?? "";
    if (quote === "" && /\s/.test(char)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (quote === "" && (char === '"' || char === "'")) {
      quote = char;
      word ??= "";
    } else if (quote !== "" && char === quote) quote = "";
    else if (char === "\\" && quote !== "'" && at + 1 < joined.length) {
      word = (word ?? "") + (joined[at + 1] ?? "");
      at += 1;
    } else word = (word ?? "") + char;
  }
  if (word !== null) words.push(word);
  return quote === "" ? words : null;
}

export type FlagValue = string | number | true;

export interface CommandFlags {
  readonly flags: ReadonlyMap<string, FlagValue>;
  /** Words that belong to no flag. */
  readonly rest: readonly string[];
  /** Flags that stand there more than once. */
  readonly twice: readonly string[];
}

/** `--flag value`, `--flag=value`, `-f value`; a word after a flag is its value unless it looks like a flag itself. */
export function readFlags(words: readonly string[]): CommandFlags {
  const flags = new Map<string, FlagValue>();
  const rest: string[] = [];
  const twice: string[] = [];
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? "";
    const match = /^--?([A-Za-z][A-Za-z0-9_-]*)(?:=([\s\S]*))?$/.exec(word);
    if (match === null) {
      rest.push(word);
      continue;
    }
    const name = (match[1] ?? "").replaceAll("_", "-");
    const next = words[at + 1];
    let value: FlagValue = true;
    if (match[2] !== undefined) value = valueOf(match[2]);
    else if (next !== undefined && !/^--?[A-Za-z]/.test(next)) {
      value = valueOf(next);
      at += 1;
    }
    if (flags.has(name)) twice.push(name);
    flags.set(name, value);
  }
  return { flags, rest, twice };
}

const valueOf = (text: string): string | number =>
  /^-?(?:0|[1-9]\d{0,8})(?:\.\d{1,6})?$/.test(text) ? Number(text) : text;
