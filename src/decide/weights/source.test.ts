import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isPlainPath, parseSource, type WeightsSource } from "./source.ts";

const rows: readonly [source: string | null, expect: Partial<WeightsSource>][] = [
  [null, { kind: "none" }],
  ["/models/a.gguf", { kind: "path", path: "/models/a.gguf" }],
  ["file:///models/a", { kind: "path", path: "/models/a" }],
  ["a/b.gguf", { kind: "path", path: "/w/a/b.gguf" }],
  ["../etc/passwd", { kind: "unavailable" }],
  ["/models/../etc", { kind: "unavailable" }],
  ["file://models/a", { kind: "unavailable" }],
  ["/models/a\0b", { kind: "unavailable" }],
  ["ftp://host/a", { kind: "unavailable" }],
  [
    "https://host/dir/model-q4.gguf?x=1#part",
    { kind: "web", url: "https://host/dir/model-q4.gguf?x=1", file: "model-q4.gguf" },
  ],
  ["https://host/", { kind: "web", file: "weights" }],
  ["https://host/..%2f..%2fetc%2fpasswd", { kind: "web", file: "__.._etc_passwd" }],
  ["https://user:pass@host/a", { kind: "unavailable" }],
  ["http://127.0.0.1:1/a.bin", { kind: "web", file: "a.bin" }],
  ["http://host/a.bin", { kind: "unavailable" }],
  ["hf://org/model@rev", { kind: "hub", repo: "org/model", revision: "rev", file: null }],
  ["hf://org/model", { kind: "hub", revision: "main" }],
  ["hf://org/model@refs%2Fpr%2F1/sub/a.gguf", { kind: "hub", revision: "refs/pr/1", file: "sub/a.gguf" }],
  ["hf://org/model@..%2f..%2fx", { kind: "unavailable" }],
  ["hf://org/model@rev/../x", { kind: "unavailable" }],
  ["hf://model", { kind: "unavailable" }],
  ["s3://my-bucket/a/b.gguf", { kind: "s3", bucket: "my-bucket", key: "a/b.gguf" }],
  ["s3://my-bucket/a/", { kind: "s3", key: "a/" }],
  ["s3://my-bucket", { kind: "unavailable" }],
  ["s3://my-bucket/../x", { kind: "unavailable" }],
  ["s3://Bad_Bucket/x", { kind: "unavailable" }],
];
for (const [source, expect] of rows) {
  test(`the source ${JSON.stringify(source)} is ${expect.kind}`, () => {
    const found = parseSource(source, "/w");
    assert.deepEqual({ ...found, ...expect }, found);
  });
}

test("whatever a source says, a file of it in the cache has one plain name [40.W1 80.C42]", () => {
  fc.assert(
    fc.property(fc.webUrl({ withQueryParameters: true }), fc.string(), (url, end) => {
      const found = parseSource(`${url.replace(/^http:/, "https:")}/${end}`, "/w");
      if (found.kind === "web") assert.ok(isPlainPath(found.file) && !found.file.includes("/"), found.file);
    }),
  );
});

test("a plain path never leads out of its folder", () => {
  const part = fc.constantFrom("a", "..", ".", "", "b.c", "\0", "\\", "x y", "...");
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 5 }), (parts) => {
      const isPlain = isPlainPath(parts.join("/"));
      assert.equal(
        isPlain,
        parts.every((text) => !["..", ".", "", "\0", "\\"].includes(text)),
      );
    }),
  );
});
