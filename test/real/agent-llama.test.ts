import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { aStart } from "../../src/testing/a-start.ts";
import { notRun } from "../../src/testing/real-llama.ts";
import { ENGINE_KEY, ledAgent } from "../e2e/support/test-agent.ts";

const SETUP = join(import.meta.dirname, "setup-llama.sh");
const LAUNCHER = join(import.meta.dirname, "llama-server.py");
const SETUP_MS_MAX = 240_000;
const STARTED_MS = 120_000;

/** Where the engine is; why it can't be had, where it can't. */
async function setUp(): Promise<{ readonly folder: string } | { readonly why: string }> {
  const given = process.env["YARDMASTER_LLAMA_DIR"];
  try {
    const { stdout } = await promisify(execFile)("/bin/sh", given === undefined ? [SETUP] : [SETUP, given], {
      timeout: SETUP_MS_MAX,
    });
    return { folder: stdout.trim() };
  } catch (error) {
    const { code, stderr } = error as { code?: unknown; stderr?: string };
    if (code === 3 || code === 4) return { why: stderr ?? "" };
    throw error;
  }
}

test("a real llama.cpp is started from a profile, answers with its key through its port, and its violent end is told by name, once [40.N5 40.N6 40.N4b]", async (t) => {
  const set = await setUp();
  if ("why" in set) {
    notRun(t, set.why);
    return;
  }
  const { folder } = set;
  const programs = { "llama.cpp": [join(folder, "python"), LAUNCHER] as [string, ...string[]] };
  await using world = await ledAgent({ agent: { programs, weights_dir: folder } });
  const { control } = world;
  assert.ok(control.report?.engines.includes("llama.cpp"));
  const profile = {
    engine: "llama.cpp",
    source: "model.gguf",
    cpu: { cores: 2, memoryMib: 1_024 },
    args: { c: 2_048 },
  } as const;
  await control.command(aStart({ engineKey: ENGINE_KEY, model: { name: "smol", aliases: [], slots: 2 }, profile }));
  const ready = await control.untilState("r1", "ready", STARTED_MS);
  assert.ok((ready.hostUsedMib ?? 0) > 0);
  const ask = (key: string): Promise<Response> =>
    fetch(`http://127.0.0.1:${ready.port}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "smol", max_tokens: 4, messages: [{ role: "user", content: "Hi" }] }),
    });
  const answer = (await (await ask(ENGINE_KEY)).json()) as { choices: { message: { content: string } }[] };
  assert.equal(typeof answer.choices[0]?.message.content, "string");
  assert.equal((await ask("another-key")).status, 401);

  process.kill(ready.pid ?? 0, "SIGSEGV");
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.deepEqual([end.failure?.kind, end.failure?.signal], ["signal", "SIGSEGV"]);
  assert.ok((end.failure?.lastLines.length ?? 0) > 0);
  assert.deepEqual(
    (await control.nextReport()).shards.map((shard) => [shard.state, shard.pid]),
    [["failed", null]],
  );
});

test("a model file that is none ends the start with the engine's own words [40.N4b]", async (t) => {
  const set = await setUp();
  if ("why" in set) {
    notRun(t, set.why);
    return;
  }
  const programs = { "llama.cpp": [join(set.folder, "python"), LAUNCHER] as [string, ...string[]] };
  await using world = await ledAgent({ agent: { programs } });
  const { control } = world;
  await control.command(aStart({ engineKey: ENGINE_KEY, profile: { engine: "llama.cpp", source: LAUNCHER } }));
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.notEqual(end.failure, null);
  assert.match(end.failure?.message ?? "", /before it was ready/);
  assert.ok((end.failure?.lastLines.length ?? 0) > 0);
});
