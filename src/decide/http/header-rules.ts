import { isRequestClass, type RequestClass } from "../../contract/request-class.ts";

export type HeaderCheck =
  | { readonly kind: "ok" }
  /** `why` is for the client. */
  | { readonly kind: "bad"; readonly code: "BAD_REQUEST" | "HEADERS_TOO_LARGE"; readonly why: string };

export const HEADERS_MAX = 100;
const OK: HeaderCheck = { kind: "ok" };
const bad = (why: string): HeaderCheck => ({ kind: "bad", code: "BAD_REQUEST", why });

/** Headers of which a second one would be read differently by different readers, or would name another caller. */
const ONCE = [
  "host",
  "content-length",
  "transfer-encoding",
  "authorization",
  "content-type",
  "x-api-key",
  "api-key",
  "expect",
  "x-request-id",
  "x-request-timeout-ms",
  "x-yardmaster-class",
  "idempotency-key",
  "ocp-apim-subscription-key",
] as const;
const HOST = 1 << ONCE.indexOf("host");
const CONTENT_LENGTH = 1 << ONCE.indexOf("content-length");
const TRANSFER_ENCODING = 1 << ONCE.indexOf("transfer-encoding");
/** Bits of `ONCE` by the name's length: most names are passed over by their length alone. */
const BITS_BY_LENGTH: readonly (readonly number[] | undefined)[] = Array.from({ length: 26 }, (_, length) => {
  const bits = ONCE.flatMap((name, index) => (name.length === length ? [index] : []));
  return bits.length === 0 ? undefined : bits;
});

/** Bytes above 0x7e would be text of an unknown encoding in logs and at the engine, controls would end a line there. */
const VALUE_FORBIDDEN = /[^\t\x20-\x7e]/;
const HOST_VALUE = /^(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$/;
const LENGTH_VALUE = /^[0-9]{1,15}$/;
const CHUNKED_VALUE = /^chunked$/i;

/**
 * Judges a request's headers as they came (`rawHeaders`: name, value, …): what could be framed, attributed or logged in
 * two ways is refused. Runs for each request, so nothing is made on the way of a good one.
 */
export function checkRequestHeaders(raw: readonly string[], httpVersion: string): HeaderCheck {
  if (raw.length > 2 * HEADERS_MAX)
    return { kind: "bad", code: "HEADERS_TOO_LARGE", why: `more than ${HEADERS_MAX} headers` };
  let seen = 0;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!;
    const value = raw[i + 1]!;
    // Some servers turn `_` into `-`, so that Content_Length becomes a second Content-Length there.
    if (name.includes("_")) return bad("a header name with an underscore");
    if (VALUE_FORBIDDEN.test(value)) return bad(`a character in the header "${name}" that is not visible ASCII`);
    const bit = onceBit(name);
    if (bit === 0) continue;
    if ((seen & bit) !== 0) return bad(`the header "${name}" comes twice`);
    seen |= bit;
    if (bit === CONTENT_LENGTH && !LENGTH_VALUE.test(value)) return bad("Content-Length is not a number");
    if (bit === TRANSFER_ENCODING && !CHUNKED_VALUE.test(value))
      return bad('Transfer-Encoding is not exactly "chunked"');
    if (bit === HOST && !HOST_VALUE.test(value)) return bad("Host is not a host and port");
  }
  if ((seen & CONTENT_LENGTH) !== 0 && (seen & TRANSFER_ENCODING) !== 0)
    return bad("both Content-Length and Transfer-Encoding");
  if (httpVersion === "1.1") return (seen & HOST) === 0 ? bad("no Host header") : OK;
  if (httpVersion !== "1.0") return bad("the HTTP version is neither 1.0 nor 1.1");
  return (seen & TRANSFER_ENCODING) === 0 ? OK : bad("Transfer-Encoding in HTTP/1.0");
}

/** The name's bit in `ONCE`, or 0. */
function onceBit(name: string): number {
  const candidates = BITS_BY_LENGTH[name.length];
  if (candidates === undefined) return 0;
  for (const index of candidates) if (sameName(name, ONCE[index]!)) return 1 << index;
  return 0;
}

/** `lower` is in lower case and of the same length; header names are ASCII. */
function sameName(name: string, lower: string): boolean {
  for (let i = 0; i < lower.length; i++) {
    const code = name.charCodeAt(i);
    if ((code >= 0x41 && code <= 0x5a ? code | 0x20 : code) !== lower.charCodeAt(i)) return false;
  }
  return true;
}

/** The client's own request id when it is short and safe to print anywhere, else `undefined`. */
export function saneRequestId(value: string | undefined): string | undefined {
  return value !== undefined && /^[A-Za-z0-9._:-]{1,128}$/.test(value) ? value : undefined;
}

export type TimeoutHeader =
  | { readonly kind: "absent" }
  | { readonly kind: "ms"; readonly ms: number }
  | { readonly kind: "bad" };

/** `x-request-timeout-ms`: a whole number of milliseconds, at least 1. */
export function parseTimeoutMs(value: string | undefined): TimeoutHeader {
  if (value === undefined) return { kind: "absent" };
  return /^0{0,9}[1-9][0-9]{0,9}$/.test(value) ? { kind: "ms", ms: Number(value) } : { kind: "bad" };
}

export type ClassHeader =
  | { readonly kind: "absent" }
  | { readonly kind: "class"; readonly class: RequestClass }
  | { readonly kind: "unknown" };

/** `x-yardmaster-class`. */
export function parseClass(value: string | undefined): ClassHeader {
  if (value === undefined) return { kind: "absent" };
  return isRequestClass(value) ? { kind: "class", class: value } : { kind: "unknown" };
}
