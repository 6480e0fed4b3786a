import { JsonTopScan } from "../http/json-scan.ts";
import { bytesOf } from "../http/json-splice.ts";

/**
 * What a prompt begins with, as a chain of hashes: block n stands for everything up to its end, so two prompts share a prefix
 * as far as their chains are equal.
 */
export interface PrefixBlocks {
  /** At most `BLOCKS_MAX`, from the shortest prefix to the longest. */
  readonly hashes: readonly number[];
  /** By block: bytes of the body that its prefix takes. */
  readonly ends: readonly number[];
  /** Which block makes a conversation: the first message that is not the system's, or the first piece of a plain prompt. */
  readonly head: number;
  /** Of the body, what all of the prompt takes. */
  readonly bytes: number;
}

export const BLOCKS_MAX = 128;
/** Beyond this much of a prompt nothing is told apart: what is alike so far is warm in any case. */
const HASHED_BYTES_MAX = 262_144;
/** Of what stands before the messages in an engine's template: system prompt and tools. */
const SEED_BYTES_MAX = 65_536;
/** A long message is several blocks: fine ones where most prompts part, coarse ones behind. */
const FINE_BYTES = 256;
const FINE_BLOCKS = 16;
const MEDIUM_BYTES = 1_024;
const MEDIUM_BLOCKS = 48;
const COARSE_BYTES = 8_192;
/** Which block of a plain prompt makes a conversation, where it is that long: what stands before is often a form that many share. */
const TEXT_HEAD = 3;

const SEEDS = ["system", "instructions", "tools"] as const;
const PROMPTS = ["messages", "prompt", "input"] as const;
const KEYS = [...SEEDS, ...PROMPTS];

/**
 * Reads a JSON body that a scan has accepted. Undefined where it has no prompt that can be told (no such member, or an empty one).
 * The work is bounded, whatever the body.
 */
export function prefixBlocks(chunks: readonly Buffer[], model: string): PrefixBlocks | undefined {
  const scan = new JsonTopScan(KEYS);
  for (const chunk of chunks) scan.push(chunk);
  const scanned = scan.end();
  if (scanned.kind === "invalid") return undefined;
  const name = PROMPTS.find((prompt) => scanned.fields.has(prompt));
  if (name === undefined) return undefined;
  const chain = new HashChain();
  chain.push(Buffer.from(JSON.stringify(model)));
  for (const seed of SEEDS) {
    const field = scanned.fields.get(seed);
    chain.push(Buffer.from(seed));
    if (field !== undefined) chain.push(bytesOf(chunks, field, SEED_BYTES_MAX));
  }
  const field = scanned.fields.get(name)!;
  return readPrompt(bytesOf(chunks, field, HASHED_BYTES_MAX), field.end - field.start, chain);
}

/** A place where a block ends. */
interface Cut {
  readonly end: number;
  /** Of a whole message: where it begins. */
  readonly messageFrom?: number;
}

function readPrompt(value: Buffer, bytes: number, chain: HashChain): PrefixBlocks | undefined {
  const hashes: number[] = [];
  const ends: number[] = [];
  let head = -1;
  let from = 0;
  for (const { end, messageFrom } of isMessageList(value) ? messageCuts(value) : textCuts(value)) {
    chain.push(value.subarray(from, end));
    from = end;
    hashes.push(chain.value);
    ends.push(end);
    if (head < 0 && messageFrom !== undefined && !isOfSystem(value.subarray(messageFrom, end)))
      head = hashes.length - 1;
    if (hashes.length === BLOCKS_MAX) break;
  }
  if (hashes.length === 0) return undefined;
  return { hashes, ends, head: head < 0 ? Math.min(TEXT_HEAD, hashes.length - 1) : head, bytes };
}

/** A list of messages, and not one of texts or of tokens. */
const isMessageList = (value: Buffer): boolean => /^\[\s*\{/.test(value.toString("latin1", 0, 32));

/** A text may go on in the next request, so that its last piece is no prefix of that: only whole pieces count, if there is one. */
function* textCuts(value: Buffer): Generator<Cut> {
  const whole = value.length - 1;
  if (whole <= 1) return;
  if (whole < FINE_BYTES) yield { end: whole };
  for (let count = 0, end = FINE_BYTES; end <= whole; count += 1, end += pieceBytes(count)) yield { end };
}

function* messageCuts(value: Buffer): Generator<Cut> {
  let count = 0;
  for (const [start, end] of messages(value)) {
    for (let at = start + pieceBytes(count); at < end; at += pieceBytes(count)) {
      count += 1;
      yield { end: at };
    }
    count += 1;
    yield { end, messageFrom: start };
  }
}

const pieceBytes = (count: number): number =>
  count < FINE_BLOCKS ? FINE_BYTES : count < MEDIUM_BLOCKS ? MEDIUM_BYTES : COARSE_BYTES;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const isOpening = (byte: number): boolean => byte === 0x7b || byte === 0x5b;
const isClosing = (byte: number): boolean => byte === 0x7d || byte === 0x5d;

/** Where each object in a list begins and ends. One that is cut off by the end of the bytes ends there. */
function* messages(list: Buffer): Generator<readonly [start: number, end: number]> {
  let depth = 0;
  let start = 0;
  for (let at = 0; at < list.length; at += 1) {
    const byte = list[at]!;
    if (byte === QUOTE) {
      at = stringEnd(list, at + 1);
    } else if (isOpening(byte)) {
      depth += 1;
      if (depth === 2) start = at;
    } else if (isClosing(byte)) {
      depth -= 1;
      if (depth === 1) yield [start, at + 1];
    }
  }
  if (depth > 1) yield [start, list.length];
}

/** Of the closing quote, or of the last byte where there is none. */
function stringEnd(text: Buffer, from: number): number {
  for (let at = text.indexOf(QUOTE, from); at !== -1; at = text.indexOf(QUOTE, at + 1)) {
    let escapes = 0;
    while (text[at - 1 - escapes] === BACKSLASH) escapes += 1;
    if (escapes % 2 === 0) return at;
  }
  return text.length;
}

/** Inside a string a quote has a backslash before it, so the member's name can't be a part of what somebody says. */
const SYSTEM_ROLE = /"role"\s*:\s*"(?:system|developer)"/;
const isOfSystem = (message: Buffer): boolean => {
  const at = message.indexOf('"role"');
  return at !== -1 && SYSTEM_ROLE.test(message.toString("latin1", at, at + 64));
};

/** Two running hashes (FNV-1a and a relative with another factor) that together make a whole number below 2^53. */
class HashChain {
  #low = 0x811c9dc5;
  #high = 0x9e3779b9;

  push(bytes: Buffer): void {
    let low = this.#low;
    let high = this.#high;
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at]!;
      low = Math.imul(low ^ byte, 0x01000193);
      high = Math.imul(high ^ byte, 0x85ebca6b);
      high ^= high >>> 15;
    }
    this.#low = low;
    this.#high = high;
  }

  get value(): number {
    return (this.#low >>> 0) * 0x20_0000 + (this.#high >>> 11);
  }
}

/** The same for a short text, such as the value of a session header. */
export function hashText(text: string): number {
  const chain = new HashChain();
  chain.push(Buffer.from(text));
  return chain.value;
}
