const SLOTS = 512;
const CHARS_MAX = 64;

/**
 * Strings for short texts that come again with each message: looking one up costs less than making it. Of fixed size, where a
 * newcomer takes the place of the one before, so nothing that is sent can make it grow. Not for secrets: what was in it last stays.
 */
export class TextTable {
  readonly #slots: (string | undefined)[] = Array.from({ length: SLOTS }, () => undefined);

  /** The bytes in `bytes[start, end)` as Latin-1. */
  read(bytes: Buffer, start: number, end: number): string {
    if (end - start > CHARS_MAX) return bytes.toString("latin1", start, end);
    let hash = 0;
    for (let pos = start; pos < end; pos += 1) hash = (Math.imul(hash, 31) + (bytes[pos] as number)) | 0;
    const slot = hash & (SLOTS - 1);
    const known = this.#slots[slot];
    if (known !== undefined && isTextOf(known, bytes, start, end)) return known;
    return (this.#slots[slot] = bytes.toString("latin1", start, end));
  }
}

export function isTextOf(text: string, bytes: Buffer, start: number, end: number): boolean {
  if (text.length !== end - start) return false;
  for (let i = 0; i < text.length; i += 1) {
    if (text.charCodeAt(i) !== bytes[start + i]) return false;
  }
  return true;
}
