/** What strings of JSON are made of, and searches over their plain stretches: bytes without quote, backslash or control. */

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const LETTER_U = 0x75;

/** Bytes that end a plain stretch of a string: quote, backslash, control characters. */
const ENDS_STRETCH = new Uint8Array(256);
ENDS_STRETCH.fill(1, 0, 0x20);
ENDS_STRETCH[QUOTE] = 1;
ENDS_STRETCH[BACKSLASH] = 1;
export const SIMPLE_ESCAPE = new Uint8Array(256);
for (const byte of '"\\/bfnrt') SIMPLE_ESCAPE[byte.charCodeAt(0)] = 1;
export const HEX_DIGIT = new Uint8Array(256);
for (const byte of "0123456789abcdefABCDEF") HEX_DIGIT[byte.charCodeAt(0)] = 1;

/**
 * The first byte in [from, stop) that ends a plain stretch, else `stop`. Four bytes at a time: a byte below 0x20, or equal
 * to a quote or backslash, leaves a borrow in its top bit.
 */
export function stretchEnd(chunk: Buffer, words: Int32Array, from: number, stop: number): number {
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
export function shortStringEnd(chunk: Buffer, from: number): number {
  const stop = Math.min(chunk.length, from + SHORT_STRING_BYTES);
  let pos = from;
  while (pos < stop && ENDS_STRETCH[chunk[pos]!] === 0) pos++;
  return pos < stop && chunk[pos] === QUOTE ? pos : -1;
}
