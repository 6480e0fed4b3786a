import assert from "node:assert/strict";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import OpenAI from "openai";
import { notRun } from "../../src/testing/real-llama.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { LLAMA_LAUNCHER, setUpLlama } from "../../src/up/llama-setup.ts";
import { call, errorCodeOf } from "../e2e/support/calls.ts";
import { upstreamHealth } from "../e2e/support/health.ts";
import { LiveWorld, QUICK } from "../e2e/support/live-world.ts";
import { keyOf } from "../e2e/support/test-control.ts";
import { startTestGateway, type TestGateway } from "../e2e/support/test-gateway.ts";

// A real engine that a catalog places on the CPU, behind a gateway that follows the control plane.

const STARTED_MS = 120_000;

const following = (world: LiveWorld): Promise<TestGateway> =>
  startTestGateway({
    upstreams: [],
    env: { YARDMASTER_TOKEN: keyOf("gateway") },
    file: { gateway: { control: [world.control.url.replace("http", "ws")] } },
  });

const smol = (folder: string): Record<string, unknown> => ({
  name: "smol",
  aliases: ["gpt-4o"],
  slots_per_replica: 2,
  profiles: [
    {
      engine: "llama.cpp",
      source: `file://${join(folder, "model.gguf")}`,
      cpu: { cores: 1, memory_gb: 0.3 },
      args: { "ctx-size": 1_024 },
    },
  ],
});

/** Where the engine is; null, and the test marked, where it can't be had. */
async function setUp(context: Parameters<typeof notRun>[0]): Promise<string | null> {
  const folder = process.env["YARDMASTER_LLAMA_DIR"];
  const setup = await setUpLlama(
    { onProgress: () => {}, ...(folder === undefined ? {} : { folder }) },
    new AbortController().signal,
  );
  if (setup.kind === "ready") return setup.folder;
  notRun(context, setup.why);
  return null;
}

test("a real llama.cpp that the catalog places on the CPU answers the official OpenAI client through the gateway, by name and alias, streamed and whole [40.C3 40.N6 10.L1]", async (t) => {
  const folder = await setUp(t);
  if (folder === null) return;
  await using world = await LiveWorld.start(QUICK);
  await world.addAgent("node-a", { programs: { "llama.cpp": [join(folder, "python"), LLAMA_LAUNCHER] } });
  const gateway = await following(world);
  try {
    await world.apply(smol(folder));
    await eventually(
      "the model is known",
      async () => (await gateway.health()).upstreams.length,
      (count) => count === 1,
      STARTED_MS,
    );
    // Asked while it loads: the request waits for it.
    const openai = new OpenAI({
      baseURL: `${gateway.url}/v1`,
      apiKey: gateway.keys.client,
      maxRetries: 0,
      timeout: STARTED_MS,
    });
    const messages = [{ role: "user" as const, content: "Say hello." }];
    const whole = await openai.chat.completions.create({ model: "smol", messages, max_tokens: 6 });
    assert.ok((whole.choices[0]?.message.content ?? "").length > 0);
    assert.ok((whole.usage?.completion_tokens ?? 0) > 0);
    const stream = await openai.chat.completions.create({ model: "gpt-4o", messages, max_tokens: 6, stream: true });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    assert.ok(text.length > 0);
    const { endpoints } = await upstreamHealth(gateway, "smol");
    assert.deepEqual(
      endpoints.map(({ health }) => health),
      ["healthy"],
    );
  } finally {
    await gateway.stop();
  }
});

/** As seen of a build for another processor: it listens, says that it loads, and dies of a signal before its first token. */
const DYING = `
import os, runpy, signal, sys, threading
launcher = sys.argv[1]
sys.argv = sys.argv[1:]
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGILL)).start()
print("warming up the model with an empty run", file=sys.stderr, flush=True)
runpy.run_path(launcher, run_name="__main__")
`;

test("a real llama.cpp that dies of a signal at its warm-up is reported as exactly that, started no more than park_after times, and again when an operator says so [40.N4b 40.N6 80.A11 10.L1]", async (t) => {
  const folder = await setUp(t);
  if (folder === null) return;
  await using world = await LiveWorld.start({ ...QUICK, park_after: 1 });
  const dying = join(world.folder, "dying-llama");
  await writeFile(`${dying}.py`, DYING);
  await writeFile(dying, `#!/bin/sh\nexec "${join(folder, "python")}" "${dying}.py" "${LLAMA_LAUNCHER}" "$@"\n`);
  await chmod(dying, 0o755);
  await world.addAgent("node-a", { programs: { "llama.cpp": [dying] } });
  const gateway = await following(world);
  try {
    // Long before it could be ready: the engine is too slow to answer within the second that it lives.
    await world.apply(smol(folder));
    const reason = await eventually(
      "the park",
      async () => (await gateway.health()).upstreams[0]?.reason ?? "",
      (text) => /SIGILL/.test(text) && /failed once|parked/.test(text),
      STARTED_MS,
    );
    assert.match(reason, /SIGILL/);
    const refused = await call(gateway, {
      body: { model: "smol", messages: [{ role: "user", content: "Hi" }] },
    });
    assert.deepEqual([refused.status, errorCodeOf(refused.text)], [503, "UPSTREAM_UNAVAILABLE"]);
    assert.match(refused.text, /SIGILL/);
    const [failed] = await world.replicas();
    assert.equal(failed?.state, "failed");
    assert.match(failed?.why ?? "", /signal.*SIGILL/);
    const placed = async (): Promise<number> => (await world.events("replicaPlaced")).length;
    assert.equal(await placed(), 1);
    await world.control.ask("POST", "/v1/models/smol/retry");
    await eventually("another start", placed, (count) => count === 2, STARTED_MS);
  } finally {
    await gateway.stop();
  }
});
