/** Header fields that belong to one connection, in lower case. */
const HOP_BY_HOP = [
  "connection",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "proxy-connection",
  "proxy-authorization",
  "proxy-authenticate",
  "proxy-authentication-info",
];
const REQUEST_STAYS = new Set([
  ...HOP_BY_HOP,
  "host",
  "content-length",
  "expect",
  "authorization",
  "cookie",
  "cookie2",
  "x-api-key",
  "api-key",
  "ocp-apim-subscription-key",
  "forwarded",
  "x-real-ip",
  "x-request-id",
  "x-request-timeout-ms",
]);
const ENGINE_TAKES = new Set([
  "accept",
  "accept-encoding",
  "accept-language",
  "content-type",
  "content-encoding",
  "user-agent",
  "via",
  "anthropic-version",
  "anthropic-beta",
  "openai-beta",
  "traceparent",
  "tracestate",
  "x-session-id",
]);
const RESPONSE_STAYS = new Set([...HOP_BY_HOP, "server", "date", "via", "x-powered-by", "x-request-id"]);
const ENGINE_RESPONSE_STAYS = new Set([
  "set-cookie",
  "set-cookie2",
  "location",
  "content-location",
  "alt-svc",
  "strict-transport-security",
]);
const TRAILER_NEVER = new Set([
  "content-length",
  "content-type",
  "content-encoding",
  "content-range",
  "cache-control",
  "set-cookie",
  "location",
  "content-location",
  "authorization",
  "www-authenticate",
  "host",
  "expires",
  "vary",
]);
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
];
/** Bits of `HeaderTraits.once`. */
export const HOST = 1 << ONCE.indexOf("host");
export const CONTENT_LENGTH = 1 << ONCE.indexOf("content-length");
export const TRANSFER_ENCODING = 1 << ONCE.indexOf("transfer-encoding");

/** What a header's name alone says of its way through the gateway. */
export interface HeaderTraits {
  readonly lower: string;
  /** A bit of its own for each name that may come once in a request; 0 for all others. */
  readonly once: number;
  /** Some servers turn `_` into `-`. */
  readonly hasUnderscore: boolean;
  /** Characters that a name may have and no others. */
  readonly isToken: boolean;
  /** Of a request: for this hop, or not for an engine's eyes. */
  readonly requestStays: boolean;
  /** Of a request: an inference engine has a use for it. */
  readonly engineTakes: boolean;
  /** Of an answer: for this hop, or the gateway speaks for itself there. */
  readonly responseStays: boolean;
  /** Of an answer: what an inference engine has no business to say. */
  readonly engineResponseStays: boolean;
  /** Framing and routing never come from a trailer. */
  readonly trailerNever: boolean;
}

// Both sides send the same few names with every message, so what a name says is found out once for each spelling. Names that are
// made up can neither make the table grow nor keep the usual ones out: a full one is begun anew.
const KNOWN_MAX = 512;
const KNOWN_CHARS_MAX = 64;
const known = new Map<string, HeaderTraits>();

export function headerTraits(name: string): HeaderTraits {
  const found = known.get(name);
  if (found !== undefined) return found;
  const traits = describe(name);
  if (known.size >= KNOWN_MAX) known.clear();
  if (name.length <= KNOWN_CHARS_MAX) known.set(name, traits);
  return traits;
}

function describe(name: string): HeaderTraits {
  const lower = name.toLowerCase();
  const ours = lower.startsWith("x-yardmaster-");
  const ofProxies = lower.startsWith("proxy-");
  const once = ONCE.indexOf(lower);
  return {
    lower,
    once: once < 0 ? 0 : 1 << once,
    hasUnderscore: lower.includes("_"),
    isToken: /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name),
    requestStays: REQUEST_STAYS.has(lower) || lower.startsWith("x-forwarded-") || ours || ofProxies,
    engineTakes: ENGINE_TAKES.has(lower) || lower.startsWith("x-stainless-"),
    responseStays: RESPONSE_STAYS.has(lower) || ours || ofProxies,
    engineResponseStays: ENGINE_RESPONSE_STAYS.has(lower) || lower.startsWith("access-control-"),
    trailerNever: TRAILER_NEVER.has(lower),
  };
}
