import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { aStart } from "../../src/testing/a-start.ts";
import { FakeControlPlane } from "../../src/testing/fake-control-plane.ts";
import { aGpu } from "../../src/testing/fake-nvidia-smi.ts";
import { fastClock } from "./support/fast-clock.ts";
import { agentWorld, CARD, ENGINE_KEY, ledAgent, onCard, ONE_CARD, untilLed } from "./support/test-agent.ts";
import { listeningOf } from "./support/yardmaster-process.ts";

const STARTED_MS = 60_000;

test("a foreign process on the card is told by its number, is not touched, and the start waits for it [80.A5]", async () => {
  await using world = await ledAgent({ gpus: ONE_CARD });
  const { control, smi } = world;
  const foreign = spawn("sleep", ["600"], { stdio: "ignore" });
  smi?.hold(foreign.pid ?? 0, CARD, 120_000);
  await control.until("the foreign memory", () => control.report?.gpus[0]?.foreignMib === 120_000);
  await control.command(world.hostileStart([], { gpuUuids: [CARD], profile: { gpu: onCard } }));
  const blocked = await control.untilShard("r1", "is blocked", (shard) => shard.blockedBy?.includes("PID") === true);
  assert.match(blocked.blockedBy ?? "", new RegExp(`blocked by PID ${foreign.pid} .*120000 MiB`));
  assert.deepEqual([blocked.state, blocked.pid, foreign.exitCode], ["starting", null, null]);
  foreign.kill("SIGKILL");
  await once(foreign, "close");
  const ready = await control.untilState("r1", "ready", STARTED_MS);
  assert.equal(ready.blockedBy, null);
});

test("a start that never gets its room fails and says who was in the way, without one process [80.A5]", async () => {
  await using world = await ledAgent({ gpus: ONE_CARD });
  const { control, smi } = world;
  smi?.hold(process.pid, CARD, 120_000);
  await control.command(world.hostileStart([], { gpuUuids: [CARD], startStallMs: 3_000, profile: { gpu: onCard } }));
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.equal(end.failure?.kind, "gpuOom");
  assert.match(end.failure?.message ?? "", new RegExp(`PID ${process.pid}`));
  assert.deepEqual(readdirSync(join(world.folder, "agent/logs")), []);
});

test("two starts on one card that has room for one: the second waits, though the first has taken nothing yet [80.A5]", async () => {
  await using world = await ledAgent({ gpus: ONE_CARD });
  const { control } = world;
  const gpu = { ...onCard, memoryMib: 90_000 };
  for (const replicaId of ["r1", "r2"])
    await control.command(world.hostileStart([], { replicaId, gpuUuids: [CARD], profile: { gpu } }));
  await control.untilState("r1", "ready", STARTED_MS);
  const second = await control.untilShard("r2", "is blocked", (shard) => shard.blockedBy?.includes("MiB") === true);
  assert.match(second.blockedBy ?? "", /53771 MiB of 90000 MiB are free/);
  await control.command({ kind: "stop", replicaId: "r1", generation: 1, graceMs: 1_000, why: "test" });
  await control.untilState("r2", "ready", STARTED_MS);
});

test("nothing starts on a card that is sick, or that the node lacks [80.A5 40.N2]", async () => {
  const sick = aGpu(0, { cells: { "utilization.gpu": "[GPU requires reset]" } });
  await using world = await ledAgent({ gpus: { gpus: [sick] } });
  const { control } = world;
  await control.command(world.hostileStart([], { gpuUuids: [CARD], startStallMs: 8_000, profile: { gpu: onCard } }));
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.match(end.failure?.message ?? "", /sick: \[GPU requires reset\]/);
  const gone = world.hostileStart([], {
    replicaId: "r2",
    gpuUuids: ["GPU-gone"],
    startStallMs: 8_000,
    profile: { gpu: onCard },
  });
  await control.command(gone);
  assert.match((await control.untilState("r2", "failed", STARTED_MS)).failure?.message ?? "", /no card GPU-gone/);
});

test("an agent whose card tool hangs starts all the same, and its cards are unknown [40.N2]", async () => {
  await using world = await agentWorld({ gpus: { ...ONE_CARD, hang: "deaf" } });
  await world.startAgent();
  const report = await world.control.nextReport();
  assert.deepEqual([report.gpus, report.gpuDiscovery], [[], "failed"]);
  assert.match(report.gpuDiscoveryWhy ?? "", /not been read yet|not answered in time/);
});

