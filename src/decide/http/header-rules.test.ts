import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { checkRequestHeaders, parseClass, parseTimeoutMs, saneRequestId } from "./header-rules.ts";

const HOST = ["Host", "h:80"];
const check = (headers: readonly string[], version = "1.1"): string => {
  const result = checkRequestHeaders([...HOST, ...headers], version);
  return result.kind === "ok" ? "ok" : result.code;
};

const refused: readonly [string, readonly string[]][] = [
  ["a length and chunked", ["Content-Length", "5", "Transfer-Encoding", "chunked"]],
  ["two lengths", ["Content-Length", "5", "content-length", "5"]],
  ["a list of lengths", ["Content-Length", "5, 5"]],
  ["a length with a sign", ["Content-Length", "+5"]],
  ["a negative length", ["Content-Length", "-5"]],
  ["a length in hex", ["Content-Length", "0x5"]],
  ["an empty length", ["Content-Length", ""]],
  ["a length that no number holds", ["Content-Length", "9999999999999999"]],
  ["chunked behind identity", ["Transfer-Encoding", "identity, chunked"]],
  ["identity behind chunked", ["Transfer-Encoding", "chunked, identity"]],
  ["an unknown coding before chunked", ["Transfer-Encoding", "cow, chunked"]],
  ["an empty coding before chunked", ["Transfer-Encoding", ",chunked"]],
  ["a coding that is nearly chunked", ["tRANSFER-ENCODING", "xchunked"]],
  ["chunked on the second of two lines", ["Transfer-Encoding", "cow", "Transfer-Encoding", "chunked"]],
  ["chunked twice", ["Transfer-Encoding", "chunked", "transfer-encoding", "chunked"]],
  ["an underscore for a dash in the coding's name", ["Transfer_Encoding", "chunked"]],
  ["an underscore for a dash in the length's name", ["Content_Length", "5"]],
];
for (const [name, headers] of refused) {
  test(`a request with ${name} is refused [10.X2 80.D13 80.D14]`, () => assert.equal(check(headers), "BAD_REQUEST"));
}

test("a second Host or Authorization is refused [80.D2]", () => {
  assert.equal(check(["host", "other"]), "BAD_REQUEST");
  assert.equal(check(["Authorization", "Bearer a", "authorization", "Bearer b"]), "BAD_REQUEST");
  assert.equal(check(["X-Api-Key", "a", "x-api-key", "b"]), "BAD_REQUEST");
  assert.equal(check(["Ocp-Apim-Subscription-Key", "a", "ocp-apim-subscription-key", "a"]), "BAD_REQUEST");
});

test("a Host that is not a host and port is refused, and HTTP/1.1 without one [80.D6]", () => {
  for (const host of ["a/admin?x", "a b", "user@h", "", "h:", "h:999999", "[::1", "h,g"])
    assert.equal(checkRequestHeaders(["Host", host], "1.1").kind, "bad", host);
  for (const host of ["localhost", "127.0.0.1:8200", "[::1]:80", "gpu-1.example.com"])
    assert.equal(checkRequestHeaders(["Host", host], "1.1").kind, "ok", host);
  assert.equal(checkRequestHeaders([], "1.1").kind, "bad");
  assert.equal(checkRequestHeaders([], "1.0").kind, "ok");
});

test("control characters and bytes beyond ASCII in a value are refused [80.D16]", () => {
  for (const code of [0, 1, 9 + 1, 13, 31, 127, 128, 255])
    assert.equal(check(["X-A", `a${String.fromCharCode(code)}b`]), "BAD_REQUEST", String(code));
  assert.equal(check(["X-A", "a\tb ~"]), "ok");
});

test("a hundred headers pass, one more is too many [80.D17]", () => {
  const many = Array.from({ length: 99 }, (_, index) => [`X-${index}`, "1"]).flat();
  assert.equal(check(many), "ok");
  assert.equal(check([...many, "X-99", "1"]), "HEADERS_TOO_LARGE");
});

test("chunked is taken in any case, but not in HTTP/1.0", () => {
  assert.equal(check(["Transfer-Encoding", "Chunked"]), "ok");
  assert.equal(check(["Transfer-Encoding", "chunked"], "1.0"), "BAD_REQUEST");
  assert.equal(check(["Content-Length", "5"], "1.0"), "ok");
  assert.equal(check([], "2.0"), "BAD_REQUEST");
});

test("no spelling of framing headers gets through in two ways at once", () => {
  const framing = fc.tuple(
    fc.constantFrom("content-length", "transfer-encoding", "x-a"),
    fc.constantFrom("5", "chunked", "5,5", "x"),
  );
  fc.assert(
    fc.property(fc.array(framing, { maxLength: 4 }), fc.func(fc.boolean()), (headers, upper) => {
      const raw = headers.flatMap(([name, value], index) => [
        name.replace(/./g, (char, at: number) => (upper(index, at) ? char.toUpperCase() : char)),
        value,
      ]);
      if (check(raw) !== "ok") return;
      const kinds = headers.filter(([name]) => name !== "x-a");
      assert.ok(kinds.length <= 1);
      assert.ok(kinds.every(([name, value]) => value === (name === "content-length" ? "5" : "chunked")));
    }),
  );
});

test("only a short and safe request id of the client is taken", () => {
  for (const id of ["a", "A.b_c:d-9", "x".repeat(128)]) assert.equal(saneRequestId(id), id);
  for (const id of [undefined, "", "x".repeat(129), "a b", "a\n", "a/b", "é"])
    assert.equal(saneRequestId(id), undefined);
});

test("a request's own deadline is a positive whole number, its class one of three", () => {
  assert.deepEqual(parseTimeoutMs("1500"), { kind: "ms", ms: 1_500 });
  assert.deepEqual(parseTimeoutMs(undefined), { kind: "absent" });
  for (const value of ["", "0", "-1", "1.5", "1e3", "10s", "12345678901"])
    assert.deepEqual(parseTimeoutMs(value), { kind: "bad" }, value);
  assert.deepEqual(parseClass("batch"), { kind: "class", class: "batch" });
  assert.deepEqual(parseClass(undefined), { kind: "absent" });
  for (const value of ["", "Batch", "urgent", "__proto__"]) assert.deepEqual(parseClass(value), { kind: "unknown" });
});
