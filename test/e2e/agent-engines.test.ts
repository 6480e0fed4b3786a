import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import { aStart } from "../../src/testing/a-start.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { CARD, ENGINE_KEY, ledAgent, onCard, ONE_CARD } from "./support/test-agent.ts";

const STARTED_MS = 60_000;
const isAlive = (pid: number): boolean => {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
};

test("a simulated engine is started by a command, serves with its key alone, is stopped, and forgotten [40.N5 40.N6]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  const start = aStart({
    engineKey: ENGINE_KEY,
    profile: { engine: "sim", args: { "decode-tps": 0, "prefill-tps": 0 } },
  });
  assert.equal((await control.command(start)).outcome, "accepted");
  const ready = await control.untilState("r1", "ready", STARTED_MS);
  assert.ok(ready.pid !== null && ready.port !== null && ready.hostUsedMib !== null);
  const ask = (key: string): Promise<Response> =>
    fetch(`http://127.0.0.1:${ready.port}/v1/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m-alias", prompt: "Hi", max_tokens: 1 }),
    });
  assert.deepEqual([(await ask(ENGINE_KEY)).status, (await ask("wrong-key")).status], [200, 401]);
  const argv = readFileSync(`/proc/${ready.pid}/cmdline`, "utf8");
  assert.doesNotMatch(argv, /CANARY/);
  assert.match(argv, /--decode-tps=0/);
  assert.doesNotMatch(readFileSync(`/proc/${ready.pid}/environ`, "utf8"), /CANARY-environment|NODE_OPTIONS/);

  assert.equal((await control.command(start, { commandId: "again" })).outcome, "done");
  const stopped = await control.command({ kind: "stop", replicaId: "r1", generation: 1, graceMs: 5_000, why: "test" });
  assert.equal(stopped.outcome, "accepted");
  const end = await control.untilState("r1", "stopped", STARTED_MS);
  assert.deepEqual([end.failure, isAlive(ready.pid)], [null, false]);
  assert.equal((await control.command({ kind: "forget", replicaId: "r1", generation: 1 })).outcome, "done");
  await control.until("the report without it", () => control.report?.shards.length === 0);
  const late = await control.command(start, { commandId: "late" });
  assert.deepEqual([late.outcome, late.code], ["refused", "STALE_GENERATION"]);
  assert.doesNotMatch(world.log(), /CANARY/);
});

test("a child in a session of its own that is deaf to SIGTERM and holds the card is killed with its engine, and the card is seen free first [80.A5 40.N4]", async () => {
  await using world = await ledAgent({ gpus: ONE_CARD });
  const { control, smi } = world;
  const holders = smi?.holders ?? "";
  const words = ["child=new-session", `childhold=${CARD}:60000:${holders}`];
  await control.command(world.hostileStart(words, { gpuUuids: [CARD], profile: { gpu: onCard } }));
  await control.untilShard("r1", "uses the card", (shard) => (shard.gpuUsedMib?.[CARD] ?? 0) === 60_000, STARTED_MS);
  assert.equal(control.report?.gpus[0]?.foreignMib, 0);
  const { pid } = await control.untilState("r1", "ready", STARTED_MS);
  process.kill(pid ?? 0, "SIGKILL");
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.deepEqual([end.failure?.kind, end.failure?.signal], ["signal", "SIGKILL"]);
  assert.match(end.failure?.message ?? "", /while it served/);
  const report = await control.nextReport();
  assert.equal(report.gpus[0]?.usedMib, 4);
  // While anything of it was left, it was not said to have ended.
  const wrong = control.heard.some(({ message }) => {
    if (message.type !== "report") return false;
    const shard = message.report.shards[0];
    return shard?.state === "failed" && (message.report.gpus[0]?.usedMib ?? 0) > 4;
  });
  assert.equal(wrong, false);
});

test("a child that drops environment and session while its engine lives is found by its descent, or by the control group [80.A5]", async () => {
  await using world = await ledAgent({ gpus: ONE_CARD });
  const { control, smi } = world;
  const words = ["child=bare", `childhold=${CARD}:9000:${smi?.holders ?? ""}`];
  await control.command(world.hostileStart(words, { gpuUuids: [CARD], profile: { gpu: onCard } }));
  await control.untilShard(
    "r1",
    "uses the card",
    (shard) => shard.state === "ready" && shard.gpuUsedMib?.[CARD] === 9_000,
    STARTED_MS,
  );
  await control.command({ kind: "stop", replicaId: "r1", generation: 1, graceMs: 500, why: "test" });
  await control.untilState("r1", "stopped", STARTED_MS);
  assert.equal((await control.nextReport()).gpus[0]?.usedMib, 4);
});

test("an engine that is deaf to SIGTERM is killed after its grace [40.N4]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  await control.command(world.hostileStart(["deaf"]));
  const { pid } = await control.untilState("r1", "ready", STARTED_MS);
  await control.command({ kind: "stop", replicaId: "r1", generation: 1, graceMs: 300, why: "test" });
  await control.untilState("r1", "stopped", STARTED_MS);
  assert.equal(isAlive(pid ?? 0), false);
});

const deaths: readonly {
  readonly name: string;
  readonly words: readonly string[];
  readonly kind: string;
  readonly says: RegExp;
}[] = [
  { name: "ends with 0", words: ["exit=0", "after=1500"], kind: "exit", says: /code 0/ },
  {
    name: "ends with 7 before it listens",
    words: ["exit=7", "lines=loading\\nthen nothing"],
    kind: "exit",
    says: /code 7 before/,
  },
  { name: "dies of SIGILL", words: ["signal=SIGILL", "lines=warming up"], kind: "signal", says: /SIGILL/ },
  { name: "dies of SIGSEGV", words: ["signal=SIGSEGV", "after=1500"], kind: "signal", says: /SIGSEGV/ },
  { name: "dies of SIGBUS", words: ["signal=SIGBUS"], kind: "signal", says: /SIGBUS/ },
  { name: "dies of SIGABRT", words: ["signal=SIGABRT"], kind: "signal", says: /SIGABRT/ },
  {
    name: "runs out of GPU memory at the first request",
    words: ["exit=1", "after=1500", "lines=torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB"],
    kind: "gpuOom",
    says: /Tried to allocate/,
  },
  {
    name: "finds its port taken",
    words: ["exit=1", "lines=[Errno 98] address already in use"],
    kind: "port",
    says: /port is taken/,
  },
];
for (const { name, words, kind, says } of deaths) {
  test(`an engine that ${name} has failed, by name and with its last lines, and is not started again [40.N4b 80.A12]`, async () => {
    await using world = await ledAgent();
    const { control } = world;
    await control.command(world.hostileStart(words));
    const { failure } = await control.untilState("r1", "failed", STARTED_MS);
    assert.equal(failure?.kind, kind);
    assert.match(failure?.message ?? "", says);
    const lines =
      words
        .find((word) => word.startsWith("lines="))
        ?.slice("lines=".length)
        .split("\\n") ?? [];
    assert.deepEqual(failure?.lastLines, lines);
    const { shards } = await control.nextReport();
    assert.deepEqual([shards.length, shards[0]?.state, shards[0]?.pid], [1, "failed", null]);
  });
}

test("an engine that only talks is a start without progress, and is ended [40.N6]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  await control.command(world.hostileStart(["chatter"], { startStallMs: 1_500 }));
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.equal(end.failure?.kind, "stall");
  assert.ok(end.failure?.lastLines.every((line) => line === "still loading"));
});

test("what an engine writes without end stays within its bounds, and never stops it [40.N4]", async () => {
  await using world = await ledAgent();
  const { control, folder } = world;
  await control.command(world.hostileStart(["flood"]));
  const { port } = await control.untilState("r1", "ready", STARTED_MS);
  const [name] = readdirSync(`${folder}/agent/logs`);
  const log = `${folder}/agent/logs/${name}`;
  // It is copied whole and then cut, so a look in between finds what was written since the last cut.
  await eventually(
    "the file before the log, within its bound",
    () => (existsSync(`${log}.1`) ? statSync(`${log}.1`).size : 0),
    (bytes) => bytes > 0 && bytes <= 8 * 1024 * 1024,
    STARTED_MS,
  );
  assert.equal((await fetch(`http://127.0.0.1:${port}/health`)).status, 200);
  const logs = await control.command({ kind: "logs", requestId: "q", replicaId: "r1", lines: 3 });
  assert.equal(logs.outcome, "done");
  const told = control.heard.findLast(({ message }) => message.type === "logs")?.message;
  assert.equal(told?.type === "logs" ? told.lines.length : 0, 3);
});
