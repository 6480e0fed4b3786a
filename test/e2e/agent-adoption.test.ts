import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { aStart } from "../../src/testing/a-start.ts";
import type { FakeControlPlane } from "../../src/testing/fake-control-plane.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { agentProcess } from "./support/agent-process.ts";
import { runProgram } from "./support/program.ts";
import { agentWorld, ENGINE_KEY, TOKEN, untilLed } from "./support/test-agent.ts";
import { listeningOf } from "./support/yardmaster-process.ts";

const STARTED_MS = 60_000;
const ADOPTED_MS_MAX = 10_000;
const STOPPED_MS = 6_000;

const slowSim = aStart({
  engineKey: ENGINE_KEY,
  profile: { engine: "sim", args: { "decode-tps": 20, "prefill-tps": 0 } },
});

interface Stream {
  readonly firstByte: Promise<void>;
  readonly text: Promise<string>;
}
function stream(port: number, tokens: number): Stream {
  const { promise: firstByte, resolve } = Promise.withResolvers<void>();
  const read = async (): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${port}/v1/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${ENGINE_KEY}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", prompt: "Hi", max_tokens: tokens, stream: true }),
    });
    let text = "";
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk).toString();
      resolve();
    }
    return text;
  };
  return { firstByte, text: read() };
}

/** Processes that bear the mark of an engine: its key, under the name that this kind of engine has for it. */
const enginesRunning = (variable = "YARDMASTER_SIM_KEY"): number[] =>
  readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, "latin1").includes(`${variable}=${ENGINE_KEY}`);
      } catch {
        return false;
      }
    });

const isThere = (pid: number): boolean => readdirSync("/proc").includes(String(pid));

/** Ends a process that is nobody's child here, and waits until it has gone. */
async function killAndWait(pid: number): Promise<void> {
  process.kill(pid, "SIGKILL");
  await eventually(
    "its end",
    () => isThere(pid),
    (there) => !there,
  );
}

async function untilReady(control: FakeControlPlane): Promise<{ pid: number; port: number }> {
  const { pid, port } = await control.untilState("r1", "ready", STARTED_MS);
  return { pid: pid ?? 0, port: port ?? 0 };
}

test("an agent that is killed while its engine streams finds it again in time: no stream is cut and no process is new [80.A3 40.N4]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await using first = await agentProcess(world);
  await untilLed(control);
  await control.command(slowSim);
  const { pid, port } = await untilReady(control);
  assert.deepEqual(enginesRunning(), [pid]);
  const streams = Array.from({ length: 4 }, () => stream(port, 160));
  await Promise.all(streams.map((one) => one.firstByte));
  process.kill(first.pid, "SIGKILL");
  await first.end();

  const restartedAt = systemClock.mono();
  const from = control.heard.length;
  await using second = await agentProcess(world);
  await control.until("a report of the new agent", () =>
    control.heard.slice(from).some(({ message }) => message.type === "report"),
  );
  const adopted = await control.untilShard("r1", "is adopted", (shard) => shard.adopted && shard.state === "ready");
  assert.ok(systemClock.mono() - restartedAt < ADOPTED_MS_MAX);
  assert.deepEqual([adopted.pid, adopted.port, adopted.generation], [pid, port, 1]);
  for (const { text } of streams) assert.match(await text, /"finish_reason":"length"[\s\S]*\[DONE\]\s*$/);
  const ledger = (await (await fetch(`http://127.0.0.1:${port}/sim/ledger`)).json()) as Record<string, number>;
  // The agent's own tiny inference was the fifth call; the second agent asked for none.
  assert.deepEqual([ledger["opened"], ledger["finished"], ledger["failed"], ledger["aborted"]], [5, 5, 0, 0]);
  assert.deepEqual(enginesRunning(), [pid]);
  assert.equal(control.shown.filter((bearer) => bearer === TOKEN).length, 1);

  // The engine is its own again: it is told to end, and its end is seen.
  control.lead({ epoch: 2, holder: "holder-2" });
  await control.until("the new lead", () => control.report?.highestEpoch?.epoch === 2);
  await control.command(
    { kind: "stop", replicaId: "r1", generation: 1, graceMs: 5_000, why: "test" },
    { epoch: 2, holder: "holder-2", seq: 1 },
  );
  await control.untilState("r1", "stopped", STARTED_MS);
  assert.deepEqual(enginesRunning(), []);
  assert.deepEqual(listeningOf(second.pid), []);
  process.kill(second.pid, "SIGTERM");
  assert.equal((await second.end()).code, 0);
});

test("SIGTERM leaves the engines running for the next agent; with --stop-engines they are stopped first [40.N4]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await using first = await agentProcess(world);
  await untilLed(control);
  await control.command(slowSim);
  const { pid } = await untilReady(control);
  process.kill(first.pid, "SIGTERM");
  assert.equal((await first.end()).code, 0);
  assert.deepEqual(enginesRunning(), [pid]);

  const from = control.heard.length;
  await using second = await agentProcess(world, ["--stop-engines"]);
  await control.until("a report of the new agent", () =>
    control.heard.slice(from).some(({ message }) => message.type === "report"),
  );
  await control.untilShard("r1", "is adopted", (shard) => shard.adopted && shard.state === "ready");
  process.kill(second.pid, "SIGTERM");
  assert.equal((await second.end()).code, 0);
  assert.deepEqual(enginesRunning(), []);
  assert.equal(control.shard("r1")?.failure ?? null, null);
});

