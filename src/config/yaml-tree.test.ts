import assert from "node:assert/strict";
import { test } from "node:test";
import { parseYaml } from "./yaml-tree.ts";

for (const [name, text] of [
  ["with something in each", "upstreams: []\n---\nupstreams: []"],
  ["the second of them empty", "upstreams: []\n...\n---\n"],
] as const)
  test(`a file of two documents is told in words for who wrote it: ${name}`, () => {
    const parsed = parseYaml(text, {});
    assert.ok(parsed.kind === "broken");
    assert.deepEqual(
      parsed.problems.map(({ message, hint }) => [message, hint]),
      [["holds more than one YAML document", "keep one document in the file: remove the `---` between them"]],
    );
  });
