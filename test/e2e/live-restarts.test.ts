import assert from "node:assert/strict";
import { test } from "node:test";
import type { ReplicaAnswer } from "../../src/contract/control-api.ts";
import { aGpu, fakeNvidiaSmi } from "../../src/testing/fake-nvidia-smi.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { ctl, ctlDone, ctlRunning } from "./support/live-ctl.ts";
import { allReady, LiveWorld, simModel } from "./support/live-world.ts";

// Restarts with real agents and engines, under a real control plane. What truly ran is read from the agents' own records.

const gpu = { class: ["h200"], count: 1, memory_gb: 120 };
const onCard = (name: string, version: number, more: Record<string, unknown> = {}): Record<string, unknown> =>
  simModel(name, { profiles: [{ engine: "sim", gpu, args: { seed: version } }], ...more });

/** Models by the time at which their engines were started on the card, as the node's events tell. */
async function tenants(world: LiveWorld): Promise<readonly string[]> {
  const placed = await world.events("replicaReady");
  return placed.map(({ model }) => model ?? "");
}

for (const where of ["after", "before"] as const) {
  test(`one GPU, a model that restarts after its definition changed and another that waits for room, ${where} it in the catalog: the card never changes hands [40.S2]`, async () => {
    await using world = await LiveWorld.start();
    const smi = fakeNvidiaSmi(world.folder, { gpus: [aGpu(0)] });
    const agent = await world.addAgent("node-a", { nvidia_smi: smi.path });
    await world.apply(onCard("m", 1));
    await world.untilReplicas("the first engine", (list) => allReady(list, 1));
    const waits = onCard("w", 1, { priority: 90 });
    const seen = new Set<string>();
    for (const version of [2, 3]) {
      const m = onCard("m", version);
      await world.apply(...(where === "after" ? [m, waits] : [waits, m]));
      const outdated = await world.untilReplicas("it is outdated", (list) => list.some((each) => each.outdated));
      const [old] = outdated;
      const { code, out } = await ctl(world, "restart", old?.id ?? "");
      assert.deepEqual([code, out], [0, `restart of ${old?.id}: queued\n`]);
      await world.untilReplicas("its replacement", (list) => {
        for (const { start } of agent.records()) seen.add(start.model.name);
        return list.length === 1 && list[0]?.id !== old?.id && list[0]?.state === "ready" && !list[0].outdated;
      });
    }
    assert.deepEqual([...seen], ["m"], "no other engine was ever started on the node");
    assert.deepEqual(new Set(await tenants(world)), new Set(["m"]));
    assert.equal(
      (await world.events("replicaPlaced")).every(({ model }) => model === "m"),
      true,
    );
    const models = await ctl(world, "models");
    assert.match(models.out, /^w +waiting .*\S+: needs .* on each of .*$/m);
    for (const kind of ["restartAsked", "restartBegun", "restartDone"])
      assert.equal((await world.events(kind)).length, 2, kind);
    assert.ok((await world.events("restartAsked")).every(({ by }) => by === "key-admin"));
    assert.match(
      (await world.events("restartBegun"))[0]?.why ?? "",
      /in its place, since there is no room beside it: node-a: needs/,
    );
  });
}

for (const where of ["after", "before"] as const) {
  test(`one GPU, a model that restarts with a version that can't start and another that waits for room, ${where} it in the catalog: the card is kept through failures and a change of leaders, and a good version serves there [40.S2 40.P4]`, async () => {
    await using world = await LiveWorld.start();
    const smi = fakeNvidiaSmi(world.folder, { gpus: [aGpu(0)] });
    await world.addAgent("node-a", { nvidia_smi: smi.path });
    const waits = onCard("w", 1, { priority: 90 });
    const apply = (m: Record<string, unknown>): Promise<void> =>
      world.apply(...(where === "after" ? [m, waits] : [waits, m]));
    await world.apply(onCard("m", 1));
    const [old] = await world.untilReplicas("the first engine", (list) => allReady(list, 1));
    await apply({ ...onCard("m", 2), profiles: [{ engine: "sim", gpu, args: { "no-such-flag": 1 } }] });
    assert.equal((await ctl(world, "restart", old?.id ?? "")).code, 0);
    const models = (): Promise<string> => ctlDone(world, "models", "-o", "json");
    const failed = (times: string) => (text: string) => text.includes(`failed ${times}`);
    await eventually("the first failure", models, failed("once"), 60_000);
    await world.stopControl();
    await world.startControl();
    const told = await eventually("the second failure", models, failed("2 times in a row"), 60_000);
    assert.match(
      told,
      /failed 2 times in a row; the next start waits 20 s; it keeps its room: node-a: 111\.8 GiB on 1 card/,
    );
    const why = await ctlDone(world, "explain-placement", "w");
    assert.match(
      why,
      /node-a: 111\.8 GiB on 1 card is kept for m until one of it serves in place of r-\S+, it is parked/,
    );
    assert.ok((await world.events("roomKept")).length >= 2);

    await apply(onCard("m", 3));
    await world.untilReplicas("a good version", (list) =>
      list.some(({ model, state, outdated }) => model === "m" && state === "ready" && !outdated),
    );
    assert.deepEqual(new Set((await world.events("replicaPlaced")).map(({ model }) => model)), new Set(["m"]));
    assert.equal((await world.events("roomGivenUp")).length, 0);
  });
}

