/** Deeper values are compared as they were sent. */
const DEPTH_MAX = 100;
/** A JSON number that a double holds exactly: what another writer spells differently and means the same. */
const EXACT_DIGITS_MAX = 15;

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
// Control characters end a string in JSON, so the patterns name them.
// oxlint-disable-next-line no-control-regex
const PLAIN_STRING = /"[^"\\\u0000-\u001f]*"/y;
// oxlint-disable-next-line no-control-regex
const ANY_STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const BLANKS = /[ \t\n\r]*/y;
const LITERALS = ["true", "false", "null"] as const;

class NotCanonical extends Error {}

/**
 * The text of a JSON value with all that does not change its meaning made equal: blanks, the order of members, escapes in
 * strings, and the spelling of numbers that a double holds exactly. Other numbers keep their digits, so that two large seeds
 * are never taken for one. Undefined for what is no JSON, has one name twice in an object, or is nested deeper than 100.
 * Time is linear in the text but for sorting.
 */
export function canonicalJson(text: string): string | undefined {
  try {
    const reader = new Reader(text);
    const value = reader.value(0);
    reader.end();
    return value;
  } catch (error) {
    if (error instanceof NotCanonical) return undefined;
    throw error;
  }
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  value(depth: number): string {
    if (depth > DEPTH_MAX) throw new NotCanonical();
    this.#blanks();
    switch (this.#text[this.#at]) {
      case "{":
        return this.#object(depth);
      case "[":
        return this.#array(depth);
      case '"':
        return this.#string();
      case "t":
      case "f":
      case "n":
        return this.#literal();
      default:
        return canonicalNumber(this.#match(NUMBER));
    }
  }

  end(): void {
    this.#blanks();
    if (this.#at !== this.#text.length) throw new NotCanonical();
  }

  #object(depth: number): string {
    const members: (readonly [name: string, value: string])[] = [];
    const names = new Set<string>();
    this.#at += 1;
    this.#blanks();
    if (this.#took("}")) return "{}";
    for (;;) {
      this.#blanks();
      const name = this.#string();
      if (names.has(name)) throw new NotCanonical(); // Readers differ on which of the two counts.
      names.add(name);
      this.#blanks();
      if (!this.#took(":")) throw new NotCanonical();
      members.push([name, this.value(depth + 1)]);
      this.#blanks();
      if (this.#took("}")) break;
      if (!this.#took(",")) throw new NotCanonical();
    }
    members.sort((a, b) => (a[0] < b[0] ? -1 : 1));
    return `{${members.map(([name, value]) => `${name}:${value}`).join(",")}}`;
  }

  #array(depth: number): string {
    const items: string[] = [];
    this.#at += 1;
    this.#blanks();
    if (this.#took("]")) return "[]";
    for (;;) {
      items.push(this.value(depth + 1));
      this.#blanks();
      if (this.#took("]")) return `[${items.join(",")}]`;
      if (!this.#took(",")) throw new NotCanonical();
    }
  }

  #string(): string {
    PLAIN_STRING.lastIndex = this.#at;
    const plain = PLAIN_STRING.exec(this.#text)?.[0];
    if (plain !== undefined) {
      this.#at += plain.length;
      return plain;
    }
    return JSON.stringify(JSON.parse(this.#match(ANY_STRING)));
  }

  #literal(): string {
    for (const literal of LITERALS) {
      if (!this.#text.startsWith(literal, this.#at)) continue;
      this.#at += literal.length;
      return literal;
    }
    throw new NotCanonical();
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found === undefined) throw new NotCanonical();
    this.#at += found.length;
    return found;
  }

  #took(char: string): boolean {
    if (this.#text[this.#at] !== char) return false;
    this.#at += 1;
    return true;
  }

  #blanks(): void {
    BLANKS.lastIndex = this.#at;
    this.#at += BLANKS.exec(this.#text)?.[0].length ?? 0;
  }
}

function canonicalNumber(text: string): string {
  if (text.replace(/[eE].*$/, "").replace(/[^0-9]/g, "").length > EXACT_DIGITS_MAX) return text;
  const value = Number(text);
  return Number.isFinite(value) ? String(value) : text;
}
