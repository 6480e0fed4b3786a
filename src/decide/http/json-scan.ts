/**
 * Reads the few top-level fields of a JSON body that the gateway needs while the body arrives, without building the
 * document. A body is accepted exactly when `JSON.parse` accepts it and it is an object, with these differences:
 *
 *   - a wanted key that comes twice is refused: the gateway and the engine could each believe another one;
 *   - nesting below `maxDepth` and more than `maxKeys` top-level keys are refused;
 *   - a control character inside a string is only looked for in the first 4 KiB of each stretch between quotes and
 *     backslashes: beyond that a string is skipped by native search, so that megabytes of base64 cost microseconds. The
 *     bytes go on unchanged, so the engine still judges them;
 *   - bytes that are not UTF-8 are not looked for.
 */

export interface JsonField {
  /** Absolute byte offsets of the value in the whole body; `end` is behind its last byte. */
  readonly start: number;
  readonly end: number;
  /** The value as JSON text; `undefined` when it is longer than 64 KiB. */
  readonly text: string | undefined;
}

/** What was found in a body that is an object. */
export interface ScannedObject {
  readonly kind: "object";
  /** The wanted members that are there. */
  readonly fields: ReadonlyMap<string, JsonField>;
  /** Offset behind the opening brace, where a member can be put in. */
  readonly firstMemberOffset: number;
  /** Whether the object has no members at all. */
  readonly empty: boolean;
}

export type JsonScanResult =
  | ScannedObject
  /** `why` is for the client. `offset` counts bytes from the start of the body. */
  | { readonly kind: "invalid"; readonly why: string; readonly offset: number };

export interface JsonScanOptions {
  /** Containers inside each other, the outermost counted. Default 512. */
  readonly maxDepth?: number;
  /** Top-level keys. Default: no limit. */
  readonly maxKeys?: number;
}

export const FIELD_TEXT_BYTES_MAX = 65_536;
const DEPTH_MAX = 512;
/** From here on a stretch of a string is skipped by native search, whose call costs as much as 100 bytes by hand. */
const LONG_STRETCH_BYTES = 4_096;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;

// Classes of bytes outside strings. Anything else is class 0 and fails in every state.
const CLASS_BYTES = [" \t\n\r", "{", "}", "[", "]", ":", ",", '"', "-", "+", "0", "123456789", ".", "E", "e", "t", "r", "u", "f", "a", "l", "s", "n"];
const CLASS_SHIFT = 5;
const CLASSES = new Uint8Array(256);
CLASS_BYTES.forEach((bytes, index) => {
  for (const byte of bytes) CLASSES[byte.charCodeAt(0)] = index + 1;
});

// States. `AFTER_*` stand behind a value or a member, `NUMBER_*` and the spelled ones inside a number or a literal.
const START = 0;
const VALUE = 1;
const VALUE_OR_END = 2;
const KEY = 3;
const KEY_OR_END = 4;
const COLON = 5;
const AFTER_IN_ARRAY = 6;
const AFTER_IN_OBJECT = 7;
const DONE = 8;
/** Before the value of a wanted key: its first byte is noted. */
const WANTED_VALUE = 9;
const NUMBER_MINUS = 10;
const NUMBER_ZERO = 11;
const NUMBER_INT = 12;
const NUMBER_DOT = 13;
const NUMBER_FRACTION = 14;
const NUMBER_E = 15;
const NUMBER_E_SIGN = 16;
const NUMBER_EXPONENT = 17;
const FIRST_LITERAL = 18;

// What is more than a change of state.
const FIRST_ACTION = 64;
const FAIL = 64;
const OPEN_OBJECT = 65;
const OPEN_ARRAY = 66;
const CLOSE = 67;
const AFTER_COLON = 68;
const BEGIN_WANTED = 69;
/** A number ends at the byte behind it, which is then looked at again. */
const NUMBER_END = 70;
const LITERAL_END = 71;
const STRING_VALUE = 72;
const STRING_KEY = 73;

const TABLE = makeTable();

