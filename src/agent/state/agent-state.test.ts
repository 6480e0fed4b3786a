import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Secret } from "../../kernel/secret.ts";
import { aStart } from "../../testing/a-start.ts";
import { AgentState } from "./agent-state.ts";
import type { ShardRecord } from "./shard-record.ts";

async function inFolder(act: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-state-"));
  try {
    await act(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const record = (over: Partial<ShardRecord> = {}): ShardRecord => ({
  fileName: "r1-1",
  bootId: "boot",
  start: aStart(),
  proof: "proof",
  main: { pid: 7, startTicks: 9 },
  spawned: true,
  port: 18_000,
  served: true,
  stopGraceMs: null,
  ended: null,
  usedBeforeMib: { "GPU-0": null },
  ...over,
});
const MEMBER = { clusterId: "c", nodeId: "n", credential: new Secret("CANARY-credential"), tokenHash: "t" };

test("all that was kept is there for the next agent, in files that only their owner can read [40.N4 80.C2]", async () => {
  await inFolder(async (folder) => {
    const state = await AgentState.load(folder, "boot");
    await Promise.all([
      state.keepMembership(MEMBER),
      state.keepEpoch({ clusterId: "c", epoch: 3, holder: "h", seq: 9, commit: 4, epochProof: "e", commitProof: "c" }),
      state.keepShard(record()),
      state.keepControls(["wss://x:1"]),
      state.keepGpus([{ uuid: "GPU-0", index: 0, name: "x", memoryMib: null }]),
      state.markGeneration("r1", { generation: 4, over: true }),
    ]);
    const next = await AgentState.load(folder, "boot");
    assert.equal(next.agentId, state.agentId);
    assert.equal(next.membership?.credential.reveal(), "CANARY-credential");
    assert.deepEqual(next.epoch, {
      clusterId: "c",
      epoch: 3,
      holder: "h",
      seq: 9,
      commit: 4,
      epochProof: "e",
      commitProof: "c",
    });
    assert.deepEqual([next.shards, next.controls, next.knownGpus.length], [[record()], ["wss://x:1"], 1]);
    assert.deepEqual(next.generations.get("r1"), { generation: 4, over: true });
    for (const name of ["membership.json", "epoch.json", "agent.json", "shards/r1-1.json"])
      assert.equal((await stat(join(folder, name))).mode & 0o077, 0, name);
  });
});

test("writes to one file happen in the order of the calls", async () => {
  await inFolder(async (folder) => {
    const state = await AgentState.load(folder, "boot");
    const epochs = Array.from({ length: 20 }, (_, at) => at + 1);
    await Promise.all(
      epochs.map((epoch) =>
        state.keepEpoch({ clusterId: "c", epoch, holder: "h", seq: 0, commit: 0, epochProof: "", commitProof: "" }),
      ),
    );
    assert.equal((await AgentState.load(folder, "boot")).epoch?.epoch, 20);
  });
});

test("another run of the machine keeps who the node is and whom it obeyed, and forgets engines and cards [80.A4]", async () => {
  await inFolder(async (folder) => {
    const state = await AgentState.load(folder, "boot");
    await state.keepMembership(MEMBER);
    await state.keepEpoch({
      clusterId: "c",
      epoch: 3,
      holder: "h",
      seq: 9,
      commit: 4,
      epochProof: "e",
      commitProof: "c",
    });
    await state.keepShard(record());
    await state.keepGpus([{ uuid: "GPU-0", index: 0, name: "x", memoryMib: 1 }]);
    const next = await AgentState.load(folder, "another boot");
    assert.deepEqual([next.shards, next.knownGpus, await readdir(join(folder, "shards"))], [[], [], []]);
    assert.deepEqual([next.epoch?.epoch, next.membership?.nodeId], [3, "n"]);
  });
});

for (const name of ["epoch.json", "membership.json", "agent.json", "shards/r1-1.json"]) {
  test(`a ${name} that can't be read stops the agent, and what it held is not shown [80.C2]`, async () => {
    await inFolder(async (folder) => {
      await (await AgentState.load(folder, "boot")).settled();
      await writeFile(join(folder, name), '{"credential": "CANARY-broken", ');
      await assert.rejects(AgentState.load(folder, "boot"), (error: Error & { code?: string }) => {
        assert.equal(error.code, "CONFIG_INVALID");
        assert.match(error.message, new RegExp(name.replace(".", "\\.")));
        assert.doesNotMatch(`${error.message} ${String(error.cause)}`, /CANARY/);
        return true;
      });
    });
  });
}