test("an agent that ends its engines begins no other, also where one is asked for in the place of what has stopped [40.N4]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await using agent = await agentProcess(world, ["--stop-engines"]);
  await untilLed(control);
  await control.command({ ...slowSim, stopGraceMs: STOPPED_MS });
  const { pid } = await untilReady(control);
  // It ends no sooner than it is killed.
  process.kill(pid, "SIGSTOP");
  process.kill(agent.pid, "SIGTERM");
  await control.untilState("r1", "stopping", STARTED_MS);
  const refused = await control.command({ ...slowSim, replicaId: "r2" });
  assert.deepEqual([refused.outcome, refused.code], ["refused", "AGENT_BUSY"]);
  assert.equal((await agent.end()).code, 0);
  assert.deepEqual(enginesRunning(), []);
});

test("an engine that ended while no agent ran has failed, and what is left of it is ended [80.A3 40.N4b]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await world.startAgent();
  await untilLed(control);
  await control.command(world.hostileStart(["child=new-session"]));
  const { pid } = await untilReady(control);
  await world.stopAgent();
  await killAndWait(pid);
  await world.startAgent();
  const end = await control.untilState("r1", "failed", STARTED_MS);
  assert.deepEqual([end.failure?.kind, end.failure?.exitCode], ["exit", null]);
  assert.deepEqual(enginesRunning("YARDMASTER_ENGINE_KEY"), []);
});

test("a process that has an engine's number and not its mark is neither taken over nor touched [80.A3]", async () => {
  await using world = await agentWorld();
  const { control, folder } = world;
  await world.startAgent();
  await untilLed(control);
  await control.command(world.hostileStart([]));
  const { pid } = await untilReady(control);
  await world.stopAgent();
  await killAndWait(pid);
  // As if the number had been given to this test's own process.
  const [name = ""] = readdirSync(join(folder, "agent/shards"));
  const path = join(folder, "agent/shards", name);
  const record = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
  const other = runProgram(["sim-engine", "--listen", "127.0.0.1:0"]);
  await other.ready();
  const ticks = Number(readFileSync(`/proc/${other.pid}/stat`, "latin1").split(") ").at(-1)?.split(" ")[19]);
  await writeFile(path, JSON.stringify({ ...record, main: { pid: other.pid, startTicks: ticks } }));
  await world.startAgent();
  await control.untilState("r1", "failed", STARTED_MS);
  assert.equal(isThere(other.pid), true);
  process.kill(other.pid, "SIGTERM");
  assert.equal((await other.end()).code, 0);
});

test("after a reboot nothing is taken over, and the new run of the machine is told [80.A4]", async () => {
  await using world = await agentWorld();
  const { control, folder } = world;
  await world.startAgent();
  await untilLed(control);
  await control.command(world.hostileStart(["exit=1"]));
  await control.untilState("r1", "failed", STARTED_MS);
  await world.stopAgent();
  for (const name of ["agent.json", ...readdirSync(join(folder, "agent/shards")).map((file) => `shards/${file}`)]) {
    const path = join(folder, "agent", name);
    const file = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
    await writeFile(path, JSON.stringify({ ...file, bootId: "the-run-before" }));
  }
  await world.startAgent();
  const report = await control.nextReport();
  assert.deepEqual(report.shards, []);
  assert.notEqual(report.bootId, "the-run-before");
  assert.deepEqual(readdirSync(join(folder, "agent/shards")), []);
});

test("an engine of this agent whose record was lost is ended at the next start [80.A5]", async () => {
  await using world = await agentWorld();
  const { control, folder } = world;
  await world.startAgent();
  await untilLed(control);
  await control.command(world.hostileStart(["deaf"]));
  const { pid } = await untilReady(control);
  await world.stopAgent();
  await rm(join(folder, "agent/shards"), { recursive: true });
  await world.startAgent();
  assert.equal(isThere(pid), false);
  assert.match(world.log(), /engine\.stray/);
});

test("two agents never run on one folder, and a killed one's lock holds nobody up", async () => {
  await using world = await agentWorld();
  await world.startAgent();
  await assert.rejects(world.startAgent(), /in use by another agent/);
});

test("an agent that stood still does nothing that was asked meanwhile and is late when it goes on [80.C4 80.D27]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await using program = await agentProcess(world);
  await untilLed(control);
  const stop = { kind: "stop", replicaId: "r9", generation: 1, graceMs: 1, why: "test" } as const;
  assert.equal((await control.command(stop, { validForMs: 30_000 })).outcome, "done");
  process.kill(program.pid, "SIGSTOP");
  const late = control.command(slowSim, { validForMs: STOPPED_MS / 2 });
  const inTime = control.command({ ...stop, replicaId: "r8" }, { validForMs: 60_000 });
  // The fault itself: nothing happens for this long.
  await systemClock.sleep(STOPPED_MS, new AbortController().signal);
  process.kill(program.pid, "SIGCONT");
  assert.deepEqual([(await late).outcome, (await late).code], ["refused", "EXPIRED"]);
  assert.equal((await inTime).outcome, "done");
  assert.deepEqual((await control.nextReport()).shards, []);
  assert.deepEqual(enginesRunning(), []);
});
