import { CONNECTION, CONTENT_LENGTH, internHeaderName, OTHER, TRANSFER_ENCODING } from "./header-names.ts";
import { parseContentLength } from "../../decide/http/content-length.ts";
import { TextTable } from "./text-table.ts";

export const HEAD_BYTES_MAX = 65_536;
const TRAILER_BYTES_MAX = 8_192;
const FIELDS_MAX = 256;

export const CR = 13;
const LF = 10;
export const SP = 32;
const HTAB = 9;
const COLON = 58;
/** What a line reader returns instead of the position behind the line. */
export const INCOMPLETE = -1;
export const FAULT = -2;
const NO_FIELDS: readonly string[] = [];
const repeated = new TextTable();

// tchar of RFC 9110, and what a field value or a reason may hold (no controls but HTAB).
export const IS_TOKEN = new Uint8Array(256);
for (const char of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
  IS_TOKEN[char.charCodeAt(0)] = 1;
const IS_TEXT = new Uint8Array(256).fill(1, SP);
IS_TEXT[HTAB] = 1;
IS_TEXT[127] = 0;
export const HTTP_1 = Buffer.from("HTTP/1.");

/**
 * Reads the head of a message or the trailers of a chunked body, cut into reads anywhere. Strict: what a lenient reader could
 * frame in another way is a fault. Owns the part of a line that came without its end. What kind of message it is, the first
 * line tells, which belongs to the two readers below and beside.
 */
export abstract class FieldReader {
  done = false;
  /** Set when the bytes are not valid; a fixed text without bytes of the response. */
  fault: string | undefined;
  /** The fault is one of size. */
  tooLarge = false;
  /** 1 for HTTP/1.1, 0 for HTTP/1.0. */
  minor = 0;
  fields: string[] = [];
  /** -1 without Content-Length. */
  contentLength = -1;
  chunked = false;
  /** The sender will close the connection. */
  closes = false;

  /** False once the first line has been read. */
  protected wantsStart = true;
  /** The header just read has blanks behind its value. */
  protected blanksBehind = false;
  readonly #headBytesMax: number;
  #inHead = true;
  #bytes = 0;
  #bytesMax: number;
  #line: Buffer | undefined;
  #lineLength = 0;

  constructor(headBytesMax: number) {
    this.#headBytesMax = headBytesMax;
    this.#bytesMax = headBytesMax;
  }

  /** The first line: as `readLine`, and `wantsStart` falls when it is there. */
  protected abstract readStart(bytes: Buffer, start: number, end: number): number;

  /** Whether bytes that do not hold a whole first line can't become one. */
  protected abstract startFault(bytes: Buffer, start: number, end: number): string | undefined;

  /** A header that the first line's kind of message gives a meaning beyond framing. */
  protected abstract takeSpecial(kind: number, value: string): void;

  /** Nothing of a message has come yet, but empty lines before it. */
  get untouched(): boolean {
    return this.wantsStart && (this.#lineLength === 0 || this.#line?.[0] === CR);
  }

  beginHead(): void {
    this.#begin(true, this.#headBytesMax);
    this.fields = [];
    this.contentLength = -1;
    this.chunked = false;
    this.closes = false;
  }

  /** Keeps status and framing of the head. */
  beginTrailers(): void {
    this.#begin(false, TRAILER_BYTES_MAX);
    this.fields = NO_FIELDS as string[]; // Replaced by the first trailer.
  }

  #begin(inHead: boolean, bytesMax: number): void {
    this.done = false;
    this.fault = undefined;
    this.tooLarge = false;
    this.#inHead = inHead;
    this.wantsStart = inHead;
    this.#bytes = 0;
    this.#bytesMax = bytesMax;
    this.#lineLength = 0;
  }

  /** Returns the position behind the last byte used; all of them are used unless `done` or `fault` is set. */
  read(bytes: Buffer, start: number, end: number): number {
    let pos = start;
    if (this.#lineLength > 0) {
      pos = this.#completeLine(bytes, start, end);
      if (this.done || this.fault !== undefined) return pos;
    }
    while (pos < end) {
      const next = this.#readLine(bytes, pos, end);
      if (next === FAULT) return pos;
      if (next === INCOMPLETE) {
        this.#keep(bytes, pos, end);
        return end;
      }
      if (!this.#count(next - pos)) return pos;
      pos = next;
      if (this.done) return pos;
    }
    return pos;
  }

  #count(length: number): boolean {
    this.#bytes += length;
    if (this.#bytes <= this.#bytesMax) return true;
    this.tooLarge = true;
    this.fault = this.#inHead ? "the head is too large" : "the trailers are too large";
    return false;
  }

  /** Adds bytes up to the end of the line to the part kept before. */
  #completeLine(bytes: Buffer, start: number, end: number): number {
    const lineEnd = bytes.indexOf(LF, start);
    const stop = lineEnd === -1 || lineEnd >= end ? end : lineEnd + 1;
    if (!this.#keep(bytes, start, stop) || (stop === end && bytes[end - 1] !== LF)) return stop;
    const line = this.#line as Buffer;
    const length = this.#lineLength;
    this.#lineLength = 0;
    const next = this.#readLine(line, 0, length);
    // A line that ends in LF is complete, so what is still incomplete holds a stray LF.
    if (next !== length && this.fault === undefined) this.fault = "a line does not end in CR LF";
    if (this.fault === undefined) this.#count(length);
    return stop;
  }

  #keep(bytes: Buffer, start: number, end: number): boolean {
    const length = this.#lineLength + end - start;
    if (this.#bytes + length > this.#bytesMax) return this.#count(length);
    if (this.wantsStart && this.#lineLength === 0) {
      this.fault = this.startFault(bytes, start, end);
      if (this.fault !== undefined) return false;
    }
    if (this.#line === undefined || this.#line.length < length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(256, length * 2));
      this.#line?.copy(grown, 0, 0, this.#lineLength);
      this.#line = grown;
    }
    bytes.copy(this.#line, this.#lineLength, start, end);
    this.#lineLength = length;
    return true;
  }

  #readLine(bytes: Buffer, start: number, end: number): number {
    if (this.wantsStart) return this.readStart(bytes, start, end);
    if (bytes[start] === CR) {
      if (start + 1 === end) return INCOMPLETE;
      if (bytes[start + 1] !== LF) return this.fail("a line does not end in CR LF");
      this.done = true;
      return start + 2;
    }
    return this.#readField(bytes, start, end);
  }

  #readField(bytes: Buffer, start: number, end: number): number {
    let pos = start;
    let hash = 0;
    for (; pos < end; pos += 1) {
      const byte = bytes[pos] as number;
      if (IS_TOKEN[byte] === 0) break;
      hash = (Math.imul(hash, 31) + byte) | 0;
    }
    const nameEnd = pos;
    if (pos === end) return INCOMPLETE;
    // An empty name also catches a folded line, which begins with a blank.
    if (bytes[pos] !== COLON || nameEnd === start) return this.fail("a header line is malformed");
    pos += 1;
    while (pos < end && (bytes[pos] === SP || bytes[pos] === HTAB)) pos += 1;
    const valueStart = pos;
    pos = skipText(bytes, pos, end);
    const next = this.lineEnd(bytes, pos, end);
    if (next < 0) return next;
    let valueEnd = pos;
    this.blanksBehind = false;
    while (valueEnd > valueStart && (bytes[valueEnd - 1] === SP || bytes[valueEnd - 1] === HTAB)) {
      valueEnd -= 1;
      this.blanksBehind = true;
    }
    return this.#takeField(bytes, start, nameEnd, hash, valueStart, valueEnd) ? next : FAULT;
  }

  #takeField(
    bytes: Buffer,
    start: number,
    nameEnd: number,
    hash: number,
    valueStart: number,
    valueEnd: number,
  ): boolean {
    if (this.fields === NO_FIELDS) this.fields = [];
    if (this.fields.length >= FIELDS_MAX * 2) {
      this.fault = "too many header lines";
      this.tooLarge = true;
      return false;
    }
    const name = internHeaderName(bytes, start, nameEnd, hash);
    const value = name.repeats
      ? repeated.read(bytes, valueStart, valueEnd)
      : bytes.toString("latin1", valueStart, valueEnd);
    this.fields.push(name.text, value);
    if (name.kind !== OTHER && this.#inHead) this.#takeFraming(name.kind, value);
    return this.fault === undefined;
  }

  #takeFraming(kind: number, value: string): void {
    switch (kind) {
      case CONTENT_LENGTH:
        this.#takeContentLength(value);
        return;
      case TRANSFER_ENCODING:
        if (this.chunked || value.toLowerCase() !== "chunked") this.fault = "Transfer-Encoding is not exactly chunked";
        else if (this.contentLength !== -1) this.fault = "Content-Length together with Transfer-Encoding";
        else if (this.minor === 0) this.fault = "Transfer-Encoding in HTTP/1.0";
        else this.chunked = true;
        this.takeSpecial(kind, value);
        return;
      case CONNECTION:
        // Taking a token that merely holds the word for it costs a connection, never an answer.
        if (/close/i.test(value)) this.closes = true;
        this.takeSpecial(kind, value);
        return;
      default:
        this.takeSpecial(kind, value);
    }
  }

  #takeContentLength(value: string): void {
    const bytes = parseContentLength(value);
    if (this.contentLength !== -1) this.fault = "more than one Content-Length";
    else if (bytes < 0) this.fault = "Content-Length is not a number";
    else if (this.chunked) this.fault = "Content-Length together with Transfer-Encoding";
    else this.contentLength = bytes;
  }

  protected lineEnd(bytes: Buffer, pos: number, end: number): number {
    if (pos === end) return INCOMPLETE;
    if (bytes[pos] !== CR) return this.fail("a line holds a forbidden character");
    if (pos + 1 === end) return INCOMPLETE;
    if (bytes[pos + 1] !== LF) return this.fail("a line does not end in CR LF");
    return pos + 2;
  }

  protected fail(fault: string): number {
    this.fault = fault;
    return FAULT;
  }
}

export function skipText(bytes: Buffer, start: number, end: number): number {
  let pos = start;
  while (pos < end && IS_TEXT[bytes[pos] as number] === 1) pos += 1;
  return pos;
}
