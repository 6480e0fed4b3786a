import { isFieldText } from "./field-text.ts";
import { headerTraits } from "./header-traits.ts";

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

/** The client's headers as the engine gets them, complete but for the body's length. */
export function forwardRequestHeaders(raw: readonly string[], options: RequestForwarding): string[] {
  const named = namedByConnection(raw);
  const out: string[] = ["host", options.host];
  let offersEncoding = false;
  for (let i = 0; i < raw.length; i += 2) {
    const { lower, requestStays, engineTakes } = headerTraits(raw[i]!);
    if (requestStays || named?.has(lower) === true) continue;
    if (options.mode === "engine" && !engineTakes && !options.extra.has(lower)) continue;
    if (lower === "traceparent" && options.traceparent !== undefined) continue;
    if (lower === "accept-encoding") {
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
    const { lower, responseStays, engineResponseStays, isToken } = headerTraits(raw[i]!);
    const value = raw[i + 1]!;
    if (responseStays || named?.has(lower) === true) continue;
    if (lower === "content-length" && !options.keepContentLength) continue;
    if (options.mode === "engine" && engineResponseStays) continue;
    if (!isToken || !isFieldText(value)) continue;
    if (lower === "content-type" && /^text\/event-stream[ \t]*(?:;|$)/i.test(value)) eventStream = true;
    if (lower === "x-accel-buffering") buffering = true;
    if (lower === "cache-control") caching = true;
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
    const { responseStays, trailerNever, isToken } = headerTraits(raw[i]!);
    if (responseStays || trailerNever) continue;
    if (isToken && isFieldText(raw[i + 1]!)) out.push(raw[i]!, raw[i + 1]!);
  }
  return out;
}

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
