import { CR, FieldReader, HTTP_1, INCOMPLETE, IS_TOKEN, SP } from "../upstream/field-reader.ts";
import { CONNECTION, EXPECT, TRANSFER_ENCODING, UPGRADE } from "../upstream/header-names.ts";
import { TextTable } from "../upstream/text-table.ts";
import { METHODS } from "../../kernel/node-builtins.ts";

export const HEADER_BYTES_MAX = 16 * 1024;
const LF = 10;
const SLASH = 47;
const QUESTION_MARK = 63;
/** Methods, and targets without a query, which may hold a secret. */
const lineTexts = new TextTable();
const METHOD_CHARS_MAX = 20;
const KNOWN_METHODS: ReadonlySet<string> = new Set(METHODS);
/** "HTTP/1.1" and its CR LF. */
const VERSION_LINE_BYTES = 10;

/** The head of a client's request: the request line, and what its headers say of the connection. */
export class RequestHeadReader extends FieldReader {
  method = "";
  target = "";
  /** Whether `Connection` asks to keep an HTTP/1.0 connection. */
  keepsAlive = false;
  /** `Expect`, undefined without. */
  expect: string | undefined;
  /** The fault is a method that nobody knows, in a line that is whole otherwise. */
  unknownMethod = false;
  #connectionUpgrades = false;
  #namesProtocol = false;
  #hasQuery = false;

  constructor() {
    super(HEADER_BYTES_MAX);
  }

  /** The client would like another protocol. It does not get it, but may go on as if it had. */
  get asksToUpgrade(): boolean {
    return this.#connectionUpgrades && this.#namesProtocol;
  }

  override beginHead(): void {
    super.beginHead();
    this.keepsAlive = false;
    this.expect = undefined;
    this.unknownMethod = false;
    this.#connectionUpgrades = false;
    this.#namesProtocol = false;
  }

  protected override readStart(bytes: Buffer, start: number, end: number): number {
    // An empty line before a request is what some clients send behind the body of the one before.
    if (bytes[start] === CR) {
      if (start + 1 === end) return INCOMPLETE;
      return bytes[start + 1] === LF ? start + 2 : this.fail("a line does not end in CR LF");
    }
    let pos = start;
    while (pos < end && IS_TOKEN[bytes[pos] as number] === 1) pos += 1;
    const methodEnd = pos;
    if (methodEnd - start > METHOD_CHARS_MAX) return this.fail("the request line does not begin with a method");
    if (pos === end) return INCOMPLETE;
    if (bytes[pos] !== SP || methodEnd === start) return this.fail("the request line does not begin with a method");
    while (pos < end && bytes[pos] === SP) pos += 1;
    const targetStart = pos;
    let hasQuery = false;
    for (; pos < end && isVisible(bytes[pos] as number); pos += 1) if (bytes[pos] === QUESTION_MARK) hasQuery = true;
    this.#hasQuery = hasQuery;
    const targetEnd = pos;
    if (pos === end) return INCOMPLETE;
    if (bytes[pos] !== SP || targetEnd === targetStart) return this.fail("the request target is malformed");
    while (pos < end && bytes[pos] === SP) pos += 1;
    return this.#takeLine(bytes, start, methodEnd, targetStart, targetEnd, pos, end);
  }

  #takeLine(
    bytes: Buffer,
    start: number,
    methodEnd: number,
    targetStart: number,
    targetEnd: number,
    versionStart: number,
    end: number,
  ): number {
    const there = Math.min(HTTP_1.length, end - versionStart);
    for (let i = 0; i < there; i += 1)
      if (bytes[versionStart + i] !== HTTP_1[i]) return this.fail("the request line does not end in HTTP/1.1");
    if (end - versionStart < VERSION_LINE_BYTES) {
      const lf = bytes.indexOf(LF, versionStart);
      return lf >= 0 && lf < end ? this.fail("the request line does not end in HTTP/1.1") : INCOMPLETE;
    }
    const minor = (bytes[versionStart + HTTP_1.length] as number) - 48;
    if (minor !== 0 && minor !== 1) return this.fail("the HTTP version is neither 1.0 nor 1.1");
    const next = this.lineEnd(bytes, versionStart + HTTP_1.length + 1, end);
    if (next < 0) return next;
    this.method = lineTexts.read(bytes, start, methodEnd);
    if (!KNOWN_METHODS.has(this.method)) {
      this.unknownMethod = bytes[targetStart] === SLASH && /^[A-Za-z]+$/.test(this.method);
      return this.fail("the method is unknown");
    }
    this.target = this.#hasQuery
      ? bytes.toString("latin1", targetStart, targetEnd)
      : lineTexts.read(bytes, targetStart, targetEnd);
    this.minor = minor;
    this.wantsStart = false;
    return next;
  }

  protected override startFault(): undefined {
    return undefined; // `readStart` has looked at all that is there.
  }

  protected override takeSpecial(kind: number, value: string): void {
    switch (kind) {
      case CONNECTION:
        if (/keep-alive/i.test(value)) this.keepsAlive = true;
        if (/upgrade/i.test(value)) this.#connectionUpgrades = true;
        return;
      case UPGRADE:
        this.#namesProtocol = true;
        return;
      case EXPECT:
        this.expect ??= value;
        return;
      case TRANSFER_ENCODING:
        // Readers that do not cut them off see another word than "chunked".
        if (this.blanksBehind) this.fault = "Transfer-Encoding is not exactly chunked";
        return;
      default:
    }
  }
}

const isVisible = (byte: number): boolean => byte > 32 && byte < 127;
