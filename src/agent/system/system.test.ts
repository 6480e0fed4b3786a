import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { PROOF_VARIABLE } from "../../decide/agent/launch/environment.ts";
import { LinuxProcesses, parseStat } from "./linux-processes.ts";
import { systemMemoryDeaths } from "./memory-deaths.ts";
import { cpuQuota, readCores, readDiskFreeMib, readMemory } from "./node-facts.ts";

test("a process's name may hold anything, brackets and blanks too", () => {
  const rest = "S 1 77 78 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
  const expected = { parent: 1, session: 78, startTicks: 4_242, zombie: false };
  for (const name of ["node", "a) S 9 9 9 (b", "((((", ""])
    assert.deepEqual(parseStat(`12 (${name}) ${rest}`), expected);
  assert.equal(parseStat(`12 (x) Z${rest.slice(1)}`)?.zombie, true);
  assert.equal(parseStat(""), null);
});

test("a process is found with its proof, its memory and its start, and signalled only as long as it is that one [80.A5]", async () => {
  const processes = new LinuxProcesses();
  const child = spawn("sleep", ["600"], {
    env: { PATH: process.env["PATH"], [PROOF_VARIABLE]: "the-proof" },
    stdio: "ignore",
  });
  await once(child, "spawn");
  const pid = child.pid ?? 0;
  const found = (await processes.list()).find((entry) => entry.pid === pid);
  assert.deepEqual([found?.proof, found?.parent, found?.zombie], ["the-proof", process.pid, false]);
  const startTicks = found?.startTicks ?? 0;
  assert.equal(processes.startTicksOf(pid), startTicks);
  assert.ok((processes.memoryMib(pid) ?? -1) >= 0);
  assert.ok(processes.ancestry(pid).includes(process.pid));
  assert.equal(processes.signal({ pid, startTicks: startTicks + 1 }, "SIGKILL"), false);
  assert.equal(child.exitCode, null);
  assert.equal(processes.signal({ pid, startTicks }, "SIGKILL"), true);
  await once(child, "exit");
  assert.deepEqual([processes.startTicksOf(pid), processes.signal({ pid, startTicks }, "SIGKILL")], [null, false]);
});

test("the node's figures are read, and what can't be read is unknown", async () => {
  assert.ok(readCores() > 0);
  const { memoryMib, memoryFreeMib } = readMemory();
  assert.ok(memoryFreeMib > 0 && memoryFreeMib <= memoryMib);
  assert.ok(((await readDiskFreeMib("/nowhere/at/all", 0.1)) ?? 0) > 0);
  assert.deepEqual([cpuQuota("150000 100000\n"), cpuQuota("max 100000"), cpuQuota("")], [1.5, null, null]);
});

test("without a kill since the start, nothing speaks for a lack of memory [80.A12]", () => {
  const count = systemMemoryDeaths.count();
  assert.deepEqual(systemMemoryDeaths.explain(count, new Set([1]), null), { kind: "none" });
});