test("a program that is not there is a start that failed, by its name", async () => {
  await using world = await ledAgent({ agent: { programs: { tei: ["/nowhere/text-embeddings-router"] } } });
  const { control, folder } = world;
  assert.ok(control.report?.engines.includes("tei") === false);
  await control.command(aStart({ engineKey: ENGINE_KEY, profile: { engine: "tei", source: folder } }));
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.match(end.failure?.message ?? "", /text-embeddings-router can't be started: ENOENT/);
});

test("a headless shard of a replica over two nodes opens no port, and is ready by living [40.N6 40.N5]", async () => {
  await using world = await agentWorld();
  Object.assign(world.section, { programs: { vllm: [world.hostile, "sleep"] } });
  const { control, folder } = world;
  await world.startAgent();
  await untilLed(control);
  const shard = { index: 1, of: 2, headAddress: "10.0.0.9", rendezvousPort: 29_501 };
  await control.command(aStart({ engineKey: ENGINE_KEY, shard, profile: { engine: "vllm", source: folder } }));
  const ready = await control.untilState("r1", "ready", STARTED_MS);
  assert.deepEqual([ready.shard, ready.port], [1, null]);
  const argv = readFileSync(`/proc/${ready.pid}/cmdline`, "utf8").split("\0");
  for (const word of ["--headless", "--node-rank=1", "--master-addr=10.0.0.9"]) assert.ok(argv.includes(word), word);
  assert.deepEqual(listeningOf(ready.pid ?? 0), []);
});

test("engines go on without any control plane, and are told of when there is one again [80.I8]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await world.startAgent({ random: { next: () => 0 } });
  await untilLed(control);
  await control.command(aStart({ engineKey: ENGINE_KEY, profile: { engine: "sim", args: { "decode-tps": 0 } } }));
  const { pid, port } = await control.untilState("r1", "ready", STARTED_MS);
  const { port: controlPort, credentials } = control;
  await control.close();
  const answer = await fetch(`http://127.0.0.1:${port}/v1/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${ENGINE_KEY}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "m", prompt: "Hi", max_tokens: 2 }),
  });
  assert.equal(answer.status, 200);
  await using again = await FakeControlPlane.start({ credentials }, controlPort);
  const shard = await again.untilShard("r1", "is told of", () => true, STARTED_MS);
  assert.deepEqual([shard.state, shard.pid], ["ready", pid]);
});

test("an engine listens to the node's own address alone, and asks for its key [80.C41 80.D30]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  await control.command(aStart({ engineKey: ENGINE_KEY, profile: { engine: "sim" } }));
  const { pid, port } = await control.untilState("r1", "ready", STARTED_MS);
  assert.deepEqual(listeningOf(pid ?? 0), [`127.0.0.1:${port}`]);
  const ask = await fetch(`http://127.0.0.1:${port}/v1/completions`, { method: "POST", body: "{}" });
  assert.equal(ask.status, 401);
});

test("an engine whose own page says for a minute that it can't serve has failed, and is ended [40.N6]", async () => {
  await using world = await agentWorld();
  const { control, folder } = world;
  await world.startAgent({ clock: fastClock(20) });
  await untilLed(control);
  const sick = join(folder, "sick");
  await control.command(world.hostileStart([`sick=${sick}`], { startStallMs: 600_000 }));
  await control.untilState("r1", "ready", STARTED_MS);
  writeFileSync(sick, "");
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.equal(end.failure?.kind, "unhealthy");
});

test("a record of memory that ran out makes a SIGKILL an end for want of memory [80.A12]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  let kills = 3;
  await world.startAgent({
    memoryDeaths: {
      count: () => kills,
      explain: (since, pids) =>
        pids.size > 0 && since === 3 && kills > 3
          ? { kind: "thisEngine", record: "Out of memory: Killed process 7 (x)" }
          : { kind: "none" },
    },
  });
  await untilLed(control);
  await control.command(world.hostileStart([]));
  const { pid } = await control.untilState("r1", "ready", STARTED_MS);
  kills += 1;
  process.kill(pid ?? 0, "SIGKILL");
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.deepEqual([end.failure?.kind, end.failure?.signal], ["oom", "SIGKILL"]);
  assert.match(end.failure?.message ?? "", /Killed process 7/);
});

