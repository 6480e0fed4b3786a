import { forwardResponseHeaders } from "../../decide/http/forward-headers.ts";
import { withPublicPlaces, type PublicPlace } from "../../decide/http/public-place.ts";
import type { EndpointChoice } from "../../decide/routing/choose-endpoint.ts";
import type { Endpoint } from "../upstreams/endpoint.ts";

export interface AnswerFacts {
  readonly mode: "engine" | "http";
  readonly requestId: string;
  readonly queueMs: number | null;
  readonly upstreamId: string;
  /** Null where the operator turned the header off. */
  readonly endpoint: Endpoint | null;
  /** For answers that may name places of their engine; null for those that may not, and before there is an engine. */
  readonly place: PublicPlace | null;
  /** For operators who asked how the endpoint was chosen. */
  readonly choice: EndpointChoice | null;
  /** What is left of the key's limits, as a flat list. Empty: what the engine says of its own limits goes on. */
  readonly limits: readonly string[];
  /** The body is ours, not the engine's: what the engine said of its type and encoding no longer holds. */
  readonly replacedBody?: boolean;
}

/** Of one engine's own limits, or of one key's. */
export const LIMIT_HEADERS: ReadonlySet<string> = new Set(
  ["requests", "tokens"].flatMap((what) => ["limit", "remaining", "reset"].map((of) => `x-ratelimit-${of}-${what}`)),
);

const OF_THE_BODY = new Set(["content-type", "content-encoding", "content-language", "etag", "last-modified"]);

/** The head of an answer: the engine's end-to-end headers and ours, as a flat list without any framing. */
export function answerHeaders(rawHeaders: readonly string[], facts: AnswerFacts): string[] {
  const passed = forwardResponseHeaders(rawHeaders, { mode: facts.mode, keepContentLength: false });
  const forwarded = facts.place === null ? passed : withPublicPlaces(passed, facts.place);
  const kept = facts.limits.length > 0 ? withoutHeaders(forwarded, LIMIT_HEADERS) : forwarded;
  const headers =
    facts.replacedBody === true ? [...withoutHeaders(kept, OF_THE_BODY), "content-type", "application/json"] : kept;
  headers.push(...facts.limits);
  headers.push(
    "x-request-id",
    facts.requestId,
    "x-yardmaster-queue-ms",
    String(Math.round(facts.queueMs ?? 0)),
    "x-yardmaster-upstream",
    facts.upstreamId,
  );
  if (facts.endpoint !== null) headers.push("x-yardmaster-endpoint", facts.endpoint.publicId);
  if (facts.choice !== null) headers.push("x-yardmaster-choice", JSON.stringify(facts.choice));
  return headers;
}

export function headerValue(rawHeaders: readonly string[], name: string): string | undefined {
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const found = rawHeaders[i];
    if (found !== undefined && found.length === name.length && found.toLowerCase() === name) return rawHeaders[i + 1];
  }
  return undefined;
}

/** The list without the headers of these names, which are in lower case. */
export function withoutHeaders(headers: readonly string[], names: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i] ?? "";
    if (!names.has(name.toLowerCase())) kept.push(name, headers[i + 1] ?? "");
  }
  return kept;
}
