/**
 * One file on its way from a server: what to ask for, and what an answer means. The bytes that are there already are used
 * again only when the server proves that they are of the same file.
 *
 * Invariants:
 *   T1. Bytes of two versions of a file never meet: what is there is gone on with by `If-Range`, or where its digest is checked, and
 *       never with a file of another length, whatever its tag.
 *       An answer that brings more than it says it does shows that it can't be told what its bytes are: none of them is kept.
 *   T2. A file is whole only when it has as many bytes as were told, by the listing, by the server, or by its digest.
 *       Where nothing else is known of it, a web page and an empty answer are no file.
 *   T3. A try that brings nothing is followed by a pause that grows; nothing is tried for ever but what may still come.
 */
export interface FileWant {
  /** Null: only the server's answer tells. */
  readonly bytes: number | null;
  /** Hex; null: not known. */
  readonly sha256: string | null;
}

export interface Transfer {
  readonly want: FileWant;
  /** Bytes on the disk. */
  readonly have: number;
  /** A strong one, of the answer that the bytes are from. */
  readonly etag: string | null;
  /** How long that answer said the whole file is; null: it did not, or there is none. */
  readonly told: number | null;
}

export interface AnswerHead {
  readonly status: number;
  /** By lower-case name. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

export type HeadVerdict =
  /**
   * The body goes to this place in the file; what is behind it is cut off first. `end`: where the body ends, as this answer tells.
   * `total`: of the whole file.
   */
  | {
      readonly kind: "take";
      readonly from: number;
      readonly end: number | null;
      readonly total: number | null;
      readonly etag: string | null;
    }
  /** Nothing is missing. */
  | { readonly kind: "whole" }
  /** What is there is of no use. */
  | { readonly kind: "anew"; readonly why: string }
  | { readonly kind: "later"; readonly afterMs: number | null; readonly why: string }
  /** It will be no other next time. */
  | { readonly kind: "refused"; readonly why: string };

/** Headers of the next request; null when all bytes are there. */
export function askFor({ want, have, etag }: Transfer): Readonly<Record<string, string>> | null {
  const headers = { "accept-encoding": "identity" };
  if (have === 0) return headers;
  if (have === want.bytes) return null;
  // Without either nothing would show that the rest is of the same file.
  if (etag === null && want.sha256 === null) return headers;
  const range = { ...headers, range: `bytes=${have}-` };
  return etag === null ? range : { ...range, "if-range": etag };
}

export function judgeHead(transfer: Transfer, { status, headers }: AnswerHead): HeadVerdict {
  const asked = askFor(transfer)?.["range"] !== undefined;
  const encoding = text(headers["content-encoding"]);
  if (status === 200 || status === 206) {
    if (encoding !== null && encoding !== "identity")
      return refused(`the server sends the file as ${encoding.slice(0, 32)}`);
    const etag = strongTag(headers["etag"]);
    return status === 200 ? takeWhole(transfer, headers, etag) : takeRest(transfer, headers, etag, asked);
  }
  if (status === 416) return judgeNoRange(transfer, headers);
  if (status === 401 || status === 403)
    return refused(`the server asks for a credential that it accepts (status ${status})`);
  if (status === 408 || status === 425 || status === 429 || status >= 500)
    return { kind: "later", afterMs: retryAfterMs(headers["retry-after"]), why: `the server answered ${status}` };
  return refused(`the server answered ${status}`);
}

type Headers = AnswerHead["headers"];
const refused = (why: string): HeadVerdict => ({ kind: "refused", why });

function takeWhole({ want }: Transfer, headers: Headers, etag: string | null): HeadVerdict {
  const isKnown = want.bytes !== null || want.sha256 !== null;
  if (!isKnown && isPage(headers))
    return refused("the server answers with a web page; give the file's sha256 if it is right");
  const total = wholeNumber(headers["content-length"]) ?? want.bytes;
  if (want.bytes !== null && total !== want.bytes)
    return refused(`the server's file has ${total} bytes; ${want.bytes} were told before`);
  if (total === null && want.sha256 === null) return refused("the server does not tell how long the file is");
  if (total === 0 && !isKnown) return refused("the server's file is empty");
  return { kind: "take", from: 0, end: total, total, etag };
}

/** Of a portal, a log-in or an error that calls itself a success: kept as a file it would be given to engines from then on. */
const isPage = (headers: Headers): boolean =>
  /^\s*(text\/html|application\/xhtml\+xml)\b/i.test(text(headers["content-type"]) ?? "");

function takeRest(transfer: Transfer, headers: Headers, etag: string | null, asked: boolean): HeadVerdict {
  const { want, have, told } = transfer;
  if (!asked) return refused("the server answers with a part that was not asked for");
  const match = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15}|\*)$/.exec(text(headers["content-range"]) ?? "");
  if (match === null) return anew("the server does not tell which part of the file it answers with");
  const known = want.bytes ?? told;
  const total = match[3] === "*" ? known : Number(match[3]);
  if (total === null) return anew("the server does not tell how long the file is");
  const [first, last] = [Number(match[1]), Number(match[2])];
  if (first !== have || last >= total || last < first)
    return anew("the server answered with another part than the one that was asked for");
  if (known !== null && total !== known) return anew(`the file has ${total} bytes now, and ${known} were told before`);
  if (transfer.etag !== null && etag !== null && etag !== transfer.etag) return anew("the file has changed");
  return { kind: "take", from: have, end: last + 1, total, etag: etag ?? transfer.etag };
}

const anew = (why: string): HeadVerdict => ({ kind: "anew", why });

function judgeNoRange({ want, have, told }: Transfer, headers: Headers): HeadVerdict {
  const total = Number(/^bytes \*\/(\d{1,15})$/.exec(text(headers["content-range"]) ?? "")?.[1] ?? Number.NaN);
  const isAll = total === have && (want.bytes ?? told ?? have) === have;
  return isAll ? { kind: "whole" } : anew("the server has no such part of the file");
}

/** What the end of a body leaves: `whole`, or a reason to go on. `total` is what the head told. */
export function judgeEnd(have: number, total: number | null, isClean: boolean): "whole" | "rest" | "anew" {
  if (total === null) return isClean ? "whole" : "anew";
  if (have === total) return "whole";
  return have < total ? "rest" : "anew";
}

/** Starts over that led to nothing before a file is given up: a server that hands out another version each time. */
export const ANEW_MAX = 5;
const PAUSE_MS_MIN = 1_000;
const PAUSE_MS_MAX = 60_000;
const RETRY_AFTER_MS_MAX = 300_000;

/** `fails`: tries in a row that brought no byte. `chance`: 0 to 1. */
export function pauseMs(fails: number, afterMs: number | null, chance: number): number {
  const grown = Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** Math.min(fails, 10));
  return Math.max(grown * (0.5 + chance / 2), Math.min(afterMs ?? 0, RETRY_AFTER_MS_MAX));
}

const text = (value: string | readonly string[] | undefined): string | null =>
  typeof value === "string" ? value : (value?.[0] ?? null);

function wholeNumber(value: string | readonly string[] | undefined): number | null {
  const found = text(value);
  return found !== null && /^\d{1,15}$/.test(found) ? Number(found) : null;
}

/** A weak tag does not say that the bytes are the same. */
function strongTag(value: string | readonly string[] | undefined): string | null {
  const found = text(value);
  return found !== null && /^"[\x21\x23-\x7e]{1,512}"$/.test(found) ? found : null;
}

function retryAfterMs(value: string | readonly string[] | undefined): number | null {
  const seconds = wholeNumber(value);
  return seconds === null ? null : seconds * 1_000;
}
