import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { notRun, REAL_MODEL, startRealLlama } from "../../src/testing/real-llama.ts";

test("the real engine is set up, answers a streamed chat, shows its slots and metrics, and ends when told", async (t) => {
  const llama = await startRealLlama({ slots: 2, ctx: 2048 });
  if (llama.kind === "unavailable") {
    notRun(t, llama.why);
    return;
  }
  await using engine = llama.engine;
  const response = await fetch(`${engine.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: REAL_MODEL,
      stream: true,
      max_tokens: 4,
      messages: [{ role: "user", content: "Say hello." }],
    }),
  });
  assert.equal(response.status, 200);
  const events = (await response.text()).split("\n\n").filter((event) => event !== "");
  assert.equal(events.at(-1), "data: [DONE]");
  assert.ok(events.some((event) => event.includes('"finish_reason":"length"')));

  const slots = (await (await fetch(`${engine.url}/slots`)).json()) as unknown[];
  assert.equal(slots.length, 2);
  assert.match(await (await fetch(`${engine.url}/metrics`)).text(), /^llamacpp:requests_processing 0$/m);

  engine.kill("SIGTERM");
  assert.equal(await engine.ended, "code 0");
});

test("where the package index can't be reached, the setup says so with a code of its own and leaves no lock", async () => {
  const home = mkdtempSync(join(tmpdir(), "yardmaster-llama-"));
  const folder = join(home, "engine");
  // An index on a port where nothing listens, and no cache to take the packages from.
  const env = { ...process.env, PIP_INDEX_URL: "http://127.0.0.1:9/", PIP_NO_CACHE_DIR: "1", PIP_RETRIES: "0" };
  const script = join(import.meta.dirname, "setup-llama.sh");
  const failed = promisify(execFile)("/bin/sh", [script, folder], { env, timeout: 120_000 });
  await assert.rejects(failed, (error: Error & { code?: number; stderr?: string }) => {
    assert.equal(error.code, 4, error.stderr);
    return true;
  });
  await assert.rejects(promisify(execFile)("ls", [`${folder}.lock`]));
  rmSync(home, { recursive: true, force: true });
});
