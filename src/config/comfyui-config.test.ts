import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { parseConfigText } from "./load-config.ts";

const read = (upstream: Record<string, unknown>) => {
  const usual = { id: "u", kind: "comfyui", slots: 1, endpoints: [{ url: "http://c:8188" }] };
  return parseConfigText(stringify({ upstreams: [{ ...usual, ...upstream }] }), "test.yaml", {});
};

test("an upstream of workflows needs no engine and no models [20.F3]", () => {
  for (const given of [{}, { engine: "comfyui" }]) {
    const loaded = read(given);
    assert.ok(loaded.kind === "valid");
    assert.equal(loaded.config.upstreams[0]?.engine, "comfyui");
    assert.deepEqual(loaded.warnings, []);
  }
});

for (const [given, says] of [
  [{ engine: "vllm" }, /`vllm` runs no workflows/],
  [{ models: ["wan"] }, /names models, and workflows name none/],
  [{ kind: "http", engine: "comfyui" }, /goes with `kind: comfyui`/],
] as const)
  test(`${JSON.stringify(given)} is a mistake with its reason`, () => {
    const loaded = read(given);
    assert.ok(loaded.kind === "invalid");
    assert.ok(
      loaded.problems.some((problem) => says.test(JSON.stringify(problem))),
      JSON.stringify(loaded.problems),
    );
  });
