// Finds the few places in a run of whole events that can mean more than another token, without turning bytes into text.
//
// A place is looked for by the last byte of a window of seven: a byte that no window holds lets the search jump seven bytes on, so
// that a common event is touched at every fifth byte or so. Inside a JSON string a quote is always escaped, so a key's
// name in quotes can't come from generated text; what still looks like a key and is none is sorted out by reading the event.

const WINDOW = 7;

const LF = 0x0a;
const CR = 0x0d;
const TAB = 0x09;
const BLANK = 0x20;
const COLON = 0x3a;
const QUOTE = 0x22;
const BRACKET = 0x5d;
const LETTER_E = 0x65;
const LETTER_N = 0x6e;
const LETTER_R = 0x72;

const bytesOf = (text: string): readonly number[] => [...Buffer.from(text, "latin1")];

const REASON = bytesOf("_reason");
const ERROR_KEY = bytesOf('"error"');
const USAGE_KEY = bytesOf('"usage"');
const DONE = bytesOf("[DONE]");
const ERROR_LINE_SPACED = bytesOf("event: error");
const ERROR_LINE = bytesOf("event:error");
/** How the types end that end a stream or bring its last usage: `….completed"`, `….incomplete"`, `….failed"`, `message_stop"`, `audio.done"`, `text.done"`. */
const END_TYPES = ['pleted"', 'mplete"', 'failed"', 'e_stop"', 'o.done"', 't.done"'].map(bytesOf);
const NUMBER_KEY = bytesOf('"sequence_number"');

interface Telling {
  /** Bytes to jump when the window ends with this byte; 0 = look closer. */
  readonly jump: Uint8Array;
  /** The jump after a closer look found nothing. */
  readonly jumpOn: Uint8Array;
  /** The windows of end types, by the letter before their last quote. */
  readonly endTypes: readonly (readonly (readonly number[])[] | undefined)[];
}

function telling(windows: readonly (readonly number[])[], endTypes: readonly (readonly number[])[]): Telling {
  const jumpOn = new Uint8Array(256).fill(WINDOW);
  const all = [...windows, ...endTypes];
  for (const window of all) {
    for (let at = 0; at < WINDOW - 1; at++) jumpOn[window[at]!] = Math.min(jumpOn[window[at]!]!, WINDOW - 1 - at);
  }
  const jump = jumpOn.slice();
  for (const window of all) jump[window[WINDOW - 1]!] = 0;
  const byLetter = Array.from({ length: 256 }, (_, letter) => {
    const own = endTypes.filter((window) => window[WINDOW - 2] === letter);
    return own.length === 0 ? undefined : own;
  });
  return { jump, jumpOn, endTypes: byLetter };
}

const COMMON_WINDOWS = [REASON, ERROR_KEY, USAGE_KEY, ...[" [DONE]", ":[DONE]", ": error", "t:error"].map(bytesOf)];

/** For streams of chat and completions. */
export const TELLING_CHOICES: Telling = telling(COMMON_WINDOWS, []);
/** For streams whose events have a `type`, and those not known yet. */
export const TELLING_TYPED: Telling = telling(COMMON_WINDOWS, END_TYPES);

/** The offset of a byte in [from, to) that lies in an event worth reading, or -1. */
export function nextTelling(places: Telling, bytes: Buffer, from: number, to: number): number {
  const { jump, jumpOn } = places;
  let at = from + WINDOW - 1;
  while (at < to) {
    const byte = bytes[at]!;
    const step = jump[byte]!;
    if (step !== 0) at += step;
    else if (tells(places, bytes, at, from, to)) return at;
    else at += jumpOn[byte]!;
  }
  return -1;
}

function tells(places: Telling, bytes: Buffer, last: number, from: number, to: number): boolean {
  switch (bytes[last]) {
    case LETTER_N:
      return endsWith(bytes, last, REASON) && bytes[last + 1] === QUOTE && valueTells(bytes, last + 2, to, false);
    case QUOTE:
      return quotedTells(places, bytes, last, to);
    case BRACKET:
      return endsWith(bytes, last, DONE);
    case LETTER_R:
      return isErrorLine(bytes, last, from, to);
    default:
      return false;
  }
}

/** Quotes are frequent: most are sorted out by the letter before them. */
function quotedTells(places: Telling, bytes: Buffer, last: number, to: number): boolean {
  const letter = bytes[last - 1]!;
  if (letter === LETTER_R) return endsWith(bytes, last, ERROR_KEY) && valueTells(bytes, last + 1, to, true);
  if (letter === LETTER_E && endsWith(bytes, last, USAGE_KEY)) return valueTells(bytes, last + 1, to, false);
  const windows = places.endTypes[letter];
  if (windows === undefined) return false;
  for (let at = 0; at < windows.length; at++) if (endsWith(bytes, last, windows[at]!)) return true;
  return false;
}

