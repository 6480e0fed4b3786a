/**
 * Which headers go from the client to an engine and back. Header lists are flat (name, value, …), as `rawHeaders` gives
 * them, and keep their order and their repeats.
 */

export interface RequestForwarding {
  /** "engine": only headers that an inference engine has a use for. "http": everything but what must stay here. */
  readonly mode: "engine" | "http";
  /** Further names for "engine", in lower case. What must stay here stays even when it is named. */
  readonly extra: ReadonlySet<string>;
  /** The endpoint's host and port. */
  readonly host: string;
  readonly requestId: string;
  /** Whole value of `Authorization` for the engine: its own key, never the client's. */
  readonly engineAuth: string | undefined;
  /** Our entry of `Via`, behind those that came: the HTTP version of the client's request and a name, `1.1 yardmaster`. */
  readonly via: string;
  /** For `X-Forwarded-*`; what the client claims there is dropped. Null: none is sent. */
  readonly forwarded: { readonly for: string; readonly proto: string; readonly host: string | undefined } | null;
  /** Absent: the client's own is passed on. */
  readonly traceparent: string | undefined;
  /** The answer is read on its way past, so the engine is not offered any encoding. */
  readonly plainAnswer?: boolean;
  /** What is left of the request's own deadline; the engine is told so that it need not work longer. */
  readonly remainingMs?: number | undefined;
}

export interface ResponseForwarding {
  readonly mode: "engine" | "http";
  /** Whether the body goes on byte for byte with its length. */
  readonly keepContentLength: boolean;
}

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

const staysHere = (name: string): boolean =>
  REQUEST_STAYS.has(name) ||
  name.startsWith("x-forwarded-") ||
  name.startsWith("x-yardmaster-") ||
  name.startsWith("proxy-");
const engineTakes = (name: string, extra: ReadonlySet<string>): boolean =>
  ENGINE_TAKES.has(name) || name.startsWith("x-stainless-") || extra.has(name);

/** The client's headers as the engine gets them, complete but for the body's length. */
export function forwardRequestHeaders(raw: readonly string[], options: RequestForwarding): string[] {
  const named = namedByConnection(raw);
  const out: string[] = ["host", options.host];
  let offersEncoding = false;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    if (options.mode === "engine" && !engineTakes(name, options.extra)) continue;
    if (staysHere(name) || named?.has(name) === true || (name === "traceparent" && options.traceparent !== undefined))
      continue;
    if (name === "accept-encoding") {
      if (options.plainAnswer === true) continue;
      offersEncoding = true;
    }
    out.push(raw[i]!, raw[i + 1]!);
  }
  // Without the header an engine may choose any encoding, and this client has not said that it can undo one.
  if (!offersEncoding) out.push("accept-encoding", "identity");
  if (options.engineAuth !== undefined) out.push("authorization", options.engineAuth);
  out.push("via", options.via, "x-request-id", options.requestId);
  if (options.traceparent !== undefined) out.push("traceparent", options.traceparent);
  if (options.remainingMs !== undefined)
    out.push("x-request-timeout-ms", String(Math.max(1, Math.ceil(options.remainingMs))));
  if (options.forwarded !== null) {
    out.push("x-forwarded-for", options.forwarded.for, "x-forwarded-proto", options.forwarded.proto);
    if (options.forwarded.host !== undefined) out.push("x-forwarded-host", options.forwarded.host);
  }
  return out;
}

/**
 * The engine's headers as the client gets them; the caller adds its own (`x-request-id` and the `x-yardmaster-*` ones) and
 * leaves `Date` to its server. Fields that can't be sent are left out. An event stream is marked so that no proxy before
 * us holds it back.
 */
export function forwardResponseHeaders(raw: readonly string[], options: ResponseForwarding): string[] {
  const named = namedByConnection(raw);
  const out: string[] = [];
  let eventStream = false;
  let buffering = false;
  let caching = false;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    const value = raw[i + 1]!;
    if (
      RESPONSE_STAYS.has(name) ||
      name.startsWith("x-yardmaster-") ||
      name.startsWith("proxy-") ||
      named?.has(name) === true
    )
      continue;
    if (name === "content-length" && !options.keepContentLength) continue;
    if (options.mode === "engine" && (ENGINE_RESPONSE_STAYS.has(name) || name.startsWith("access-control-"))) continue;
    if (!isSendable(name, value)) continue;
    if (name === "content-type" && /^text\/event-stream[ \t]*(?:;|$)/i.test(value)) eventStream = true;
    if (name === "x-accel-buffering") buffering = true;
    if (name === "cache-control") caching = true;
    out.push(raw[i]!, value);
  }
  if (eventStream && !buffering) out.push("x-accel-buffering", "no");
  if (eventStream && !caching) out.push("cache-control", "no-cache");
  return out;
}

/** Trailers that may go on: framing and routing fields, and those that speak for the gateway, never come from a trailer. */
export function forwardTrailers(raw: readonly string[]): string[] {
  const out: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase();
    if (
      RESPONSE_STAYS.has(name) ||
      TRAILER_NEVER.has(name) ||
      name.startsWith("x-yardmaster-") ||
      name.startsWith("proxy-")
    )
      continue;
    if (isSendable(name, raw[i + 1]!)) out.push(raw[i]!, raw[i + 1]!);
  }
  return out;
}

const TRAILER_NEVER = new Set([
  "content-length",
  "content-type",
  "content-encoding",
  "content-range",
  "cache-control",
  "set-cookie",
  "location",
  "authorization",
  "www-authenticate",
  "host",
  "expires",
  "vary",
]);

const isSendable = (name: string, value: string): boolean =>
  /^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(name) && /^[\t\x20-\x7e\x80-\xff]*$/.test(value);

/** Names that `Connection` gives for this hop only, in lower case; `undefined` in the common case that there are none. */
function namedByConnection(raw: readonly string[]): Set<string> | undefined {
  let named: Set<string> | undefined;
  for (let i = 0; i < raw.length; i += 2) {
    if (raw[i]!.length !== 10 || raw[i]!.toLowerCase() !== "connection") continue;
    const value = raw[i + 1]!.toLowerCase();
    if (value === "keep-alive" || value === "close") continue;
    named ??= new Set();
    for (const name of value.split(",")) named.add(name.trim());
  }
  return named;
}
