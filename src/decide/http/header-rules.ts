import { isRequestClass, type RequestClass } from "../../contract/request-class.ts";
import { isAsciiFieldText } from "./field-text.ts";
import { CONTENT_LENGTH, headerTraits, HOST, TRANSFER_ENCODING } from "./header-traits.ts";

export type HeaderCheck =
  | { readonly kind: "ok" }
  /** `why` is for the client. */
  | { readonly kind: "bad"; readonly code: "BAD_REQUEST" | "HEADERS_TOO_LARGE"; readonly why: string };

export const HEADERS_MAX = 100;
const OK: HeaderCheck = { kind: "ok" };
const bad = (why: string): HeaderCheck => ({ kind: "bad", code: "BAD_REQUEST", why });

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
    const { hasUnderscore, once: bit } = headerTraits(name);
    if (hasUnderscore) return bad("a header name with an underscore");
    if (!isAsciiFieldText(value)) return bad(`a character in the header "${name}" that is not visible ASCII`);
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
