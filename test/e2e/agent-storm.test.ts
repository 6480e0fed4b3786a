import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import { FakeAgent } from "../../src/testing/fake-agent.ts";
import { aGpu } from "../../src/testing/fleet-builders.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { applyCatalog, leadingControl, tokenFor } from "./support/fake-fleet.ts";
import { crowdingOf } from "./support/run-queue.ts";
import type { NodeAnswer } from "../../src/contract/control-api.ts";

const AGENTS = 120;
const PER_S_MAX = 50;

/** As an agent does, it dials again when a busy machine was too slow for its link. Returns how often it was refused. */
async function untilSo(agent: FakeAgent, url: string, what: string, isSo: () => boolean): Promise<number> {
  let refused = 0;
  while (!isSo()) {
    agent.connect(url);
    const isOver = (): boolean => agent.closedWith !== null || agent.refusedWith !== null;
    await agent.until(`${what} of ${agent.name}`, () => isSo() || isOver());
    if (agent.refusedWith !== null) refused += 1;
  }
  return refused;
}

test("a fleet that reconnects at once is let in one after another, none is refused, the API answers meanwhile, and nothing is placed or stopped for it [80.A17]", async () => {
  await using control = await leadingControl();
  const agents = await Promise.all(
    Array.from({ length: AGENTS }, async (_, at) => {
      const agent = new FakeAgent(`node-${at}`, await tokenFor(control, `node-${at}`));
      agent.part = { gpus: [aGpu(`node-${at}/0`)], address: "127.0.0.1" };
      return agent;
    }),
  );
  await Promise.all(agents.map((agent) => untilSo(agent, control.url, "the lead", () => agent.highestEpoch !== null)));
  const models = Array.from({ length: 40 }, (_, at) => ({
    name: `m${at}`,
    profiles: [{ engine: "vllm", gpu: { class: ["h200"], memory_gb: 20 }, source: "/weights/m" }],
  }));
  await applyCatalog(control, models);
  await eventually(
    "forty ready replicas",
    () => {
      for (const agent of agents) agent.report();
      return control.ask<{ replicas: { state: string }[] }>("GET", "/v1/replicas");
    },
    ({ body }) => body.replicas.length === 40 && body.replicas.every(({ state }) => state === "ready"),
    30_000,
  );
  const commands = (): number => agents.reduce((sum, agent) => sum + agent.commands.length, 0);
  const before = commands();
  for (const agent of agents) agent.cut();
  await Promise.all(agents.map((agent) => agent.until("its end", () => agent.closedWith !== null)));
  const from = systemClock.mono();
  const welcomes = agents.map(({ heard }) => heard.length);
  const backAt: number[] = [];
  let refused = 0;
  const back = Promise.all(
    agents.map(async (agent, at) => {
      const isBack = (): boolean => agent.heard.slice(welcomes[at]).some(({ type }) => type === "welcome");
      refused += await untilSo(agent, control.url, "the welcome", isBack);
      backAt.push(systemClock.mono() - from);
    }),
  );
  const crowding = crowdingOf(process.pid);
  let slowest = 0;
  let asked = 0;
  let over = false;
  back.finally(() => (over = true)).catch(() => {}); // Told below.
  while (!over) {
    const start = systemClock.mono();
    assert.equal((await control.ask("GET", "/v1/status")).status, 200);
    slowest = Math.max(slowest, systemClock.mono() - start);
    asked += 1;
  }
  await back;
  const allMs = Math.max(...backAt);
  assert.ok(asked > 10 && slowest < 500 * crowding(), `the slowest of ${asked} answers took ${Math.round(slowest)} ms`);
  assert.ok(allMs >= ((AGENTS - 1) / PER_S_MAX) * 1_000, `all were back after ${Math.round(allMs)} ms`);
  assert.ok(allMs < 60_000);
  assert.equal(refused, 0);
  for (const agent of agents) agent.report();
  const { body } = await control.ask<{ nodes: NodeAnswer[] }>("GET", "/v1/nodes");
  assert.ok(body.nodes.every(({ state }) => state === "ready"));
  assert.equal(commands(), before, "no command was needed");
  for (const agent of agents) agent.cut();
});
