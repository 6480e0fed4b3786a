// B13: what 500 connected agents cost a control plane, and how long a whole fleet takes to come back: `node bench/fleet.ts [--agents N]
// [--seconds S] [--write]`. The control plane is the program itself in a process of its own, on SQLite; the agents are the protocol over
// real sockets in this process, with 8 cards and 2 engines each, a report every 2 s and the agents' own redialling. Processor time and
// the delay of the event loop are read from the control plane's metrics. --write puts the result into docs/benchmarks.md.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { redialDelay } from "../src/decide/link/redial.ts";
import { systemClock } from "../src/kernel/clock.ts";
import { seededRandom } from "../src/kernel/random.ts";
import { parsePrometheus } from "../src/testing/exposition-parser.ts";
import { FakeAgent } from "../src/testing/fake-agent.ts";
import { someGpus } from "../src/testing/fleet-builders.ts";
import { freePort } from "../src/testing/servers/server-process.ts";
import { machine, showTable } from "./page-table.ts";

const { values } = parseArgs({
  options: {
    agents: { type: "string", default: "500" },
    seconds: { type: "string", default: "20" },
    write: { type: "boolean", default: false },
  },
});
const AGENTS = Number(values.agents);
const SECONDS = Number(values.seconds);
const HEARTBEAT_MS = 2_000;
const ENGINES_EACH = 2;
const ROOT = join(import.meta.dirname, "..");
const never = new AbortController().signal;
const sleep = (ms: number): Promise<void> => systemClock.sleep(ms, never);
const random = seededRandom(13);

const folder = mkdtempSync(join(tmpdir(), "yardmaster-fleet-"));
const port = await freePort();
const url = `http://127.0.0.1:${port}`;

interface Control {
  readonly kill: () => Promise<void>;
}

