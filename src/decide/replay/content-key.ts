import { forwardRequestHeaders } from "../http/forward-headers.ts";
import type { NewHasher } from "../idempotency/canonical-digest.ts";

export interface ContentFacts {
  readonly upstreamId: string;
  /** As the client named it: aliases may be answered by different models. */
  readonly model: string;
  readonly method: string;
  /** As the engine is asked. */
  readonly path: string;
  readonly query: string;
  /** The key's id; null where the upstream's answers are shared by all keys. */
  readonly keyId: string | null;
  /** See `fingerprintSteps`: every field of the body is in it. */
  readonly body: string;
  readonly rawHeaders: readonly string[];
  readonly mode: "engine" | "http";
  /** The upstream's `forward_headers`. */
  readonly extra: ReadonlySet<string>;
}

/** Under which name the answer to a content is kept: equal only where an engine would be asked the same. */
export function contentKey(facts: ContentFacts, newHasher: NewHasher): string {
  const { upstreamId, model, method, path, query, keyId, body, rawHeaders, mode, extra } = facts;
  const scope = keyId === null ? "shared" : `key ${keyId}`;
  return hashParts(
    [upstreamId, model, method, path, query, scope, body, ...relevantHeaders(rawHeaders, mode, extra)],
    newHasher,
  );
}

/** Lengths stand in front, so that no two lists give one text. Hex. */
export function hashParts(parts: readonly string[], newHasher: NewHasher): string {
  const hasher = newHasher();
  for (const part of parts) hasher.update(Buffer.from(`${Buffer.byteLength(part)}:${part}`));
  return hasher.digest().toString("hex");
}

/** Headers that an engine may see and that change nothing in its answer to one content. */
const NEUTRAL = new Set([
  "host",
  "accept-encoding", // Kept answers are not encoded.
  "user-agent",
  "via",
  "x-request-id",
  "traceparent",
  "tracestate",
  "x-session-id",
  "x-request-timeout-ms",
  "idempotency-key",
  "cache-control",
  "pragma",
  "priority",
  "dnt",
]);

/** Whatever else an engine would be told: names in lower case, sorted, with the order of equal ones kept. */
export function relevantHeaders(
  rawHeaders: readonly string[],
  mode: "engine" | "http",
  extra: ReadonlySet<string>,
): string[] {
  const told = forwardRequestHeaders(rawHeaders, {
    mode,
    extra,
    host: "",
    requestId: "",
    engineAuth: undefined,
    via: "",
    forwarded: null,
    traceparent: undefined,
  });
  const fields: string[] = [];
  for (let i = 0; i + 1 < told.length; i += 2) {
    const name = told[i]?.toLowerCase() ?? "";
    if (NEUTRAL.has(name) || name.startsWith("x-stainless-") || name.startsWith("sec-")) continue;
    const value = told[i + 1] ?? "";
    fields.push(`${name}:${name === "content-type" ? mediaType(value) : value.trim()}`);
  }
  return fields.toSorted((a, b) => {
    const [one, other] = [a.slice(0, a.indexOf(":")), b.slice(0, b.indexOf(":"))];
    return one < other ? -1 : one > other ? 1 : 0;
  });
}

/** The boundary of a form is drawn anew for each try, and is no part of the content. */
const mediaType = (value: string): string =>
  value
    .split(";")
    .map((part) => part.trim())
    .filter((part) => !/^boundary\s*=/i.test(part))
    .join(";")
    .toLowerCase();