function makeTable(): Uint8Array {
  const table = new Uint8Array(32 << CLASS_SHIFT).fill(FAIL);
  const on = (state: number, bytes: string, next: number): void => {
    for (const byte of bytes) table[(state << CLASS_SHIFT) | CLASSES[byte.charCodeAt(0)]!] = next;
  };
  for (const state of [START, VALUE, VALUE_OR_END, KEY, KEY_OR_END, COLON, AFTER_IN_ARRAY, AFTER_IN_OBJECT, DONE, WANTED_VALUE]) on(state, " ", state);
  on(START, "{", OPEN_OBJECT);
  on(KEY, '"', STRING_KEY);
  on(KEY_OR_END, '"', STRING_KEY);
  on(KEY_OR_END, "}", CLOSE);
  on(VALUE_OR_END, "]", CLOSE);
  on(COLON, ":", AFTER_COLON);
  on(AFTER_IN_ARRAY, ",", VALUE);
  on(AFTER_IN_ARRAY, "]", CLOSE);
  on(AFTER_IN_OBJECT, ",", KEY);
  on(AFTER_IN_OBJECT, "}", CLOSE);

  const starts: [string, number][] = [["{", OPEN_OBJECT], ["[", OPEN_ARRAY], ['"', STRING_VALUE], ["-", NUMBER_MINUS], ["0", NUMBER_ZERO], ["1", NUMBER_INT]];
  let literalState = FIRST_LITERAL;
  for (const literal of ["true", "false", "null"]) {
    starts.push([literal[0]!, literalState]);
    for (const letter of literal.slice(1, -1)) on(literalState, letter, ++literalState);
    on(literalState++, literal.at(-1)!, LITERAL_END);
  }
  for (const [byte, next] of starts) {
    on(VALUE, byte, next);
    on(VALUE_OR_END, byte, next);
    on(WANTED_VALUE, byte, BEGIN_WANTED);
  }

  on(NUMBER_MINUS, "0", NUMBER_ZERO);
  on(NUMBER_MINUS, "1", NUMBER_INT);
  on(NUMBER_INT, "01", NUMBER_INT);
  for (const state of [NUMBER_ZERO, NUMBER_INT]) on(state, ".", NUMBER_DOT);
  for (const state of [NUMBER_DOT, NUMBER_FRACTION]) on(state, "01", NUMBER_FRACTION);
  for (const state of [NUMBER_ZERO, NUMBER_INT, NUMBER_FRACTION]) on(state, "eE", NUMBER_E);
  on(NUMBER_E, "+-", NUMBER_E_SIGN);
  for (const state of [NUMBER_E, NUMBER_E_SIGN, NUMBER_EXPONENT]) on(state, "01", NUMBER_EXPONENT);
  for (const state of [NUMBER_ZERO, NUMBER_INT, NUMBER_FRACTION, NUMBER_EXPONENT]) on(state, " ,}]", NUMBER_END);
  return table;
}

/** Bytes that end a plain stretch of a string: quote, backslash, control characters. */
const ENDS_STRETCH = new Uint8Array(256);
ENDS_STRETCH.fill(1, 0, 0x20);
ENDS_STRETCH[QUOTE] = 1;
ENDS_STRETCH[BACKSLASH] = 1;
const SIMPLE_ESCAPE = new Uint8Array(256);
for (const byte of '"\\/bfnrt') SIMPLE_ESCAPE[byte.charCodeAt(0)] = 1;
const HEX_DIGIT = new Uint8Array(256);
for (const byte of "0123456789abcdefABCDEF") HEX_DIGIT[byte.charCodeAt(0)] = 1;

/**
 * The first byte in [from, stop) that ends a plain stretch, else `stop`. Four bytes at a time: a byte below 0x20, or equal
 * to a quote or backslash, leaves a borrow in its top bit.
 */
function stretchEnd(chunk: Buffer, words: Int32Array, from: number, stop: number): number {
  const base = chunk.byteOffset;
  let pos = from;
  while (pos < stop && ((base + pos) & 3) !== 0) {
    if (ENDS_STRETCH[chunk[pos]!] === 1) return pos;
    pos++;
  }
  const wordsEnd = (base + stop) >> 2;
  let word = (base + pos) >> 2;
  if (word < wordsEnd) {
    while (word < wordsEnd) {
      const x = words[word]!;
      const marks = (x - 0x20202020) | ((x ^ 0x22222222) - 0x01010101) | ((x ^ 0x5c5c5c5c) - 0x01010101);
      if ((marks & ~x & 0x80808080) !== 0) break;
      word++;
    }
    pos = (word << 2) - base;
  }
  while (pos < stop && ENDS_STRETCH[chunk[pos]!] === 0) pos++;
  return pos;
}

const SHORT_STRING_BYTES = 24;

