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

import * as automaton from "./json-automaton.ts";
import * as strings from "./json-strings.ts";
import { plainKeyIndex, prepareKeys, type WantedKeys } from "./json-wanted-keys.ts";

// An imported binding is loaded at each use; constants of this module are part of the compiled loop, which is a third faster.
const {
  CLASS_SHIFT,
  CLASSES,
  START,
  VALUE,
  VALUE_OR_END,
  KEY_OR_END,
  COLON,
  AFTER_IN_ARRAY,
  AFTER_IN_OBJECT,
  DONE,
  WANTED_VALUE,
  FIRST_ACTION,
  OPEN_OBJECT,
  OPEN_ARRAY,
  CLOSE,
  AFTER_COLON,
  BEGIN_WANTED,
  NUMBER_END,
  LITERAL_END,
  STRING_VALUE,
  STRING_KEY,
  TABLE,
} = automaton;
const { BACKSLASH, HEX_DIGIT, LETTER_U, QUOTE, shortStringEnd, SIMPLE_ESCAPE, stretchEnd } = strings;

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
    return {
      kind: "object",
      fields: this.#fields,
      firstMemberOffset: this.#firstMemberOffset,
      empty: this.#keys === 0,
    };
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
    if (key >= 0 && this.#fields.has(this.#wanted.names[key]!))
      return this.#fail(`duplicate key "${this.#wanted.names[key]}"`, pos);
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
    return plainKeyIndex(wanted, chunk, this.#keepFrom - this.#base, end);
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