function endsWith(bytes: Buffer, last: number, window: readonly number[]): boolean {
  const start = last - window.length + 1;
  for (let at = window.length - 2; at >= 0; at--) if (bytes[start + at] !== window[at]) return false;
  return true;
}

/**
 * Whether a value follows that is neither `null` nor `""`. A name in quotes without a colon is itself a value. JSON that goes on in
 * another `data` line is read.
 */
function valueTells(bytes: Buffer, from: number, to: number, nameAsValue: boolean): boolean {
  let at = skipBlanks(bytes, from, to);
  if (at >= to || bytes[at] !== COLON) return nameAsValue || isLineEnd(bytes[at]);
  at = skipBlanks(bytes, at + 1, to);
  if (at >= to) return false;
  return bytes[at] !== LETTER_N && !(bytes[at] === QUOTE && bytes[at + 1] === QUOTE);
}

function skipBlanks(bytes: Buffer, from: number, to: number): number {
  let at = from;
  while (at < to && (bytes[at] === BLANK || bytes[at] === TAB)) at += 1;
  return at;
}

const isLineEnd = (byte: number | undefined): boolean => byte === LF || byte === CR;

function isErrorLine(bytes: Buffer, last: number, from: number, to: number): boolean {
  if (last + 1 < to && !isLineEnd(bytes[last + 1])) return false;
  for (const line of [ERROR_LINE_SPACED, ERROR_LINE]) {
    const start = last - line.length + 1;
    if (start >= from && endsWith(bytes, last, line)) return start === from || isLineEnd(bytes[start - 1]);
  }
  return false;
}

/** The start of the event that holds `place`, in whole events from `from` on. */
export function eventStart(bytes: Buffer, from: number, place: number): number {
  let at = place - 1;
  while (at >= from) {
    if (!isLineEnd(bytes[at])) {
      at -= 1;
      continue;
    }
    const before = at > from && bytes[at] === LF && bytes[at - 1] === CR ? at - 2 : at - 1;
    if (before < from || isLineEnd(bytes[before])) return at + 1;
    at = before;
  }
  return from;
}

/** The offset behind the blank line that ends the event from `from` on, or `to`. `inLine`: `from` lies inside a line. */
export function eventEnd(bytes: Buffer, from: number, to: number, inLine: boolean): number {
  let blank = !inLine;
  for (let at = from; at < to; at++) {
    const byte = bytes[at];
    if (byte !== LF && byte !== CR) {
      blank = false;
      continue;
    }
    if (byte === CR && at + 1 < to && bytes[at + 1] === LF) at += 1;
    if (blank) return at + 1;
    blank = true;
  }
  return to;
}

/** Whether whole events in [from, to) hold a `data` line. */
export function holdsData(bytes: Buffer, from: number, to: number): boolean {
  let at = from;
  while (at + 4 < to) {
    if (bytes[at] === 0x64 && bytes[at + 1] === 0x61 && bytes[at + 2] === 0x74 && bytes[at + 3] === 0x61) {
      const next = bytes[at + 4];
      if (next === COLON || isLineEnd(next)) return true;
    }
    while (at < to && !isLineEnd(bytes[at])) at += 1;
    at += 1;
  }
  return false;
}

/** The value of the last `"sequence_number"` in a `data` line of the whole events in [from, to). */
export function lastNumber(bytes: Buffer, from: number, to: number): number | undefined {
  const length = NUMBER_KEY.length;
  for (let last = to - 1; last - length + 1 >= from; last--) {
    if (bytes[last] !== QUOTE || bytes[last - 1] !== LETTER_R || !endsWith(bytes, last, NUMBER_KEY)) continue;
    let at = skipBlanks(bytes, last + 1, to);
    if (bytes[at] !== COLON) continue;
    at = skipBlanks(bytes, at + 1, to);
    let value = -1;
    for (; at < to && bytes[at]! >= 0x30 && bytes[at]! <= 0x39; at++)
      value = Math.max(value, 0) * 10 + bytes[at]! - 0x30;
    if (value >= 0 && Number.isSafeInteger(value) && isDataLine(bytes, from, last)) return value;
  }
  return undefined;
}

/** Whether the line that holds `place` is one of data: any other may hold anything, and is nobody's event. */
function isDataLine(bytes: Buffer, from: number, place: number): boolean {
  let start = place;
  while (start > from && !isLineEnd(bytes[start - 1])) start -= 1;
  return bytes.toString("latin1", start, Math.min(place, start + 5)) === "data:";
}
