/**
 * The simulated model: text is cut into tokens of four UTF-8 bytes, and answers are words picked by a hash of seed and
 * prompt. The same seed and prompt give the same answer on every machine.
 */
export const TOKEN_BYTES = 4;

const ENGLISH =
  " the yard signal track train of and to in a is was at by line switch car brake freight engine slow clear stop wait " +
  "pass couple gravity hump lead main siding shed crew night early late shift lamp flag whistle steam diesel axle rail " +
  "spike gauge north south east west load empty grain coal ore timber steel , . ; : that with from for on it as be are " +
  "this which when where then there one two three four five six seven eight nine ten route board master clock order " +
  "list plan move hold free busy full half";

// A few words with more than one byte a character, so that every reader of a stream meets code points cut by a socket.
const WORDS: readonly string[] = [
  ...ENGLISH.trim()
    .split(" ")
    .map((word) => (/^\W$/.test(word) ? word : ` ${word}`)),
  " Größe",
  " naïve",
  " 東京",
  " 🚂",
  " — ",
  "\n",
];
const WORDS_JSON: readonly string[] = WORDS.map((word) => JSON.stringify(word));

/** 32 bits of FNV-1a over UTF-16 units, mixed at the end. For choices and cache keys, not for secrets. */
export function hashText(text: string, seed: number): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0;
  for (let index = 0; index < text.length; index += 1) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  return mix(hash, text.length);
}

export function mix(a: number, b: number): number {
  let hash = Math.imul(a ^ Math.imul(b + 0x9e37, 0x85ebca6b), 0xc2b2ae35) >>> 0;
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}

export const tokenCount = (text: string): number => Math.ceil(Buffer.byteLength(text) / TOKEN_BYTES);

const wordIndex = (key: number, index: number): number => mix(key, index) % WORDS.length;

export const outputWord = (key: number, index: number): string => WORDS[wordIndex(key, index)] ?? "";
/** The same word as a JSON string, quotes included: streams need no escaping work per token. */
export const outputWordJson = (key: number, index: number): string => WORDS_JSON[wordIndex(key, index)] ?? '""';

/** Ids carry the bytes themselves (length, then up to four bytes), so that detokenizing needs no table. */
export function encodeTokens(text: string): number[] {
  const bytes = Buffer.from(text);
  const ids: number[] = [];
  for (let start = 0; start < bytes.length; start += TOKEN_BYTES) {
    const part = bytes.subarray(start, start + TOKEN_BYTES);
    ids.push(part.reduce((id, byte) => id * 256 + byte, part.length));
  }
  return ids;
}

export function decodeTokens(ids: readonly number[]): string {
  const bytes: number[] = [];
  for (const id of ids) {
    const part: number[] = [];
    for (let rest = Math.floor(id); rest > TOKEN_BYTES && part.length < TOKEN_BYTES; rest = Math.floor(rest / 256)) {
      part.unshift(rest % 256);
    }
    bytes.push(...part);
  }
  return Buffer.from(bytes).toString("utf8");
}
