import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { parseConfigText } from "./load-config.ts";

const read = (upstream: Record<string, unknown>) =>
  parseConfigText(
    stringify({
      upstreams: [
        {
          id: "u",
          kind: "azure-di",
          models: ["prebuilt-read"],
          slots: 2,
          endpoints: [{ url: "http://c:5000" }],
          ...upstream,
        },
      ],
    }),
    "test.yaml",
    {},
  );

test("an upstream of documents is a container unless it is said to be an OCR engine [20.F2]", () => {
  for (const [given, engine, ocrPath] of [
    [{}, "document-intelligence", "/ocr"],
    [{ engine: "document-intelligence" }, "document-intelligence", "/ocr"],
    [{ engine: "ocr", ocr_path: "/v1/read" }, "ocr", "/v1/read"],
  ] as const) {
    const loaded = read(given);
    assert.ok(loaded.kind === "valid");
    assert.deepEqual([loaded.config.upstreams[0]?.engine, loaded.config.upstreams[0]?.ocrPath], [engine, ocrPath]);
    assert.deepEqual(loaded.warnings, []);
  }
});

const mistakes: readonly (readonly [upstream: Record<string, unknown>, says: RegExp])[] = [
  [{ models: [] }, /names no model, so no document would ever come here/],
  [{ models: ["prebuilt-read", "org/model"] }, /is no id of a document model/],
  [{ engine: "vllm" }, /`vllm` analyses no documents/],
  [{ engine: "ocr", ocr_path: "ocr" }, /path that begins with/],
  [{ kind: "openai", engine: "ocr" }, /`ocr` analyses documents/],
  [{ kind: "http", engine: "document-intelligence" }, /`document-intelligence` analyses documents/],
];
for (const [upstream, says] of mistakes) {
  test(`${JSON.stringify(upstream)} is a mistake with its reason [20.F2]`, () => {
    const loaded = read(upstream);
    assert.ok(loaded.kind === "invalid");
    assert.match(loaded.problems.map(({ message }) => message).join(), says);
  });
}

test("an OCR path without an OCR engine is warned of", () => {
  const loaded = read({ ocr_path: "/read" });
  assert.ok(loaded.kind === "valid" && loaded.warnings.some((warning) => warning.includes("ocr_path")));
});
