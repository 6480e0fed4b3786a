import { FieldReader, HEAD_BYTES_MAX, HTTP_1, INCOMPLETE, SP, skipText } from "./field-reader.ts";
import { KEEP_ALIVE } from "./header-names.ts";

const LF = 10;

/** The head of an engine's answer. */
export class ResponseHeadReader extends FieldReader {
  status = 0;
  /** Seconds of `Keep-Alive: timeout=`, -1 without. */
  keepAliveS = -1;

  constructor() {
    super(HEAD_BYTES_MAX);
  }

  override beginHead(): void {
    super.beginHead();
    this.keepAliveS = -1;
  }

  protected override readStart(bytes: Buffer, start: number, end: number): number {
    // "HTTP/1.1 200" and its CR LF: 14 bytes at least. Waiting for them keeps the checks below free of ends.
    if (end - start < 14) {
      return bytes.indexOf(LF, start) !== -1 && bytes.indexOf(LF, start) < end
        ? this.fail("the status line is malformed")
        : INCOMPLETE;
    }
    for (let i = 0; i < HTTP_1.length; i += 1) {
      if (bytes[start + i] !== HTTP_1[i]) return this.fail("the answer does not begin with HTTP/1.");
    }
    const minor = digit(bytes, start + 7);
    const hundreds = digit(bytes, start + 9);
    const tens = digit(bytes, start + 10);
    const ones = digit(bytes, start + 11);
    if (minor < 0 || minor > 1) return this.fail("the version is neither HTTP/1.1 nor HTTP/1.0");
    if (bytes[start + 8] !== SP || hundreds < 1 || hundreds > 5 || tens < 0 || ones < 0)
      return this.fail("the status line is malformed");
    let pos = start + 12;
    if (bytes[pos] === SP) pos = skipText(bytes, pos, end);
    const next = this.lineEnd(bytes, pos, end);
    if (next < 0) return next;
    this.minor = minor;
    this.status = hundreds * 100 + tens * 10 + ones;
    this.wantsStart = false;
    return next;
  }

  protected override startFault(bytes: Buffer, start: number): string | undefined {
    return bytes[start] === HTTP_1[0] ? undefined : "the answer does not begin with HTTP/1.";
  }

  protected override takeSpecial(kind: number, value: string): void {
    if (kind !== KEEP_ALIVE) return;
    const seconds = /(?:^|[,;\s])timeout\s*=\s*"?([0-9]{1,9})/i.exec(value)?.[1];
    if (seconds !== undefined) this.keepAliveS = Number(seconds);
  }
}

function digit(bytes: Buffer, pos: number): number {
  const value = (bytes[pos] as number) - 48;
  return value >= 0 && value <= 9 ? value : -1;
}
