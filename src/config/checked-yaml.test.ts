import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { readTextFile } from "./checked-yaml.ts";
import { formatProblems } from "./config-problem.ts";

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
