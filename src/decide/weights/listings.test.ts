import assert from "node:assert/strict";
import { test } from "node:test";
import { readHubListing, readS3Page } from "./listings.ts";

const COMMIT = "c".repeat(40);
const SHA = "5".repeat(64);
const hub = (siblings: readonly unknown[]): unknown => ({ id: "org/model", sha: COMMIT, siblings });
const paths = (listing: ReturnType<typeof readHubListing>): readonly string[] | string =>
  listing.kind === "files" ? listing.files.map(({ path }) => path) : listing.why;

test("a hub's listing gives the commit, and for large files length and digest [40.W1]", () => {
  const large = { rfilename: "model.safetensors", size: 134, lfs: { sha256: SHA, size: 9_000, pointerSize: 134 } };
  assert.deepEqual(readHubListing(hub([{ rfilename: "config.json", size: 12 }, large]), null), {
    kind: "files",
    revision: COMMIT,
    files: [
      { path: "config.json", bytes: 12, sha256: null },
      { path: "model.safetensors", bytes: 9_000, sha256: SHA },
    ],
  });
});

test("of several forms of the same weights the safetensors are fetched; one file that was named is fetched alone", () => {
  const names = [".gitattributes", "model.safetensors", "pytorch_model.bin", "original/x.pth", "m.gguf", "README.md"];
  const all = hub(names.map((rfilename) => ({ rfilename, size: 1 })));
  assert.deepEqual(paths(readHubListing(all, null)), ["model.safetensors", "README.md"]);
  assert.deepEqual(paths(readHubListing(all, "m.gguf")), ["m.gguf"]);
  assert.match(String(paths(readHubListing(all, "none.gguf"))), /no file none\.gguf/);
  const old = hub(["pytorch_model.bin", "config.json"].map((rfilename) => ({ rfilename, size: 1 })));
  assert.deepEqual(paths(readHubListing(old, null, true)), ["pytorch_model.bin", "config.json"]);
});

for (const rfilename of ["../x", "/etc/passwd", "a/../../b", "a//b", "a\0b", "", "a\\b"]) {
  test(`a repository with a file of the name ${JSON.stringify(rfilename)} is refused as a whole [40.W1 80.C42 80.D24]`, () => {
    assert.equal(
      readHubListing(
        hub([
          { rfilename: "ok.json", size: 1 },
          { rfilename, size: 1 },
        ]),
        null,
      ).kind,
      "refused",
    );
  });
}
test("what is no listing is refused", () => {
  for (const body of [null, 1, {}, { sha: "x", siblings: [] }, hub([])])
    assert.equal(readHubListing(body, null).kind, "refused");
});

const page = (contents: string, rest = ""): string =>
  `<?xml version="1.0"?><ListBucketResult xmlns="x"><Name>b</Name>${contents}${rest}</ListBucketResult>`;
const object = (key: string, size: number | string): string =>
  `<Contents><Key>${key}</Key><Size>${size}</Size><ETag>&quot;e&quot;</ETag></Contents>`;

test("a bucket's page gives what lies below the prefix, and where to go on [40.W1]", () => {
  const xml = page(
    object("m/a&amp;b.bin", 3) + object("m/", 0) + object("m/sub/c.json", 4),
    "<NextContinuationToken>t&#x3D;</NextContinuationToken>",
  );
  assert.deepEqual(readS3Page(xml, "m/"), {
    kind: "page",
    files: [
      { path: "a&b.bin", bytes: 3, sha256: null },
      { path: "sub/c.json", bytes: 4, sha256: null },
    ],
    next: "t=",
  });
  assert.deepEqual(readS3Page(page(""), "m/"), { kind: "page", files: [], next: null });
});
for (const [name, xml] of [
  ["no list", "<Error><Code>AccessDenied</Code></Error>"],
  ["a key elsewhere", page(object("other/a", 1))],
  ["a key that leads upwards", page(object("m/../../a", 1))],
  ["a size that is none", page(object("m/a", "x"))],
] as const) {
  test(`a bucket's page with ${name} is refused`, () => assert.equal(readS3Page(xml, "m/").kind, "refused"));
}
