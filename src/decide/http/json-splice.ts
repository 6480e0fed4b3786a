import type { ScannedObject } from "./json-scan.ts";

export type { ScannedObject };

/** The bytes [start, end) of a body. */
export interface BodySpan {
  readonly start: number;
  readonly end: number;
}

/** What stands in their place; with `start` equal to `end` the text is put in. */
export interface BodyEdit extends BodySpan {
  readonly text: string;
}

export interface SplicedBody {
  readonly chunks: Buffer[];
  readonly bytes: number;
}

/**
 * The body with the edits made; chunks are cut, never joined, copied or written anew, so every other byte stays as the
 * client sent it. Edits may come in any order; those at one place keep theirs. Throws when they overlap or lie outside.
 */
export function spliceBody(chunks: readonly Buffer[], edits: readonly BodyEdit[]): SplicedBody {
  const out: Buffer[] = [];
  let bytes = 0;
  let index = 0;
  let chunkStart = 0;
  const take = (part: Buffer): void => {
    if (part.length === 0) return;
    out.push(part);
    bytes += part.length;
  };
  /** Walks to the absolute offset `to`; passes on what lies before it, or drops it. */
  const walk = (from: number, to: number, keep: boolean): void => {
    let at = from;
    while (index < chunks.length) {
      const chunk = chunks[index]!;
      const end = Math.min(to, chunkStart + chunk.length);
      if (keep)
        take(
          at === chunkStart && end === chunkStart + chunk.length
            ? chunk
            : chunk.subarray(at - chunkStart, end - chunkStart),
        );
      at = end;
      if (at < chunkStart + chunk.length) break;
      chunkStart += chunk.length;
      index++;
    }
    if (at < to && to !== Number.POSITIVE_INFINITY)
      throw new Error(`edit at byte ${to} lies behind the body's ${at} bytes`);
  };

  let at = 0;
  for (const edit of edits.toSorted((a, b) => a.start - b.start)) {
    if (edit.start < at || edit.end < edit.start)
      throw new Error(`edit of bytes ${edit.start} to ${edit.end} overlaps another`);
    walk(at, edit.start, true);
    take(Buffer.from(edit.text));
    walk(edit.start, edit.end, false);
    at = edit.end;
  }
  walk(at, Number.POSITIVE_INFINITY, true);
  return { chunks: out, bytes };
}

/**
 * The edits that give the object these members (`valueText` is JSON): a value is replaced where the scan found the key,
 * else the member is put in behind the opening brace. The scan must have been asked for every key named here, as a second
 * member of one name would be read in different ways. One call makes all edits of a body: of two, each would count the
 * object's commas without the other's members.
 */
export function setMembers(
  scan: ScannedObject,
  members: readonly { readonly key: string; readonly valueText: string }[],
): BodyEdit[] {
  const edits: BodyEdit[] = [];
  const added: string[] = [];
  for (const { key, valueText } of members) {
    const field = scan.fields.get(key);
    if (field === undefined) added.push(`${JSON.stringify(key)}:${valueText}`);
    else edits.push({ start: field.start, end: field.end, text: valueText });
  }
  if (added.length > 0) {
    const offset = scan.firstMemberOffset;
    edits.push({ start: offset, end: offset, text: added.join(",") + (scan.empty ? "" : ",") });
  }
  return edits;
}

/** The first `max` bytes of a part of a body; copied only where it lies in several pieces. */
export function bytesOf(chunks: readonly Buffer[], { start, end }: BodySpan, max = Infinity): Buffer {
  const stop = Math.min(end, start + max);
  const parts: Buffer[] = [];
  let base = 0;
  for (const chunk of chunks) {
    if (base + chunk.length > start && base < stop)
      parts.push(chunk.subarray(Math.max(0, start - base), Math.min(chunk.length, stop - base)));
    base += chunk.length;
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
}
