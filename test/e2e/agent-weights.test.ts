import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { StartVerb } from "../../src/contract/agent-link.ts";
import { agentSection } from "../../src/contract/agent-schema.ts";
import { weightsName } from "../../src/contract/resolve-catalog.ts";
import type { StartOver } from "../../src/testing/a-start.ts";
import { someBytes } from "../../src/testing/weights/cache-world.ts";
import { FakeFileServer } from "../../src/testing/weights/fake-file-server.ts";
import { agentProcess } from "./support/agent-process.ts";
import { agentWorld, ledAgent, untilLed, type AgentWorld } from "./support/test-agent.ts";

const STARTED_MS = 60_000;
const BYTES = someBytes(400_000);

/** A start of a program that is told where its weights are. */
const withWeights = (world: AgentWorld, source: string, over: StartOver = {}): StartVerb =>
  world.hostileStart(["weights={weights}"], {
    ...over,
    profile: { source, weightsName: weightsName(source), ...over.profile },
  });

const argvOf = (pid: number | null): string[] => readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");

test("a replica fetches its weights, tells how far they are, and its engine starts with the path of the whole file [40.W1 40.N6]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/m.gguf", { bytes: BYTES, stalls: [100_000] });
  await using world = await ledAgent();
  const { control } = world;
  const source = `${server.origin}/m.gguf?signature=CANARY-query`;
  assert.equal((await control.command(withWeights(world, source))).outcome, "accepted");
  const part = await control.untilShard("r1", "tells of a part", ({ fetch }) => fetch?.bytes === 100_000, STARTED_MS);
  assert.deepEqual([part.state, part.pid, part.fetch?.totalBytes], ["fetching", null, 400_000]);
  assert.deepEqual(control.report?.weights, []);
  server.release();
  const ready = await control.untilState("r1", "ready", STARTED_MS);
  const path = join(world.folder, "weights", weightsName(source), "m.gguf");
  assert.ok(argvOf(ready.pid).includes(`weights=${path}`));
  assert.deepEqual(await readFile(path), BYTES);
  const held = { name: weightsName(source), bytes: 400_000, inUse: true };
  assert.deepEqual((await control.nextReport()).weights, [held]);
  // A second replica of the node finds them there.
  await control.command(withWeights(world, source, { replicaId: "r2" }));
  await control.untilState("r2", "ready", STARTED_MS);
  assert.equal(server.ledger.length, 1);
  for (const replicaId of ["r1", "r2"]) {
    await control.command({ kind: "stop", replicaId, generation: 1, graceMs: 500, why: "test" });
    await control.untilState(replicaId, "stopped", STARTED_MS);
  }
  assert.deepEqual((await control.nextReport()).weights, [{ ...held, inUse: false }]);
  assert.doesNotMatch(world.log(), /CANARY/);
});

test("an agent that is killed at 60 % of a download goes on there, and no engine is started on a part [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/m.gguf", { bytes: BYTES, stalls: [240_000] });
  await using world = await agentWorld();
  const { control } = world;
  const first = await agentProcess(world);
  await untilLed(control);
  const source = `${server.origin}/m.gguf`;
  await control.command(withWeights(world, source));
  await control.untilShard("r1", "tells of a part", ({ fetch }) => fetch?.bytes === 240_000, STARTED_MS);
  await first[Symbol.asyncDispose]();
  assert.ok((await readdir(join(world.folder, "weights"))).every((name) => !/^[0-9a-f]{64}$/.test(name)));
  const from = control.heard.length;
  await using _second = await agentProcess(world);
  const shard = await control.untilShard(
    "r1",
    "is taken up",
    (seen) => control.heard.length > from && seen.state !== "fetching",
    STARTED_MS,
  );
  assert.equal(shard.failure, null);
  const { pid } = await control.untilState("r1", "ready", STARTED_MS);
  const path = join(world.folder, "weights", weightsName(source), "m.gguf");
  assert.ok(argvOf(pid).includes(`weights=${path}`));
  assert.deepEqual(await readFile(path), BYTES);
  assert.deepEqual(
    server.ledger.map(({ headers }) => headers.range),
    [undefined, "bytes=240000-"],
  );
  process.kill(pid ?? 0, "SIGKILL");
  await control.untilState("r1", "failed", STARTED_MS);
});

test("weights that can't be had are a start that failed, in words; a start whose names do not agree fetches nothing [40.W1 40.N6]", async () => {
  await using server = await FakeFileServer.start();
  await using world = await ledAgent();
  const { control } = world;
  await control.command(withWeights(world, `${server.origin}/nothing`));
  const { failure } = await control.untilState("r1", "failed", STARTED_MS);
  assert.deepEqual([failure?.kind, failure?.message], ["fetch", "the server answered 404"]);
  const asked = server.ledger.length;
  const wrong = withWeights(world, `${server.origin}/other`, {
    replicaId: "r2",
    profile: { weightsName: "0".repeat(64) },
  });
  await control.command(wrong);
  const other = await control.untilState("r2", "failed", STARTED_MS);
  assert.match(other.failure?.message ?? "", /names other weights than those of its source/);
  assert.equal(server.ledger.length, asked);
});

test("weights that do not fit hold up their own replica alone: heartbeats and other engines go on, and after its time the start has failed for want of space [80.A15 40.N6]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/m.gguf", { bytes: BYTES });
  const weights = agentSection.parse({ weights: { reserve: 0.9 } }).weights;
  await using world = await ledAgent({ agent: { weights } });
  const { control } = world;
  await control.command(world.hostileStart([], { replicaId: "r2" }));
  const other = await control.untilState("r2", "ready", STARTED_MS);
  // A machine whose disk is nearly empty has room for these bytes in spite of the reserve: then there are not enough of them.
  const huge = (control.report?.diskFreeMib ?? 0) > 0;
  if (huge) server.files.set("/m.gguf", { bytes: BYTES, headers: { "content-length": String(2 ** 45) } });
  await control.command(withWeights(world, `${server.origin}/m.gguf`, { startStallMs: 6_000 }));
  const blocked = await control.untilShard(
    "r1",
    "tells why",
    ({ blockedBy }) => /no space/.test(blockedBy ?? ""),
    STARTED_MS,
  );
  assert.equal(blocked.state, "fetching");
  for (let beats = 0; beats < 5; beats += 1) await control.nextReport();
  const { failure } = await control.untilState("r1", "failed", STARTED_MS);
  assert.deepEqual([failure?.kind, /no space/.test(failure?.message ?? "")], ["fetch", true]);
  assert.deepEqual([control.shard("r2")?.state, control.shard("r2")?.pid], ["ready", other.pid]);
  assert.deepEqual(control.report?.weights, []);
});