test("a rollout, followed to its end: each replica beside its replacement, with exit code 0; a version that can't start stops it, with 1 and the reason at the replicas [40.S1 40.S9 40.S8]", async () => {
  await using world = await LiveWorld.start();
  await world.addAgent("node-a");
  const model = (args: Record<string, unknown>): Record<string, unknown> =>
    simModel("m", {
      replicas: { min: 2 },
      profiles: [{ engine: "sim", cpu: { cores: 0.01, memory_gb: 0.001 }, args }],
    });
  await world.apply(model({ seed: 1 }));
  const first = await world.untilReplicas("two replicas", (list) => allReady(list, 2));
  await world.apply(model({ seed: 2 }));
  const done = await ctl(world, "rollout", "m", "--watch");
  assert.equal(done.code, 0, done.out + done.err);
  for (const { id } of first) assert.match(done.out, new RegExp(`^${id}: replaced by r-`, "m"));
  const second = await world.untilReplicas("two others", (list) => allReady(list, 2));
  assert.ok(second.every(({ id, outdated }) => !outdated && first.every((old) => old.id !== id)));

  await world.apply(model({ "no-such-flag": 1 }));
  const stopped = await ctl(world, "rollout", "--outdated", "--watch", "-o", "json");
  assert.equal(stopped.code, 1, stopped.out);
  const states = stopped.out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { replica: string; state: string });
  for (const { id } of second)
    assert.match(states.findLast(({ replica }) => replica === id)?.state ?? "", /^refused: .*failed: .*no-such-flag/);
  const left = (await world.replicas()).filter(({ state }) => state === "ready").map(({ id }) => id);
  assert.deepEqual(left.toSorted(), second.map(({ id }) => id).toSorted(), "the good ones serve on");
  assert.equal((await world.events("rolloutStopped")).length, 1);
  const again = await ctl(world, "restart", "r-none");
  assert.deepEqual([again.code, /REPLICA_UNKNOWN/.test(again.err)], [1, true]);
});

test("a rollout and a list that are watched go on through a restart of the control plane, say so on stderr, and end as they would have [40.V1 40.S9]", async () => {
  await using world = await LiveWorld.start();
  await world.addAgent("node-a");
  const model = (seed: number): Record<string, unknown> =>
    simModel("m", {
      replicas: { min: 2 },
      profiles: [{ engine: "sim", cpu: { cores: 0.01, memory_gb: 0.001 }, args: { seed } }],
    });
  await world.apply(model(1));
  const first = await world.untilReplicas("two replicas", (list) => allReady(list, 2));
  await world.apply(model(2));
  const rollout = ctlRunning(world, "rollout", "m", "--watch");
  const list = ctlRunning(world, "replicas", "--watch", "-o", "json");
  await world.untilReplicas("the first restart", (seen) => seen.some(({ restart }) => restart === "replacing"));
  await eventually("a first list", () => list.output().out, Boolean);
  await world.stopControl();
  for (const [name, { output }] of Object.entries({ rollout, list }))
    await eventually(
      name,
      () => output().err,
      (err) => err.includes("trying again for 60 s"),
    );
  await world.startControl();
  const code = await rollout.code;
  const { out, err } = rollout.output();
  assert.deepEqual([code, err.includes("it answers again")], [0, true], out + err);
  for (const { id } of first) assert.match(out, new RegExp(`^${id}: replaced by r-`, "m"));
  const then = await world.untilReplicas(
    "two others",
    (seen) => allReady(seen, 2) && seen.every((each) => !each.outdated),
  );
  await eventually(
    "the last list",
    () => list.output().out.trimEnd().split("\n").at(-1) ?? "",
    (line) => then.every(({ id }) => line.includes(id)) && !line.includes(first[0]?.id ?? ""),
  );
  list.stop();
  assert.equal(await list.code, 0);
});

test("scale, drain and uncordon: as many as were asked for within the catalog, elsewhere than on the drained node, and all with who did it [40.S1 40.V1]", async () => {
  await using world = await LiveWorld.start();
  await world.addAgent("node-a");
  await world.apply(simModel("m", { replicas: { min: 1, max: 3 } }));
  await world.untilReplicas("one", (list) => allReady(list, 1));
  assert.match((await ctl(world, "scale", "m", "2")).out, /^m: 2 replicas asked for$/m);
  await world.untilReplicas("two", (list) => allReady(list, 2));
  const tooMany = await ctl(world, "scale", "m", "4");
  assert.deepEqual([tooMany.code, /the catalog allows 1 to 3 replicas of m/.test(tooMany.err)], [1, true]);

  assert.equal((await ctl(world, "drain", "node-a")).code, 0);
  const nowhere = (list: readonly ReplicaAnswer[]): boolean =>
    list.some(({ restart, restart_why: why }) => restart === "queued" && /node-a: it is cordoned/.test(why ?? ""));
  await world.untilReplicas("the reason", nowhere);
  await world.addAgent("node-b");
  await world.untilReplicas(
    "all of it elsewhere",
    (list) => allReady(list, 2) && list.every(({ nodes }) => nodes.join() === "node-b"),
  );
  assert.match((await ctl(world, "nodes")).out, /^node-a +ready, draining /m);
  await eventually(
    "no engine on the drained node",
    () => world.agents[0]?.engines().size,
    (count) => count === 0,
    30_000,
  );
  assert.equal((await ctl(world, "uncordon", "node-a")).code, 0);
  for (const kind of ["nodeDraining", "nodeUncordoned", "modelScaled"])
    assert.ok(
      (await world.events(kind)).every(({ by }) => by === "key-admin"),
      kind,
    );
  assert.equal((await ctl(world, "scale", "m", "1")).code, 0);
  await world.untilReplicas("one again", (list) => allReady(list, 1));
});