async function startControl(): Promise<Control> {
  const args = ["control", "--listen", `127.0.0.1:${port}`, "--data-dir", folder, "--log-level", "warn"];
  const child = spawn(join(ROOT, "bin", "yardmaster"), args, { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
  const closed = once(child, "close");
  await Promise.race([
    once(child.stdout, "data"),
    closed.then(() => Promise.reject(new Error("the control plane did not start"))),
  ]);
  return {
    kill: async () => {
      child.kill("SIGKILL");
      await closed;
    },
  };
}

const key = (): string => readFileSync(join(folder, "operator.key"), "utf8").trim();
async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers = { authorization: `Bearer ${key()}` };
  const answer = await fetch(
    url + path,
    body === undefined ? { method, headers } : { method, headers, body: JSON.stringify(body) },
  );
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as T;
}

/** Of the control plane's metrics. The delay is that since the scrape before. */
async function metrics(): Promise<{ cpuS: number; delayP99Ms: number; passMs: number; passes: number }> {
  const families = parsePrometheus(await (await fetch(`${url}/metrics`)).text());
  const samples = families.flatMap((family) => family.samples);
  const sum = (name: string): number =>
    samples.filter((sample) => sample.name === name).reduce((total, { value }) => total + value, 0);
  const p99 = samples.find(
    ({ name, labels }) => name === "yardmaster_event_loop_delay_seconds" && labels["stat"] === "p99",
  );
  return {
    cpuS: sum("yardmaster_process_cpu_seconds_total"),
    delayP99Ms: (p99?.value ?? 0) * 1_000,
    passMs: sum("yardmaster_pass_seconds_sum") * 1_000,
    passes: sum("yardmaster_pass_seconds_count"),
  };
}

async function until(what: string, holds: () => boolean | Promise<boolean>, ms = 120_000): Promise<number> {
  const from = systemClock.mono();
  while (!(await holds())) {
    if (systemClock.mono() - from > ms) throw new Error(`${what}: not within ${ms} ms`);
    await sleep(20);
  }
  return systemClock.mono() - from;
}

async function enrol(): Promise<readonly FakeAgent[]> {
  const agents: FakeAgent[] = [];
  for (let at = 0; at < AGENTS; at += 1) {
    const { token } = await ask<{ token: string }>("POST", "/v1/enrolment-tokens", { node: `node-${at}` });
    const agent = new FakeAgent(`node-${at}`, token);
    agent.part = { gpus: someGpus(`node-${at}`, 8), engines: ["vllm"] };
    agent.connect(url);
    agents.push(agent);
  }
  await until("every agent's lead", () => agents.every(({ highestEpoch }) => highestEpoch !== null));
  return agents;
}

/** Each at its own moment of the interval, for as long as the bench runs. */
async function beat(agent: FakeAgent): Promise<void> {
  await sleep(random.next() * HEARTBEAT_MS);
  for (;;) {
    agent.report();
    await sleep(HEARTBEAT_MS);
  }
}

/** As an agent redials, until it is welcomed. Returns ms. */
async function comeBack(agent: FakeAgent): Promise<number> {
  const from = systemClock.mono();
  const heard = agent.heard.length;
  const isBack = (): boolean => agent.heard.slice(heard).some(({ type }) => type === "welcome");
  await agent.until("its end", () => agent.closedWith !== null, 60_000);
  let heldMs = Number.POSITIVE_INFINITY;
  for (let failures = 0; ; failures += 1) {
    await sleep(redialDelay({ kind: "ended", heldMs }, failures, random.next()));
    agent.connect(url);
    await agent.until("an answer", () => isBack() || agent.closedWith !== null || agent.refusedWith !== null, 60_000);
    if (isBack()) return systemClock.mono() - from;
    heldMs = 0;
  }
}

let control = await startControl();
const agents = await enrol();
for (const agent of agents) void beat(agent);
const count = AGENTS * ENGINES_EACH;
const models = Array.from({ length: count }, (_, at) => ({
  name: `model-${at}`,
  profiles: [{ engine: "vllm", source: `/weights/${at}`, gpu: { class: ["h200"], memory_gb: 60 } }],
}));
const applied = systemClock.mono();
await ask("PUT", "/v1/catalog", { models });
await until("all replicas are ready", async () => {
  const { replicas } = await ask<{ replicas: Record<string, number> }>("GET", "/v1/status");
  return replicas["ready"] === count;
});
const placedS = (systemClock.mono() - applied) / 1_000;
process.stderr.write(`${count} replicas were ready after ${placedS.toFixed(1)} s\n`);
await sleep(5_000);
const before = await metrics();
await sleep(SECONDS * 1_000);
const after = await metrics();
const cpuShare = (after.cpuS - before.cpuS) / SECONDS;
const commands = agents.reduce((sum, agent) => sum + agent.commands.length, 0);

const backs = agents.map((agent) => comeBack(agent));
await control.kill();
control = await startControl();
const backMs = Math.max(...(await Promise.all(backs)));
await until("every node is ready", async () => {
  const { nodes } = await ask<{ nodes: Record<string, number> }>("GET", "/v1/status");
  return nodes["ready"] === AGENTS;
});
await sleep(5_000);
const needless = agents.reduce((sum, agent) => sum + agent.commands.length, 0) - commands;
await control.kill();
rmSync(folder, { recursive: true, force: true, maxRetries: 5 });

const grade = (value: number, first: number, goal: number): string =>
  value <= goal ? "goal" : value <= first ? "first stage" : "**missed**";
const passMs = (after.passMs - before.passMs) / Math.max(1, after.passes - before.passes);
showTable(
  "fleet",
  [
    `Machine: ${machine()}; ${AGENTS} agents of 8 cards, ${count} replicas, ${SECONDS} s; the agents' side runs on the same machine. All ${count} models were ready ${placedS.toFixed(0)} s after the catalog was given. A pass took ${passMs.toFixed(1)} ms on average. Commands after the restart: ${needless}.`,
    "",
    "| bar | what | measured | first stage | goal | |",
    "| --- | --- | --- | --- | --- | --- |",
    `| B13 | control plane's CPU, of a core | ${(cpuShare * 100).toFixed(1)} % | ≤ 35 % | ≤ 10 % | ${grade(cpuShare, 0.35, 0.1)} |`,
    `| B13 | event loop delay, p99 | ${after.delayP99Ms.toFixed(1)} ms | ≤ 100 ms | ≤ 20 ms | ${grade(after.delayP99Ms, 100, 20)} |`,
    `| B13 | all back after a killed control plane | ${(backMs / 1_000).toFixed(1)} s | ≤ 60 s | ≤ 15 s | ${grade(backMs, 60_000, 15_000)} |`,
  ],
  values.write,
);
process.exit(0);
