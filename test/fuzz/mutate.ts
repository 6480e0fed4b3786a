import type { Random } from "../../src/kernel/random.ts";

export const INPUT_BYTES_MAX = 4_096;
const CHANGES_MAX = 4;
/** Bytes at which readers of text change their mind. */
const TELLING = Buffer.from("\0\t\n\r \"#%&'()*+,-./0:;<=>?@AZ[\\]^_`az{|}~\x7f\x80\xc3\xe2\xff", "latin1");

type Change = (input: Buffer, random: Random, words: readonly Buffer[], other: Buffer) => Buffer;

const below = (random: Random, count: number): number => Math.floor(random.next() * count);
const place = (input: Buffer, random: Random): number => below(random, input.length + 1);
const replaced = (input: Buffer, from: number, to: number, by: Buffer): Buffer =>
  Buffer.concat([input.subarray(0, from), by, input.subarray(Math.max(from, to))]);

function stretch(input: Buffer, random: Random): readonly [number, number] {
  const from = place(input, random);
  return [from, Math.min(input.length, from + 1 + below(random, random.next() < 0.8 ? 8 : 256))];
}

const CHANGES: readonly Change[] = [
  (input, random) => {
    const at = place(input, random);
    return replaced(input, at, at + 1, Buffer.from([(input[at] ?? 0) ^ (1 << below(random, 8))]));
  },
  (input, random) => {
    const at = place(input, random);
    return replaced(input, at, at + below(random, 2), Buffer.from([TELLING[below(random, TELLING.length)]!]));
  },
  (input, random) => replaced(input, ...stretch(input, random), Buffer.alloc(0)),
  (input, random) => {
    const [from, to] = stretch(input, random);
    const at = place(input, random);
    return replaced(input, at, at, input.subarray(from, to));
  },
  (input, random) => {
    const [from, to] = stretch(input, random);
    return replaced(
      input,
      from,
      from,
      Buffer.concat(Array.from({ length: 1 + below(random, 40) }, () => input.subarray(from, to))),
    );
  },
  (input, random, words) => {
    const at = place(input, random);
    const word = words[below(random, words.length)]!;
    return replaced(input, at, at + (random.next() < 0.5 ? 0 : word.length), word);
  },
  (input, random, _words, other) => {
    const at = place(other, random);
    return replaced(input, place(input, random), input.length, other.subarray(at));
  },
  (input, random) => input.subarray(0, place(input, random)),
];

/** A neighbour of the input; `other` is one more from the corpus, to cross it with. */
export function mutate(input: Buffer, other: Buffer, words: readonly Buffer[], random: Random): Buffer {
  let out = input;
  const count = 1 + below(random, CHANGES_MAX);
  for (let change = 0; change < count; change += 1)
    out = CHANGES[below(random, CHANGES.length)]!(out, random, words, other).subarray(0, INPUT_BYTES_MAX);
  return out;
}