test("what a node does not allow is refused with its reason, and reported as a start that failed [40.N5 80.C40]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  const rows = [
    { replicaId: "shell", profile: { engine: "command", command: ["/bin/sh", "-c", "id"] } },
    { replicaId: "preload", profile: { engine: "sim", env: { LD_PRELOAD: "/tmp/x.so" } } },
    { replicaId: "flag", profile: { engine: "sim", args: { listen: "0.0.0.0:80" } } },
  ] as const;
  for (const row of rows) {
    const answer = await control.command(aStart({ ...row, engineKey: ENGINE_KEY }));
    assert.deepEqual([answer.outcome, answer.code], ["refused", "LAUNCH_REFUSED"]);
    const shard = await control.untilState(row.replicaId, "failed");
    assert.equal(shard.failure?.kind, "refused");
  }
  assert.deepEqual(readdirSync(join(world.folder, "agent/logs")), []);
});

test("a source that this version can't fetch, or that is not there, is a failed fetch with its reason", async () => {
  await using world = await ledAgent();
  const { control, folder } = world;
  const source = (replicaId: string, from: string): ReturnType<typeof world.hostileStart> =>
    world.hostileStart([], { replicaId, profile: { source: from } });
  await control.command(source("other", "ftp://host/model"));
  await control.command(source("lost", "nothing-here"));
  await mkdir(join(folder, "weights"), { recursive: true });
  writeFileSync(join(folder, "weights/model.gguf"), "x");
  await control.command(source("there", "model.gguf"));
  assert.match((await control.untilState("other", "failed")).failure?.message ?? "", /ftp:\/\/ are not known/);
  assert.match((await control.untilState("lost", "failed")).failure?.message ?? "", /there is no .*nothing-here/);
  await control.untilState("there", "ready", STARTED_MS);
});

test("a later generation waits until the earlier one has ended, and an earlier one never comes back [80.A3]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  await control.command(world.hostileStart([], { generation: 1 }));
  const { pid } = await control.untilState("r1", "ready", STARTED_MS);
  const early = await control.command(world.hostileStart([], { generation: 2 }));
  assert.deepEqual([early.outcome, early.code], ["refused", "SHARD_BUSY"]);
  await control.untilState("r1", "stopped", STARTED_MS);
  assert.equal((await control.command(world.hostileStart([], { generation: 2 }))).outcome, "accepted");
  const next = await control.untilShard(
    "r1",
    "is ready anew",
    (shard) => shard.generation === 2 && shard.state === "ready",
    STARTED_MS,
  );
  assert.notEqual(next.pid, pid);
  const stale = await control.command(world.hostileStart([], { generation: 1 }));
  assert.equal(stale.code, "STALE_GENERATION");
  const old = await control.command({ kind: "stop", replicaId: "r1", generation: 1, graceMs: 1, why: "test" });
  assert.equal(old.code, "STALE_GENERATION");
});

test("two agents of one machine run a replica of the same name each, and one's end is none of the other's [80.A5]", async () => {
  await using one = await ledAgent();
  await using other = await ledAgent();
  for (const world of [one, other]) {
    await world.control.command(world.hostileStart(["child=new-session"]));
    await world.control.untilState("r1", "ready", STARTED_MS);
  }
  await one.control.command({ kind: "stop", replicaId: "r1", generation: 1, graceMs: 100, why: "test" });
  await one.control.untilState("r1", "stopped", STARTED_MS);
  const { shards } = await other.control.nextReport();
  assert.deepEqual([shards[0]?.state, shards[0]?.failure], ["ready", null]);
});

test("no secret is in the agent's log, in what it tells, or in a file that others can read [40.N1]", async () => {
  await using world = await ledAgent();
  const { control, folder } = world;
  await control.command(world.hostileStart([`lines=the key is ${ENGINE_KEY} indeed`]));
  await control.untilState("r1", "ready", STARTED_MS);
  await control.command({ kind: "logs", requestId: "q", replicaId: "r1", lines: 10 });
  const told = control.heard.findLast(({ message }) => message.type === "logs")?.message;
  assert.deepEqual(told?.type === "logs" ? told.lines : [], ["the key is [redacted] indeed"]);
  assert.doesNotMatch(JSON.stringify(control.heard), /CANARY/);
  assert.doesNotMatch(world.log(), /CANARY/);
  const modes = readdirSync(join(folder, "agent"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && readFileSync(join(entry.parentPath, entry.name), "utf8").includes("CANARY"))
    .map((entry) => join(entry.parentPath, entry.name));
  for (const path of modes) assert.equal(statSync(path).mode & 0o077, 0, path);
  assert.ok(modes.length > 0);
});
