import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../kernel/clock.ts";
import { aGpu, fakeNvidiaSmi, type FakeNvidiaSmi, type FakeSmiState } from "../../testing/fake-nvidia-smi.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { GpuWatch, STALE_MS, type GpuSnapshot } from "./gpu-watch.ts";
import { NvidiaReader } from "./nvidia-reader.ts";
import { ToolRunner } from "./tool-runner.ts";
import type { KnownGpu } from "../../decide/agent/gpu-inventory.ts";

const CARDS = [aGpu(0), aGpu(1), aGpu(2), aGpu(3)];
const uuidOf = (index: number): string => aGpu(index).uuid;

async function withSmi(
  state: FakeSmiState,
  act: (smi: FakeNvidiaSmi, watch: GpuWatch) => Promise<void>,
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-smi-"));
  const runner = new ToolRunner(systemClock, { PATH: process.env["PATH"] ?? "" });
  try {
    const smi = fakeNvidiaSmi(folder, state);
    await act(smi, watchOf(new NvidiaReader(smi.path, runner)));
  } finally {
    runner.close();
    await rm(folder, { recursive: true, force: true });
  }
}

const watchOf = (tool: NvidiaReader, known: readonly KnownGpu[] = []): GpuWatch =>
  new GpuWatch({
    clock: systemClock,
    tools: [tool],
    own: () => ({ pids: new Set(), uuids: new Set() }),
    known,
    keepKnown: () => {},
    onReading: () => {},
  });

const health = (snapshot: GpuSnapshot): string[] => snapshot.gpus.map((gpu) => `${gpu.index} ${gpu.health}`);

test("fields that an old driver does not know are left out from then on, and stop nothing [40.N2]", async () => {
  await withSmi(
    { gpus: CARDS, unknownFields: ["gpu_recovery_action", "remapped_rows.failure"] },
    async (smi, watch) => {
      await watch.readOnce();
      assert.deepEqual(health(watch.snapshot()), ["0 ok", "1 ok", "2 ok", "3 ok"]);
      const before = smi.calls().length;
      await watch.readOnce();
      assert.ok(
        !smi
          .calls()
          .slice(before)
          .some((call) => /gpu_recovery_action|remapped_rows/.test(call)),
      );
    },
  );
});

for (const lostSpoilsAll of [false, true]) {
  const shape = lostSpoilsAll ? "and takes every row with it" : "with the others' rows still there";
  test(`a lost card ${shape}: the three good ones stay, the fourth is known as lost [40.N2]`, async () => {
    await withSmi({ gpus: CARDS }, async (smi, watch) => {
      await watch.readOnce();
      smi.set({ gpus: CARDS, lost: [uuidOf(2)], lostSpoilsAll });
      await watch.readOnce();
      const snapshot = watch.snapshot();
      assert.deepEqual(health(snapshot), ["0 ok", "1 ok", "2 sick", "3 ok"]);
      assert.deepEqual([snapshot.gpus[2]?.uuid, snapshot.gpus[2]?.usedMib], [uuidOf(2), null]);
      smi.set({ gpus: CARDS });
      await watch.readOnce();
      assert.deepEqual(health(watch.snapshot()), ["0 ok", "1 ok", "2 ok", "3 ok"]);
    });
  });
}

test("an agent that starts while a card is lost finds the others by the list [40.N2]", async () => {
  await withSmi({ gpus: CARDS, lost: [uuidOf(1)], lostSpoilsAll: true }, async (_, watch) => {
    await watch.readOnce();
    assert.deepEqual(
      watch.snapshot().gpus.map((gpu) => gpu.uuid),
      [uuidOf(0), uuidOf(2), uuidOf(3)],
    );
  });
});

test("cards appear, vanish and turn sick from one reading to the next [40.N2]", async () => {
  await withSmi({ gpus: [aGpu(0)] }, async (smi, watch) => {
    await watch.readOnce();
    smi.set({ gpus: [aGpu(0, { cells: { "utilization.gpu": "[GPU requires reset]", "memory.used": "0" } }), aGpu(1)] });
    await watch.readOnce();
    assert.deepEqual(health(watch.snapshot()), ["0 sick", "1 ok"]);
    assert.equal(watch.snapshot().gpus[0]?.usedMib, null);
    smi.set({ gpus: [aGpu(0)] });
    await watch.readOnce();
    assert.deepEqual(health(watch.snapshot()), ["0 ok", "1 sick"]);
  });
});

