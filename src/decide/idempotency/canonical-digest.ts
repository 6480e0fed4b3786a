/**
 * A digest of a JSON object that is the same for the same object with its members in another order or with other white space
 * between them, and another one for anything else: numbers, escapes and repeated members count as they are spelled, because
 * engines read `1` and `1.0`, or two members of one name, each in its own way.
 *
 * The document is never built. Each inner object is replaced by its digest as soon as it ends, so that sorting its members
 * moves a few bytes; long strings and long lists are replaced in the same way, so that what is held stays small.
 *
 * Invariants:
 *   C1. The digest depends on the bytes alone, not on where the chunks were cut.
 *   C2. At most `HELD_BYTES_MAX` are held; an object that needs more, or has more members than `MEMBERS_MAX`, has no digest.
 *   C3. The bytes are taken to be valid JSON (see json-scan.ts). Others give some digest or none, and never throw.
 */
export interface Hasher {
  update(bytes: Uint8Array): unknown;
  digest(): Buffer;
}
export type NewHasher = () => Hasher;

const LONG_STRING_BYTES = 4_096;
const LONG_LIST_BYTES = 65_536;
const HELD_BYTES_MAX = 8 * 1024 * 1024;
export const MEMBERS_MAX = 10_000;
const DIGEST_BYTES = 33;

// Marks before a digest. Outside strings no JSON holds such a byte, so nothing else can look like one.
const OF_STRING = 1;
const OF_OBJECT = 2;
const OF_LIST = 3;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;

/** Bytes outside strings that are neither white space nor structure: numbers and literals. */
const PLAIN = new Uint8Array(256).fill(1);
for (const byte of [0x20, 0x09, 0x0a, 0x0d, QUOTE, COMMA, COLON, OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST])
  PLAIN[byte] = 0;

interface Container {
  readonly isObject: boolean;
  /** Where its bytes begin among those held. */
  readonly start: number;
  /** Of an object: where each member begins, and where its key ends. */
  readonly members: number[];
  readonly keyEnds: number[];
  /** Of a long list: its beginning. */
  hasher: Hasher | undefined;
}

export class CanonicalDigest {
  readonly #newHasher: NewHasher;
  readonly #containers: Container[] = [];
  #held = Buffer.allocUnsafe(1_024);
  #top = 0;
  #inString = false;
  #escaped = false;
  #stringStart = 0;
  #longString: Hasher | undefined;
  #keyComes = false;
  #failed = false;
  #result: Buffer | undefined;

  constructor(newHasher: NewHasher) {
    this.#newHasher = newHasher;
  }

  /** The bytes are not needed after the call. */
  push(chunk: Buffer): void {
    let pos = 0;
    while (pos < chunk.length && !this.#failed) {
      if (this.#inString) pos = this.#string(chunk, pos);
      else if (PLAIN[chunk[pos]!] === 1) {
        const from = pos;
        while (pos < chunk.length && PLAIN[chunk[pos]!] === 1) pos += 1;
        this.#hold(chunk, from, pos);
      } else this.#structure(chunk[pos++]!);
    }
  }

  /** Null: the document can't be brought into one order within the limits. */
  end(): Buffer | null {
    return this.#failed || this.#containers.length > 0 ? null : (this.#result ?? null);
  }

  #structure(byte: number): void {
    const container = this.#containers.at(-1);
    switch (byte) {
      case QUOTE:
        this.#beginString(container);
        return;
      case OPEN_OBJECT:
      case OPEN_LIST:
        this.#open(byte === OPEN_OBJECT);
        return;
      case CLOSE_OBJECT:
        this.#closeObject(container);
        return;
      case CLOSE_LIST:
        this.#closeList(container);
        return;
      case COLON:
        container?.keyEnds.push(this.#top);
        return;
      case COMMA:
        if (container?.isObject === true) this.#keyComes = true;
        else this.#nextItem(container);
        return;
      default: // White space.
    }
  }

  #beginString(container: Container | undefined): void {
    if (this.#keyComes) {
      this.#keyComes = false;
      if (container !== undefined && container.members.push(this.#top) > MEMBERS_MAX) this.#failed = true;
    }
    this.#inString = true;
    this.#stringStart = this.#top;
    this.#holdByte(QUOTE);
  }

  /** From inside a string to behind its closing quote, or to the end of the chunk. */
  #string(chunk: Buffer, from: number): number {
    let pos = from;
    if (this.#escaped) {
      this.#escaped = false;
      pos += 1;
    }
    for (;;) {
      const quote = chunk.indexOf(QUOTE, pos);
      const stop = quote < 0 ? chunk.length : quote;
      const slash = chunk.subarray(pos, stop).indexOf(BACKSLASH);
      if (slash >= 0) {
        pos += slash + 2;
        if (pos <= chunk.length) continue;
        this.#escaped = true;
      }
      const end = slash >= 0 || quote < 0 ? chunk.length : quote + 1;
      this.#holdText(chunk, from, end);
      if (slash < 0 && quote >= 0) this.#endString();
      return end;
    }
  }

  #holdText(chunk: Buffer, from: number, to: number): void {
    const held = this.#top - this.#stringStart;
    if (this.#longString === undefined) {
      if (held + to - from <= LONG_STRING_BYTES) return this.#hold(chunk, from, to);
      this.#longString = this.#newHasher();
      this.#longString.update(this.#held.subarray(this.#stringStart, this.#top));
      this.#top = this.#stringStart;
    }
    this.#longString.update(chunk.subarray(from, to));
  }

