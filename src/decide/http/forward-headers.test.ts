import assert from "node:assert/strict";
import { test } from "node:test";
import {
  forwardRequestHeaders,
  forwardResponseHeaders,
  forwardTrailers,
  type RequestForwarding,
  type ResponseForwarding,
} from "./forward-headers.ts";

const HOST = ["Host", "h:80"];

const request = (raw: readonly string[], options: Partial<RequestForwarding> = {}): [string, string][] =>
  pairs(
    forwardRequestHeaders(raw, {
      mode: "engine",
      extra: new Set(),
      host: "engine:8000",
      requestId: "req-1",
      engineAuth: undefined,
      via: "1.1 yardmaster",
      forwarded: { for: "192.0.2.1", proto: "http", host: "gateway" },
      traceparent: undefined,
      ...options,
    }),
  );
const response = (raw: readonly string[], options: Partial<ResponseForwarding> = {}): [string, string][] =>
  pairs(forwardResponseHeaders(raw, { mode: "engine", keepContentLength: false, ...options }));

function pairs(flat: readonly string[]): [string, string][] {
  return Array.from({ length: flat.length / 2 }, (_, index) => [flat[2 * index]!, flat[2 * index + 1]!]);
}
const names = (list: readonly [string, string][]): string[] => list.map(([name]) => name.toLowerCase());
const valuesOf = (list: readonly [string, string][], name: string): string[] =>
  list.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);

const SECRETS = [
  "Authorization",
  "Bearer CANARY-1",
  "Cookie",
  "a=CANARY-2",
  "X-Api-Key",
  "CANARY-3",
  "api-key",
  "CANARY-4",
  "Proxy-Authorization",
  "Basic CANARY-5",
  "Ocp-Apim-Subscription-Key",
  "CANARY-6",
];

test("the client's credentials never reach an engine, and the engine's own key does [10.X2]", () => {
  for (const mode of ["engine", "http"] as const) {
    const extra = new Set(["authorization", "cookie", "x-api-key", "api-key", "ocp-apim-subscription-key"]);
    const sent = request([...HOST, ...SECRETS], { mode, extra, engineAuth: "Bearer engine-key" });
    assert.ok(!JSON.stringify(sent).includes("CANARY"));
    assert.deepEqual(valuesOf(sent, "authorization"), ["Bearer engine-key"]);
  }
});

test("hop-by-hop headers and those that Connection names are stripped towards the engine [10.X2 80.D19]", () => {
  const raw = [
    ...HOST,
    "Connection",
    "keep-alive, X-Internal",
    "connection",
    "user-agent",
    "X-Internal",
    "1",
    "User-Agent",
    "u",
    "Keep-Alive",
    "timeout=5",
    "TE",
    "trailers",
    "Trailer",
    "x",
    "Upgrade",
    "h2c",
    "Transfer-Encoding",
    "chunked",
    "Content-Length",
    "5",
    "Expect",
    "100-continue",
    "Proxy-Connection",
    "close",
    "X-Other",
    "kept",
  ];
  const sent = names(request(raw, { mode: "http" }));
  assert.deepEqual(sent, [
    "host",
    "x-other",
    "accept-encoding",
    "via",
    "x-request-id",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
  ]);
});

test("Host, Via and X-Forwarded headers are ours, whatever the client claims [10.X2 80.D9]", () => {
  const raw = [
    ...HOST,
    "X-Forwarded-For",
    "6.6.6.6",
    "x-forwarded-host",
    "evil",
    "X-Forwarded-User",
    "root",
    "Forwarded",
    "for=6.6.6.6",
    "X-Real-IP",
    "6.6.6.6",
    "Via",
    "1.0 edge",
    "X-Yardmaster-Class",
    "interactive",
    "X-Request-Id",
    "theirs",
    "X-Request-Timeout-Ms",
    "5",
  ];
  for (const mode of ["engine", "http"] as const) {
    assert.deepEqual(request(raw, { mode, remainingMs: 4_000.2 }), [
      ["host", "engine:8000"],
      ["Via", "1.0 edge"],
      ["accept-encoding", "identity"],
      ["via", "1.1 yardmaster"],
      ["x-request-id", "req-1"],
      ["x-request-timeout-ms", "4001"],
      ["x-forwarded-for", "192.0.2.1"],
      ["x-forwarded-proto", "http"],
      ["x-forwarded-host", "gateway"],
    ]);
  }
});