test("memory of a foreign process is reported, with who holds it [40.N2]", async () => {
  await withSmi({ gpus: [aGpu(0)] }, async (smi, watch) => {
    const holder = spawn("sleep", ["60"], { stdio: "ignore" });
    try {
      smi.hold(holder.pid ?? 0, uuidOf(0), 60_000);
      await watch.readOnce();
      assert.deepEqual([watch.snapshot().gpus[0]?.foreignMib, watch.snapshot().gpus[0]?.usedMib], [60_000, 60_004]);
      assert.match(watch.foreignOn(uuidOf(0)) ?? "", new RegExp(`PID ${holder.pid} .*60000 MiB`));
    } finally {
      holder.kill("SIGKILL");
      await once(holder, "close");
    }
    await watch.readOnce();
    assert.equal(watch.snapshot().gpus[0]?.foreignMib, 0);
  });
});

for (const [name, state] of [
  ["a driver that is not loaded", { gpus: [], exitCode: 9, garbage: "NVIDIA-SMI has failed\n" }],
  ["garbage with a good code", { gpus: [], garbage: "\u0000\u0001,,,\n,GPU-,\n" }],
] as const) {
  test(`${name} makes known cards unknown, not sick, until it reads again [40.N2]`, async () => {
    await withSmi({ gpus: CARDS }, async (smi, watch) => {
      await watch.readOnce();
      smi.set(state);
      await watch.readOnce();
      assert.equal(watch.snapshot().gpus.length, 4);
      assert.ok(watch.snapshot().gpus.every((gpu) => gpu.health === "unknown" && gpu.usedMib === null));
      smi.set({ gpus: CARDS });
      await watch.readOnce();
      assert.deepEqual(health(watch.snapshot()), ["0 ok", "1 ok", "2 ok", "3 ok"]);
    });
  });
}

test("a tool that hangs is killed with its group after its time, and a second call never runs beside it [40.N2]", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-smi-"));
  const runner = new ToolRunner(systemClock, { PATH: process.env["PATH"] ?? "" });
  try {
    const smi = fakeNvidiaSmi(folder, { gpus: CARDS, hang: "deaf" });
    const first = runner.run(smi.path, ["-L"], 400);
    assert.deepEqual(await runner.run(smi.path, ["-L"], 400), { kind: "stuck" });
    assert.deepEqual(await first, { kind: "timeout" });
    smi.set({ gpus: CARDS });
    // The first one's end is seen a moment after it was killed.
    let next = await runner.run(smi.path, ["-L"], 10_000);
    for (let i = 0; next.kind === "stuck" && i < 1_000; i += 1) {
      await systemClock.sleep(10, new AbortController().signal);
      next = await runner.run(smi.path, ["-L"], 10_000);
    }
    assert.equal(next.kind, "ended");
    assert.ok(smi.peak() <= 1, `${smi.peak()} calls at once`);
  } finally {
    runner.close();
    await rm(folder, { recursive: true, force: true });
  }
});

test("a node without any tool has no cards, and says so", async () => {
  const runner = new ToolRunner(systemClock, {});
  const watch = watchOf(new NvidiaReader("/nowhere/nvidia-smi", runner));
  await watch.readOnce();
  assert.deepEqual([watch.snapshot().gpus, watch.snapshot().discovery], [[], "none"]);
});

test("what was read too long ago is unknown: a tool that no longer answers does not leave cards looking free [40.N2]", async () => {
  const clock = new VirtualClock();
  const row = {
    index: 0,
    uuid: "GPU-0",
    name: "NVIDIA A40",
    memoryMib: 46_068,
    usedMib: 5,
    utilization: 0,
    temperatureC: 30,
    fault: null,
  };
  const answers = [
    Promise.resolve({ kind: "read" as const, reading: { rows: [row], apps: [], sickness: new Map() } }),
    new Promise<never>(() => {}),
  ];
  const watch = new GpuWatch({
    clock,
    tools: [
      { name: "nvidia-smi", read: () => answers.shift() ?? new Promise(() => {}), fabric: () => Promise.resolve(null) },
    ],
    own: () => ({ pids: new Set(), uuids: new Set() }),
    known: [],
    keepKnown: () => {},
    onReading: () => {},
  });
  await watch.readOnce();
  const stop = new AbortController();
  void watch.run(stop.signal);
  await clock.advance(STALE_MS - 1);
  assert.deepEqual(health(watch.snapshot()), ["0 ok"]);
  await clock.advance(2);
  assert.deepEqual([health(watch.snapshot()), watch.snapshot().discovery], [["0 unknown"], "failed"]);
  assert.equal(watch.snapshot().gpus[0]?.usedMib, null);
  stop.abort();
});
