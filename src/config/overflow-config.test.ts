import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { parseConfigText } from "./load-config.ts";

const TIER = { provider: "openai", base_url: "https://cloud.example" };

const read = (overflow: readonly Record<string, unknown>[]) =>
  parseConfigText(
    stringify({
      upstreams: ["a", "b"].map((id) => ({
        id,
        models: [`m-${id}`],
        slots: 1,
        endpoints: [{ url: `http://${id}:5000` }],
      })),
      overflow,
    }),
    "test.yaml",
    {},
  );

test("an upstream has one section, and a tier's id is its own in the whole file", () => {
  const loaded = read([
    { upstream: "a", tiers: [{ ...TIER, id: "t" }] },
    { upstream: "b", tiers: [{ ...TIER, id: "t" }] },
    { upstream: "a" },
  ]);
  assert.ok(loaded.kind === "invalid");
  assert.deepEqual(
    loaded.problems.map(({ path, message }) => [path, message.replace(/ \(line \d+\)$/, "")]),
    [
      ["overflow[1].tiers[0].id", "another tier has this id"],
      ["overflow[2].upstream", "this upstream has a section already"],
    ],
  );
});

test("a section of no upstream is a warning", () => {
  const loaded = read([{ upstream: "c" }]);
  assert.ok(loaded.kind === "valid");
  assert.deepEqual(loaded.warnings.length, 1);
  assert.match(loaded.warnings[0] ?? "", /overflow\[0\]\.upstream.*is no upstream of this file/);
});