test("an engine gets only the headers that it has a use for, and those that the operator names [80.C33]", () => {
  const raw = [
    ...HOST,
    "Accept",
    "*/*",
    "Content-Type",
    "application/json",
    "X-Stainless-Lang",
    "js",
    "Anthropic-Version",
    "1",
    "X-Secret-Project",
    "p",
    "X-Team",
    "t",
    "traceparent",
    "client",
  ];
  assert.deepEqual(names(request(raw, { extra: new Set(["x-team"]) })).slice(1, 7), [
    "accept",
    "content-type",
    "x-stainless-lang",
    "anthropic-version",
    "x-team",
    "traceparent",
  ]);
  assert.ok(names(request(raw, { mode: "http" })).includes("x-secret-project"));
});

test("a client that did not offer an encoding gets none", () => {
  assert.deepEqual(valuesOf(request(HOST), "accept-encoding"), ["identity"]);
  assert.deepEqual(valuesOf(request([...HOST, "Accept-Encoding", "gzip"]), "accept-encoding"), ["gzip"]);
});

test("our trace context takes the place of the client's, else the client's goes on [10.O3]", () => {
  assert.deepEqual(valuesOf(request([...HOST, "traceparent", "theirs"], { traceparent: "ours" }), "traceparent"), [
    "ours",
  ]);
  assert.deepEqual(valuesOf(request([...HOST, "traceparent", "theirs"]), "traceparent"), ["theirs"]);
});

test("hop-by-hop headers, those that Connection names, and what tells of the engine are stripped towards the client [10.X2 80.D20]", () => {
  const raw = [
    "Connection",
    "close, X-Hop",
    "X-Hop",
    "1",
    "Keep-Alive",
    "timeout=5",
    "Transfer-Encoding",
    "chunked",
    "Content-Length",
    "5",
    "Trailer",
    "x",
    "Server",
    "uvicorn",
    "Date",
    "d",
    "Via",
    "1.1 10.0.0.5",
    "X-Powered-By",
    "p",
    "X-Request-Id",
    "theirs",
    "X-Yardmaster-Endpoint",
    "fake",
    "Content-Type",
    "text/plain",
    "Retry-After",
    "3",
  ];
  for (const mode of ["engine", "http"] as const)
    assert.deepEqual(response(raw, { mode }), [
      ["Content-Type", "text/plain"],
      ["Retry-After", "3"],
    ]);
});

test("cookies, redirects and cross-origin permissions of an inference engine stay behind; an http upstream's go on in order", () => {
  const raw = [
    "Set-Cookie",
    "a=1",
    "Location",
    "http://10.0.0.5/x",
    "Set-Cookie",
    "b=2",
    "Access-Control-Allow-Origin",
    "*",
  ];
  assert.deepEqual(response(raw), []);
  assert.deepEqual(response(raw, { mode: "http" }), pairs(raw));
});

test("an event stream is marked so that no proxy holds it back, and an engine's own marks are kept", () => {
  const type = ["Content-Type", "text/event-stream; charset=utf-8"];
  assert.deepEqual(response(type).slice(1), [
    ["x-accel-buffering", "no"],
    ["cache-control", "no-cache"],
  ]);
  const marked = [...type, "X-Accel-Buffering", "no", "Cache-Control", "no-store"];
  assert.deepEqual(response(marked), pairs(marked));
  assert.deepEqual(response(["Content-Type", "text/event-streams"]).length, 1);
});

test("the length goes on only with the body as it was", () => {
  const raw = ["Content-Length", "5", "Content-Encoding", "gzip"];
  assert.deepEqual(response(raw, { keepContentLength: true }), pairs(raw));
  assert.deepEqual(response(raw), [["Content-Encoding", "gzip"]]);
});

test("a response header that would split the head is left out", () => {
  assert.deepEqual(response(["X-A", "a\r\nSet-Cookie: x", "X-B", "a\0", "X C", "1", "X-D", "é"]), [["X-D", "é"]]);
});

test("a trailer can't bring in framing, credentials or our own headers [80.D15]", () => {
  const raw = [
    "authorization",
    "x",
    "Content-Length",
    "5",
    "Transfer-Encoding",
    "chunked",
    "X-Yardmaster-Upstream",
    "x",
    "Set-Cookie",
    "a",
    "X-Checksum",
    "ok",
    "Grpc-Status",
    "0",
  ];
  assert.deepEqual(forwardTrailers(raw), ["X-Checksum", "ok", "Grpc-Status", "0"]);
});