  #endString(): void {
    this.#inString = false;
    const hasher = this.#longString;
    if (hasher === undefined) return;
    this.#longString = undefined;
    this.#holdDigest(OF_STRING, hasher.digest());
  }

  #open(isObject: boolean): void {
    this.#containers.push({ isObject, start: this.#top, members: [], keyEnds: [], hasher: undefined });
    this.#keyComes = isObject;
    if (!isObject) this.#holdByte(OPEN_LIST);
  }

  #closeObject(container: Container | undefined): void {
    this.#keyComes = false;
    if (container?.isObject !== true || container.members.length !== container.keyEnds.length) {
      this.#failed = true;
      return;
    }
    const { members, keyEnds, start } = container;
    const held = this.#held;
    const order = Array.from(members, (_, index) => index);
    // Equal keys keep their order: the last of them counts for some readers, the first for others.
    order.sort((a, b) => held.compare(held, members[b], keyEnds[b], members[a], keyEnds[a]));
    const hasher = this.#newHasher();
    for (const index of order) hasher.update(held.subarray(members[index], members[index + 1] ?? this.#top));
    this.#replace(start, OF_OBJECT, hasher.digest());
  }

  #nextItem(list: Container | undefined): void {
    this.#holdByte(COMMA);
    if (list === undefined || this.#top - list.start <= LONG_LIST_BYTES) return;
    list.hasher ??= this.#newHasher();
    list.hasher.update(this.#held.subarray(list.start, this.#top));
    this.#top = list.start;
  }

  #closeList(list: Container | undefined): void {
    if (list === undefined || list.isObject) {
      this.#failed = true;
      return;
    }
    this.#holdByte(CLOSE_LIST);
    if (list.hasher === undefined) {
      this.#containers.pop();
      return;
    }
    list.hasher.update(this.#held.subarray(list.start, this.#top));
    this.#replace(list.start, OF_LIST, list.hasher.digest());
  }

  #replace(start: number, mark: number, digest: Buffer): void {
    this.#containers.pop();
    this.#top = start;
    if (this.#containers.length === 0) this.#result = digest;
    else this.#holdDigest(mark, digest);
  }

  #holdDigest(mark: number, digest: Buffer): void {
    this.#room(DIGEST_BYTES);
    this.#held[this.#top] = mark;
    digest.copy(this.#held, this.#top + 1);
    this.#top += DIGEST_BYTES;
  }

  #holdByte(byte: number): void {
    this.#room(1);
    this.#held[this.#top++] = byte;
  }

  #hold(chunk: Buffer, from: number, to: number): void {
    this.#room(to - from);
    chunk.copy(this.#held, this.#top, from, to);
    this.#top += to - from;
  }

  #room(bytes: number): void {
    const needed = this.#top + bytes;
    if (needed <= this.#held.length) return;
    if (needed > HELD_BYTES_MAX) {
      this.#failed = true;
      this.#top = 0;
      for (const container of this.#containers) container.members.length = 0;
      if (bytes <= this.#held.length) return;
    }
    const larger = Buffer.allocUnsafe(Math.max(needed, this.#held.length * 2));
    this.#held.copy(larger, 0, 0, this.#top);
    this.#held = larger;
  }
}
