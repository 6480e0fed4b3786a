const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const DATA = [0x64, 0x61, 0x74, 0x61] as const;
const BOM = [0xef, 0xbb, 0xbf] as const;

/**
 * Finds where events end in bytes that are cut anywhere. Lines end with LF, CRLF or CR, mixed as they come, and a byte
 * order mark may stand at the start of the stream. Holds no bytes.
 *
 * A stretch ends with the blank line of an event, or with a comment or a blank line that stands between events. The byte order
 * mark is a stretch of its own, so no reader finds it in front of the first event's name or in the bytes it may remove.
 */
export class EventCursor {
  /** Whether the stretch that `next` ended last holds a `data` line, which makes it an event. */
  endedWithData = false;
  #lineStart = true;
  #skipLf = false;
  #fields = false;
  #data = false;
  #comment = false;
  /** Letters of "data" matched at the start of this line; 4 = a whole match so far, -1 = another line. */
  #match = 0;
  #bom = 0;

  /** Whether nothing of an event has been seen since the last end. */
  get atBoundary(): boolean {
    return this.#lineStart && !this.#fields && (this.#bom === 0 || this.#bom === BOM.length);
  }

  /** Whether the next byte, if it is LF, belongs to a CR that came before. */
  get awaitsLf(): boolean {
    return this.#skipLf;
  }

  /** Whether bytes have been seen: a byte order mark can't come any more. */
  get started(): boolean {
    return this.#bom !== 0;
  }

  /** For a caller that has taken bytes itself, up to the end of an event. */
  passOver(): void {
    this.#bom = BOM.length;
    this.#skipLf = false;
  }

  /** The offset behind the first stretch that ends in [from, to), or -1. Call again from there. */
  next(bytes: Buffer, from: number, to: number): number {
    let at = from;
    if (this.#bom < BOM.length) {
      const matched = this.#bom;
      at = this.#takeBom(bytes, at, to);
      if (matched + (at - from) === BOM.length) return this.#ended(false, at);
    }
    while (at < to) {
      const byte = bytes[at]!;
      if (byte === LF && this.#skipLf) {
        this.#skipLf = false;
        at += 1;
        if (this.atBoundary) return this.#ended(false, at);
        continue;
      }
      this.#skipLf = false;
      if (byte === LF || byte === CR) {
        at += 1;
        const ended = this.#lineEnds(byte, bytes, at, to);
        if (ended !== -1) return ended;
      } else {
        at = this.#lineByte(byte, bytes, at, to);
      }
    }
    return -1;
  }

  #lineEnds(byte: number, bytes: Buffer, after: number, to: number): number {
    let at = after;
    const blank = this.#lineStart;
    if (!blank && this.#match === DATA.length) this.#data = true;
    this.#lineStart = true;
    this.#skipLf = byte === CR;
    if (!blank && this.#fields) return -1;
    if (this.#skipLf && at < to && bytes[at] === LF) {
      this.#skipLf = false;
      at += 1;
    }
    return this.#ended(this.#data, at);
  }

  #ended(withData: boolean, at: number): number {
    this.endedWithData = withData;
    this.#fields = false;
    this.#data = false;
    return at;
  }

  /** One byte of a line, or all up to the line's end once its name is known. */
  #lineByte(byte: number, bytes: Buffer, from: number, to: number): number {
    if (this.#lineStart) {
      this.#lineStart = false;
      this.#comment = byte === COLON;
      this.#match = 0;
      if (!this.#comment) this.#fields = true;
    }
    if (!this.#comment && this.#match >= 0) {
      if (this.#match < DATA.length) this.#match = byte === DATA[this.#match] ? this.#match + 1 : -1;
      else {
        if (byte === COLON) this.#data = true;
        this.#match = -1;
      }
      return from + 1;
    }
    let at = from + 1;
    while (at < to && bytes[at] !== LF && bytes[at] !== CR) at += 1;
    return at;
  }

  #takeBom(bytes: Buffer, from: number, to: number): number {
    let at = from;
    while (at < to && this.#bom < BOM.length) {
      if (bytes[at] === BOM[this.#bom]) {
        this.#bom += 1;
        at += 1;
      } else {
        // A partial mark is no mark: its bytes begin a line with an unknown name.
        if (this.#bom > 0) this.#lineByte(BOM[0], bytes, at - 1, at);
        this.#bom = BOM.length;
      }
    }
    return at;
  }
}