/** The closing quote of a short string without escapes, or -1. */
function shortStringEnd(chunk: Buffer, from: number): number {
  const stop = Math.min(chunk.length, from + SHORT_STRING_BYTES);
  let pos = from;
  while (pos < stop && ENDS_STRETCH[chunk[pos]!] === 0) pos++;
  return pos < stop && chunk[pos] === QUOTE ? pos : -1;
}

interface WantedKeys {
  readonly names: readonly string[];
  /** Indices into `names` by the key's length in bytes. */
  readonly byLength: readonly (readonly number[] | undefined)[];
  readonly bytes: readonly Buffer[];
  /** A longer raw key can't be a wanted one, even with every character written as \uXXXX. */
  readonly rawBytesMax: number;
}

// Callers pass the same constant list for each request; preparing it once saves a microsecond.
const preparedKeys = new WeakMap<readonly string[], WantedKeys>();

function prepareKeys(names: readonly string[]): WantedKeys {
  const known = preparedKeys.get(names);
  if (known !== undefined) return known;
  const bytes = names.map((name) => Buffer.from(name));
  const longest = Math.max(0, ...bytes.map((name) => name.length));
  const byLength = Array.from({ length: longest + 1 }, (_, length) => {
    const indices = names.flatMap((_name, index) => (bytes[index]!.length === length ? [index] : []));
    return indices.length === 0 ? undefined : indices;
  });
  const prepared = { names, byLength, bytes, rawBytesMax: longest * 6 };
  preparedKeys.set(names, prepared);
  return prepared;
}

// Invariants:
//   J1. Between two pushes the scan holds no reference to a chunk: what it needs later it copies, 64 KiB at most.
//   J2. Each byte is looked at a bounded number of times, whatever the chunking.
//   J3. The result depends on the bytes alone, not on where chunks were cut (but for the control characters named above).
export class JsonTopScan {
  readonly #wanted: WantedKeys;
  readonly #depthMax: number;
  readonly #keysMax: number;
  readonly #fields = new Map<string, JsonField>();
  /** Bytes of earlier chunks. */
  #base = 0;
  #state = START;
  #depth = 0;
  /** By depth: the state behind a value in that container. */
  readonly #after: number[] = [DONE];
  #keys = 0;
  #firstMemberOffset = 0;
  #why: string | undefined;
  #whyOffset = 0;

  #inString = false;
  #stringIsKey = false;
  /** 0 outside an escape, 1 behind the backslash, 5 to 2 before the hex digits of \u. */
  #escape = 0;
  /** Bytes of the present stretch without quote or backslash. */
  #stretch = 0;
  /** Next backslash of the present chunk, or its length; valid when not below the position. */
  #backslashAt = -1;

  /** Index of the wanted key whose value comes or is being read, or -1. */
  #key = -1;
  /** Absolute start of the key or value that is being kept, or -1. */
  #keepFrom = -1;
  #keepEscaped = false;
  #kept: Buffer[] = [];
  #keptBytes = 0;

  constructor(keys: readonly string[], options: JsonScanOptions = {}) {
    this.#wanted = prepareKeys(keys);
    this.#depthMax = options.maxDepth ?? DEPTH_MAX;
    this.#keysMax = options.maxKeys ?? Number.POSITIVE_INFINITY;
  }

