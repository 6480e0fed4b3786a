import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalPath, decodeId, TARGET_CHARS_MAX } from "./request-line.ts";

const ok = (target: string): string => {
  const result = canonicalPath(target);
  assert.equal(result.kind, "ok", target);
  return result.kind === "ok" ? result.path + result.query : "";
};

test("ordinary targets are taken as they are", () => {
  for (const target of [
    "/",
    "/v1/chat/completions",
    "/v1/models?limit=2&x=a%20b;c//..",
    "/upstreams/img/a.b/c-d_e~f:g@h",
    "/upstreams/x/",
    "/v1/x/...",
    "/upstreams/x/.well-known/y",
  ])
    assert.equal(ok(target), target);
  assert.deepEqual(canonicalPath("/health?"), { kind: "ok", path: "/health", query: "?" });
});

const refused: readonly [string, string][] = [
  ["absolute form", "http://host/v1/models"],
  ["authority form", "host:443"],
  ["asterisk form", "*"],
  ["nothing", ""],
  ["an empty first segment", "//admin"],
  ["an empty segment", "/v1//chat/completions"],
  ["a parent segment", "/v1/../admin"],
  ["a parent segment at the end", "/v1/.."],
  ["a dot segment", "/v1/./models"],
  ["an encoded parent segment", "/v1/%2e%2e/admin"],
  ["a half encoded parent segment", "/v1/.%2E/admin"],
  ["an encoded parent segment and slash", "/v1/%2e%2e%2fadmin"],
  ["an encoded slash", "/v1%2fmodels"],
  ["a backslash", "/v1\\admin"],
  ["an encoded backslash", "/v1/%5cadmin"],
  ["a path parameter", "/v1/models;x=1"],
  ["an encoded NUL", "/v1/%00"],
  ["an encoded line feed", "/v1/%0a"],
  ["an encoded DEL", "/v1/%7f"],
  ["a bare percent sign", "/v1/%"],
  ["a percent sign before no hex", "/v1/%zz"],
  ["a cut percent sign", "/v1/x%2"],
  ["an overlong dot", "/v1/%c0%ae%c0%ae/admin"],
  ["bytes that are not UTF-8", "/v1/%ff"],
  ["characters beyond ASCII", "/v1/modèle"],
  ["a blank", "/v1/a b"],
  ["a fragment", "/v1/models#x"],
  ["a control character in the query", "/v1/models?a=\u0001"],
  ["a dot segment in a model id", "/v1/models/a/../../../admin/keys"],
  ["an encoded dot segment in a model id", "/v1/models/..%2f..%2fadmin"],
];
for (const [name, target] of refused) {
  test(`a target with ${name} is refused [80.D6]`, () => assert.equal(canonicalPath(target).kind, "bad", target));
}

test("a target of 8 KiB is too long, one byte less is not [80.D17]", () => {
  assert.deepEqual(canonicalPath(`/${"a".repeat(TARGET_CHARS_MAX)}`), { kind: "tooLong" });
  assert.equal(canonicalPath(`/${"a".repeat(TARGET_CHARS_MAX - 1)}`).kind, "ok");
});

test("a path has one spelling, so permission and dispatch see the same", () => {
  assert.equal(ok("/%61dmin/%6beys"), "/admin/keys");
  assert.equal(ok("/v1/a%3ab%c3%a9"), "/v1/a%3Ab%C3%A9");
});

test("model ids with slashes, blanks and letters of any script make the round trip, raw and encoded", () => {
  const idOf = (target: string): string | undefined => decodeId(ok(target).slice("/v1/models/".length));
  for (const id of ["org/model", "org/model:Q4", "/models/x", "modèle", "a b", "..%2f", "a//b", "100%", "x?y#z"])
    assert.equal(idOf(`/v1/models/${encodeURIComponent(id)}`), id);
  for (const id of ["org/model", "org/model:Q4", "/models/x"]) assert.equal(idOf(`/v1/models/${id}`), id);
});

test("what is accepted is canonical: reading it again changes nothing, and no other reader finds another path in it", () => {
  const piece = fc.constantFrom(
    "/",
    "/",
    "a",
    "v1",
    ".",
    "..",
    "%2e",
    "%2F",
    "%5c",
    "\\",
    ";",
    "%",
    "%41",
    "%c3%a9",
    "%00",
    "?",
    "admin",
    "/v1/models/",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 10 }), (pieces) => {
      const result = canonicalPath(`/${pieces.join("")}`);
      if (result.kind !== "ok") return;
      assert.deepEqual(canonicalPath(result.path + result.query), result);
      const url = new URL(`http://h${result.path}`);
      assert.equal(url.host, "h");
      assert.equal(url.pathname, result.path);
    }),
    { numRuns: 3_000 },
  );
});
