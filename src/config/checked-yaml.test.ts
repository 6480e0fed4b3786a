import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { readTextFile } from "./checked-yaml.ts";
import { formatProblems } from "./config-problem.ts";
import { parseConfigText } from "./load-config.ts";

test(
  "a pipe in the place of the file is a mistake at once, so that no later change waits behind its writer [10.R6]",
  { timeout: 20_000 },
  async (t) => {
    const path = join(await mkdtemp(join(tmpdir(), "yardmaster-config-")), "yardmaster.yaml");
    execFileSync("mkfifo", [path]);
    t.after(() => closeSync(openSync(path, constants.O_RDWR | constants.O_NONBLOCK))); // Lets go whoever waits for a writer.
    const read = await readTextFile(path, 1024);
    assert.match(read.kind === "invalid" ? formatProblems(read.problems) : "", /is not a file/);
  },
);

test("a value of another kind than is wanted says so, and not what would follow if it were none", () => {
  const told = (models: string): string => {
    const text = `upstreams:\n  - id: a\n    models:${models}\n    slots: 1\n    endpoints: [{url: "http://h:1"}]\n`;
    const loaded = parseConfigText(text, "y", {});
    return loaded.kind === "invalid" ? formatProblems(loaded.problems) : "valid";
  };
  assert.match(
    told(" qwen"),
    /^y:3:13: upstreams\[0\]\.models: allowed: list: text \(found "qwen"\)\n +hint: put it in a list/,
  );
  assert.match(told(" {a: b}"), /models: allowed: list: text \(found a mapping\)\n1 mistake$/);
  assert.match(told(""), /models: is empty; .*\n +hint: what belongs to it must be indented below it\n1 mistake$/);
  assert.match(told(" []"), /models: names no model/);
});