  /** The bytes are not needed after the call. After a failure further bytes are ignored. */
  push(chunk: Buffer): void {
    if (this.#why !== undefined) return;
    const length = chunk.length;
    const words = new Int32Array(chunk.buffer, 0, chunk.buffer.byteLength >>> 2);
    this.#backslashAt = -1;
    let pos = this.#inString ? this.#skipString(chunk, words, 0) : 0;
    let state = this.#state;
    let nested = this.#depth > 1;
    let after = this.#after[this.#depth]!;
    while (pos < length) {
      const next = TABLE[(state << CLASS_SHIFT) | CLASSES[chunk[pos]!]!]!;
      if (next < FIRST_ACTION) {
        state = next;
        pos++;
        continue;
      }
      // Below the top level nothing is kept, so what ends in sight is settled here.
      if (nested && next >= NUMBER_END) {
        if (next === NUMBER_END) {
          state = after;
          continue;
        }
        const end = next === LITERAL_END ? pos : shortStringEnd(chunk, pos + 1);
        if (end >= 0) {
          state = next === STRING_KEY ? COLON : after;
          pos = end + 1;
          continue;
        }
      }
      this.#state = state;
      pos = this.#act(next, chunk, words, pos);
      state = this.#state;
      nested = this.#depth > 1;
      after = this.#after[this.#depth]!;
    }
    this.#state = state;
    if (this.#keepFrom >= 0) this.#keep(chunk);
    this.#base += length;
  }

  end(): JsonScanResult {
    if (this.#why === undefined && this.#state !== DONE) {
      const nothing = this.#state === START;
      this.#fail(nothing ? "empty, not a JSON object" : "the JSON ends too early", 0);
    }
    if (this.#why !== undefined) return { kind: "invalid", why: this.#why, offset: this.#whyOffset };
    return { kind: "object", fields: this.#fields, firstMemberOffset: this.#firstMemberOffset, empty: this.#keys === 0 };
  }

  /** Each action returns the next position to look at. */
  #act(action: number, chunk: Buffer, words: Int32Array, pos: number): number {
    switch (action) {
      case OPEN_OBJECT:
      case OPEN_ARRAY:
        return this.#open(action, pos);
      case CLOSE:
        this.#depth--;
        this.#valueEnded(chunk, pos + 1);
        return pos + 1;
      case STRING_KEY:
      case STRING_VALUE:
        return this.#beginString(action === STRING_KEY, chunk, words, pos);
      case AFTER_COLON:
        this.#state = this.#depth === 1 && this.#key >= 0 ? WANTED_VALUE : VALUE;
        return pos + 1;
      case BEGIN_WANTED:
        this.#keepFrom = this.#base + pos;
        this.#state = VALUE;
        return pos;
      case NUMBER_END:
        this.#valueEnded(chunk, pos);
        return pos;
      case LITERAL_END:
        this.#valueEnded(chunk, pos + 1);
        return pos + 1;
      default:
        return this.#fail(unexpected(this.#state), pos);
    }
  }

  #open(action: number, pos: number): number {
    if (this.#depth === this.#depthMax) return this.#fail(`nested deeper than ${this.#depthMax}`, pos);
    this.#depth++;
    const isObject = action === OPEN_OBJECT;
    this.#after[this.#depth] = isObject ? AFTER_IN_OBJECT : AFTER_IN_ARRAY;
    this.#state = isObject ? KEY_OR_END : VALUE_OR_END;
    if (this.#depth === 1) this.#firstMemberOffset = this.#base + pos + 1;
    return pos + 1;
  }

  #beginString(isKey: boolean, chunk: Buffer, words: Int32Array, pos: number): number {
    this.#inString = true;
    this.#stringIsKey = isKey;
    this.#stretch = 0;
    if (isKey && this.#depth === 1) {
      if (++this.#keys > this.#keysMax) return this.#fail(`more than ${this.#keysMax} keys`, pos);
      this.#keepFrom = this.#base + pos + 1;
      this.#keepEscaped = false;
    }
    return this.#skipString(chunk, words, pos + 1);
  }

  /** From inside a string to behind its closing quote, or to the chunk's end when that comes first. */
  #skipString(chunk: Buffer, words: Int32Array, from: number): number {
    const length = chunk.length;
    let pos = from;
    let quoteAt = -1;
    for (;;) {
      if (this.#escape !== 0) pos = this.#skipEscape(chunk, pos);
      if (pos >= length) return pos;
      if (this.#stretch < LONG_STRETCH_BYTES) {
        const stop = Math.min(length, pos + LONG_STRETCH_BYTES - this.#stretch);
        const at = stretchEnd(chunk, words, pos, stop);
        this.#stretch += at - pos;
        pos = at;
        if (at === stop) continue;
      } else {
        if (quoteAt < pos) quoteAt = indexOrEnd(chunk, QUOTE, pos);
        if (this.#backslashAt < pos) this.#backslashAt = indexOrEnd(chunk, BACKSLASH, pos);
        pos = Math.min(quoteAt, this.#backslashAt);
        if (pos === length) return length;
      }
      const byte = chunk[pos]!;
      if (byte === QUOTE) return this.#endString(chunk, pos);
      if (byte !== BACKSLASH) return this.#fail("a control character inside a string", pos);
      this.#stretch = 0;
      this.#keepEscaped = true;
      if (pos + 1 < length && SIMPLE_ESCAPE[chunk[pos + 1]!] === 1) {
        pos += 2;
        continue;
      }
      this.#escape = 1;
      pos++;
    }
  }

  #skipEscape(chunk: Buffer, from: number): number {
    let pos = from;
    while (this.#escape !== 0 && pos < chunk.length) {
      const byte = chunk[pos]!;
      if (this.#escape === 1) {
        if (SIMPLE_ESCAPE[byte] === 1) this.#escape = 0;
        else if (byte === LETTER_U) this.#escape = 5;
        else return this.#fail("a bad escape inside a string", pos);
      } else {
        if (HEX_DIGIT[byte] === 0) return this.#fail("a bad escape inside a string", pos);
        this.#escape = this.#escape === 2 ? 0 : this.#escape - 1;
      }
      pos++;
    }
    return pos;
  }

  #endString(chunk: Buffer, pos: number): number {
    this.#inString = false;
    if (!this.#stringIsKey) {
      this.#valueEnded(chunk, pos + 1);
      return pos + 1;
    }
    this.#state = COLON;
    if (this.#depth !== 1) return pos + 1;
    const key = this.#matchKey(chunk, pos);
    this.#dropKept();
    this.#key = key;
    if (key >= 0 && this.#fields.has(this.#wanted.names[key]!)) return this.#fail(`duplicate key "${this.#wanted.names[key]}"`, pos);
    return pos + 1;
  }

  /** Index of the wanted key that ends before `end`, or -1. */
  #matchKey(chunk: Buffer, end: number): number {
    const wanted = this.#wanted;
    const bytes = this.#base + end - this.#keepFrom;
    if (bytes > wanted.rawBytesMax) return -1;
    if (this.#keepEscaped || this.#keepFrom < this.#base) {
      const raw = this.#keptText(chunk, end);
      // The scan has seen that the escapes are right, so this can't throw.
      return wanted.names.indexOf(JSON.parse(`"${raw}"`) as string);
    }
    const start = this.#keepFrom - this.#base;
    for (const index of wanted.byLength[bytes] ?? []) {
      const name = wanted.bytes[index]!;
      let at = 0;
      while (at < bytes && chunk[start + at] === name[at]) at++;
      if (at === bytes) return index;
    }
    return -1;
  }

  #valueEnded(chunk: Buffer, end: number): void {
    this.#state = this.#after[this.#depth]!;
    if (this.#depth !== 1 || this.#keepFrom < 0) return;
    const start = this.#keepFrom;
    const absoluteEnd = this.#base + end;
    const text = absoluteEnd - start <= FIELD_TEXT_BYTES_MAX ? this.#keptText(chunk, end) : undefined;
    this.#fields.set(this.#wanted.names[this.#key]!, { start, end: absoluteEnd, text });
    this.#key = -1;
    this.#dropKept();
  }

  #keptText(chunk: Buffer, end: number): string {
    if (this.#keepFrom >= this.#base) return chunk.toString("utf8", this.#keepFrom - this.#base, end);
    return Buffer.concat([...this.#kept, chunk.subarray(0, end)]).toString("utf8");
  }

  /** Copies what of the kept key or value lies in this chunk. What grows past the limit is not needed any more. */
  #keep(chunk: Buffer): void {
    if (this.#keptBytes > FIELD_TEXT_BYTES_MAX) return;
    const part = chunk.subarray(Math.max(0, this.#keepFrom - this.#base));
    this.#keptBytes += part.length;
    if (this.#keptBytes > FIELD_TEXT_BYTES_MAX) this.#kept = [];
    else this.#kept.push(Buffer.from(part));
  }

  #dropKept(): void {
    this.#keepFrom = -1;
    if (this.#keptBytes === 0) return;
    this.#kept = [];
    this.#keptBytes = 0;
  }

  #fail(why: string, pos: number): number {
    this.#why = why;
    this.#whyOffset = this.#base + pos;
    this.#keepFrom = -1;
    return Number.MAX_SAFE_INTEGER;
  }
}

function indexOrEnd(chunk: Buffer, byte: number, from: number): number {
  const at = chunk.indexOf(byte, from);
  return at === -1 ? chunk.length : at;
}

function unexpected(state: number): string {
  if (state === START) return "not a JSON object";
  return state === DONE ? "bytes behind the end of the JSON" : "an unexpected byte in the JSON";
}

/** The field as a string, when it is one. */
export function stringField(fields: ReadonlyMap<string, JsonField>, key: string): string | undefined {
  const text = fields.get(key)?.text;
  return text?.startsWith('"') === true ? (JSON.parse(text) as string) : undefined;
}
