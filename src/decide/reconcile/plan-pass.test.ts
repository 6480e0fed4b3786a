import assert from "node:assert/strict";
import { test } from "node:test";
import { aFailure, aModel, aProfile, aReplicaDoc, aShard, GIB, someGpus } from "../../testing/fleet-builders.ts";
import { PassWorld, sent } from "../../testing/pass-world.ts";

const chat = aModel("chat");
const twice = aModel("chat", { replicas: { min: 2, max: 4 } });

/** A world whose models all run and whose next pass changes nothing. */
function settled(world: PassWorld): PassWorld {
  for (let pass = 0; pass < 4; pass++) {
    world.pass();
    world.reportReady();
  }
  return world;
}
const quiet = (world: PassWorld): void => {
  const plan = world.pass();
  assert.deepEqual([plan.writes, plan.commands, plan.events], [[], [], []]);
};

test("a new model is placed and started, follows its reports to ready, and then nothing changes any more [40.R1 40.C2 40.N6]", () => {
  const world = new PassWorld([chat]);
  const plan = world.pass();
  assert.deepEqual(sent(plan), ["start r1@a"]);
  assert.deepEqual(world.states(), ["chat placing on a"]);
  const [command] = plan.commands;
  assert.ok(command?.verb.kind === "start");
  assert.equal(command.verb.engineKey, "key-of-r1-1");
  assert.ok(!JSON.stringify(plan.events).includes("key-of"));
  for (const state of ["fetching", "starting", "ready"] as const) {
    world.report("a", [aShard(world.only(), { state })]);
    world.pass();
    assert.deepEqual(world.states(), [`chat ${state} on a`]);
  }
  assert.notEqual(world.only().readyAt, null);
  quiet(world);
});

test("a start whose effect is not seen is sent again, not at once, and with the same content [40.R1]", () => {
  const world = new PassWorld([chat]);
  const first = world.pass();
  assert.deepEqual(sent(world.pass()), []);
  world.pass();
  const again = world.pass();
  assert.deepEqual(again.commands, first.commands);
});

test("a pass whose commit failed is planned again: nothing was remembered of it [40.R1]", () => {
  const world = new PassWorld([chat]);
  assert.deepEqual(sent(world.plan()), ["start r1@a"]);
  assert.deepEqual(sent(world.pass()), ["start r2@a"]);
});

test("a restarted leader that knows nothing of the last pass repeats at most commands, and stops nothing [40.R2]", () => {
  const world = settled(new PassWorld([twice]));
  world.memory = new Map();
  quiet(world);
});

test("while known agents have not reported, nothing is placed and nothing is stopped [40.R2]", () => {
  const world = settled(new PassWorld([twice, aModel("old")]));
  world.apply([twice, aModel("new")]);
  world.settling = true;
  for (let pass = 0; pass < 5; pass++) assert.deepEqual(sent(world.pass()), []);
  world.settling = false;
  world.pass();
  assert.ok(world.states().includes("new placing on a") || world.states().includes("new placing on b"));
});

test("fewer replicas wanted: the one that serves least drains, then stops, and its document goes with it [40.C2]", () => {
  const world = settled(new PassWorld([twice]));
  world.apply([chat]);
  world.pass();
  assert.equal(world.replicas.size, 2, "one look is not enough");
  assert.deepEqual(sent(world.pass()), [], "it drains first");
  const draining = [...world.replicas.values()].find(({ state }) => state === "draining");
  assert.ok(draining !== undefined);
  world.idle.add(draining.id);
  assert.deepEqual(sent(world.pass()), [`stop ${draining.id}@${draining.shards[0]?.nodeId}`]);
  world.report(draining.shards[0]!.nodeId, [aShard(draining, { state: "stopped" })]);
  assert.deepEqual(sent(world.pass()), [`forget ${draining.id}@${draining.shards[0]?.nodeId}`]);
  assert.equal(world.replicas.size, 1);
});

test("a draining replica whose requests do not end is stopped after the grace time [40.C2]", () => {
  const world = settled(new PassWorld([twice]));
  world.apply([chat]);
  world.pass();
  world.pass();
  assert.deepEqual(sent(world.pass(world.settings.drainGraceMs - 1)), []);
  assert.equal(sent(world.pass(1)).length, 1);
});

test("a removed model's replicas are drained and stopped, and its cards are free for another [40.C2]", () => {
  const world = new PassWorld(
    [aModel("old", { profiles: [aProfile("old", { gpu: { classes: ["h200"], count: 8, memoryMib: 100 * GIB } })] })],
    ["a"],
  );
  settled(world);
  const next = aModel("new", {
    profiles: [aProfile("new", { gpu: { classes: ["h200"], count: 8, memoryMib: 100 * GIB } })],
  });
  world.apply([next]);
  assert.deepEqual(world.pass().unplaced[0]?.nodes, { gpuMemory: 1 });
  world.pass();
  world.idle.add("r1");
  world.pass();
  world.report("a", [aShard(world.replicas.get("r1")!, { state: "stopped" })]);
  world.pass();
  assert.deepEqual(world.states(), ["new placing on a"]);
});

test("a changed profile leaves the running replica alone; the next one has the new profile [40.C2]", () => {
  const world = settled(new PassWorld([chat]));
  world.apply([aModel("chat", { replicas: { min: 2, max: 4 }, profiles: [aProfile("chat-2")] })]);
  world.pass();
  assert.deepEqual(
    [...world.replicas.values()].map(({ state, profileHash }) => `${state} ${profileHash}`),
    ["ready chat-1", "placing chat-2"],
  );
});

test("a model that runs on demand starts once, however many ask, and stays [10.L1]", () => {
  const world = new PassWorld([aModel("chat", { replicas: { min: 0, max: 4 } })]);
  assert.deepEqual(sent(world.pass()), []);
  world.demanded.add("chat");
  assert.deepEqual(sent(world.pass()), ["start r1@a"]);
  for (let pass = 0; pass < 3; pass++) world.pass();
  world.demanded.clear();
  world.reportReady();
  world.pass();
  assert.deepEqual(world.states(), ["chat ready on a"]);
  quiet(world);
});

test("models are placed by priority, then by how long they have waited [40.R3]", () => {
  const big = (name: string, priority: number) =>
    aModel(name, {
      priority,
      profiles: [aProfile(name, { gpu: { classes: ["h200"], count: 8, memoryMib: 100 * GIB } })],
    });
  const world = new PassWorld([big("late", 50), big("vip", 90), big("early", 50)], []);
  world.apply([big("early", 50)]);
  world.pass();
  world.apply([big("late", 50), big("vip", 90), big("early", 50), big("a-new", 50)]);
  world.pass();
  world.addNode("a");
  world.addNode("b");
  world.pass();
  assert.deepEqual(world.states(), ["vip placing on a", "early placing on b"]);
});

test("a lost node's replica is started elsewhere in the same pass, and nothing is left on the dead node [40.N3]", () => {
  const world = settled(new PassWorld([chat]));
  world.nodes.get("a")!.state = "lost";
  assert.deepEqual(sent(world.pass()), ["start r2@b"]);
  assert.deepEqual(world.states(), ["chat placing on b"]);
  assert.ok(world.told.includes("replicaLost"));
});

test("an unreachable node's replica stays as it is: no action [40.N3 80.A1]", () => {
  const world = settled(new PassWorld([chat]));
  world.nodes.get("a")!.state = "unreachable";
  for (let pass = 0; pass < 10; pass++) quiet(world);
});

test("a node that comes back with a replaced engine: it is stopped, not at first sight, and the replacement stays [40.N3 80.A1]", () => {
  const world = settled(new PassWorld([chat]));
  const old = world.only();
  world.nodes.get("a")!.state = "lost";
  world.pass();
  world.reportReady();
  world.pass();
  world.nodes.get("a")!.state = "ready";
  world.report("a", [aShard(old)]);
  assert.deepEqual(sent(world.pass()), []);
  assert.deepEqual(sent(world.pass()), ["stop r1@a"]);
  world.report("a", [aShard(old, { state: "stopped" })]);
  assert.deepEqual(sent(world.pass()), ["forget r1@a"]);
  assert.deepEqual(world.states(), ["chat ready on b"]);
});

test("a node that comes back with an engine that is still wanted: it is adopted under its own id, with its own key [40.N3 80.P2]", () => {
  const world = settled(new PassWorld([chat], ["a"]));
  const old = world.only();
  world.nodes.get("a")!.state = "lost";
  world.pass();
  assert.equal(world.replicas.size, 0);
  world.nodes.get("a")!.state = "ready";
  const plan = world.pass();
  assert.deepEqual(sent(plan), []);
  assert.deepEqual([world.only().id, world.only().state, world.only().engineKey], [old.id, "ready", "key-of-r1-1"]);
  quiet(world);
});

test("a restarted machine has nothing to adopt: its replicas are placed anew at once, and it is no failure [80.A4]", () => {
  const world = settled(new PassWorld([chat], ["a"]));
  world.report("a", [], { bootId: "boot-2" });
  assert.deepEqual(sent(world.pass()), ["start r2@a"]);
  assert.deepEqual(world.states(), ["chat placing on a"]);
  assert.ok(world.told.includes("nodeRebooted"));
  assert.equal(world.models.get("chat"), undefined);
});

test("an engine that one report lacks is not given up; two reports without it end it [40.N6]", () => {
  const world = settled(new PassWorld([chat], ["a"]));
  const { shards } = world.nodes.get("a")!.report;
  world.report("a", []);
  quiet(world);
  world.report("a", shards);
  quiet(world);
  world.report("a", []);
  world.pass();
  world.pass();
  assert.deepEqual(world.states(), ["chat placing on a"]);
  assert.ok(world.told.includes("replicaVanished"));
});

test("failures back off 10, 20, 40, 80 s and park the model after five in a row, with the reason [40.N6 80.A11]", () => {
  const world = new PassWorld([chat], ["a"]);
  const waits: number[] = [];
  for (let failure = 1; failure <= 5; failure++) {
    const failedAt = world.now;
    for (let at = 0; at < 1_000 && ![...world.replicas.values()].some(({ state }) => state === "placing"); at++)
      world.pass(1_000);
    if (failure > 1) waits.push((world.now - failedAt) / 1_000);
    const doc = [...world.replicas.values()].find(({ state }) => state === "placing")!;
    world.report("a", [aShard(doc, { state: "failed", failure: aFailure() })]);
    world.pass(1_000);
    world.report("a", []);
  }
  assert.deepEqual(waits, [10, 20, 40, 80]);
  const doc = world.models.get("chat");
  assert.match(doc?.parked?.why ?? "", /5 times in a row.*ended with code 1/);
  for (let at = 0; at < 1_000; at++) assert.deepEqual(sent(world.pass(10_000)), []);
  assert.ok(
    world.states().every((state) => state === "chat failed on a") && world.states().length > 0,
    "people can read why",
  );
});

test("a park ends with a new profile, and the count begins anew [40.N6 80.A11]", () => {
  const world = new PassWorld([chat], ["a"]);
  world.models.set("chat", {
    name: "chat",
    failuresInRow: 5,
    backoffMs: 160_000,
    failedOn: { a: 5 },
    profileHashes: ["chat-1"],
    lastFailure: "exit",
    parked: { why: "failed", at: "2026-01-01T00:00:00.000Z" },
    demandedAt: null,
  });
  assert.deepEqual(sent(world.pass()), []);
  world.apply([aModel("chat", { profiles: [aProfile("chat-2")] })]);
  assert.deepEqual(sent(world.pass()), ["start r1@a"]);
  assert.ok(world.told.includes("modelReleased"));
});

test("a failure of a profile that the model no longer has is told, and counts for nothing", () => {
  const world = new PassWorld([chat]);
  world.settings = { ...world.settings, parkAfter: 1 };
  world.pass();
  world.report("a", [aShard(world.only(), { state: "failed", failure: aFailure() })]);
  world.apply([{ ...chat, profiles: [aProfile("chat-2")] }]);
  world.pass();
  world.reportReady();
  world.pass();
  assert.deepEqual([world.models.get("chat")?.parked ?? null, world.told.includes("replicaFailed")], [null, true]);
  assert.ok([...world.replicas.values()].some(({ profileHash }) => profileHash === "chat-2"));
});

test("where the head listens is kept with the replica, and stays though its node falls silent [40.C3 80.I8]", () => {
  const world = settled(new PassWorld([chat]));
  assert.equal(world.only().port, 18_000);
  world.reportReady({ port: 18_001 });
  world.pass();
  assert.equal(world.only().port, 18_001);
  world.nodes.get("a")!.state = "unreachable";
  world.pass();
  assert.deepEqual([world.only().port, world.only().state], [18_001, "ready"]);
});

test("an engine that ends with code 0 and unasked has failed; its last lines are kept [40.N6 80.A11]", () => {
  const world = settled(new PassWorld([chat], ["a"]));
  world.report("a", [
    aShard(world.only(), { state: "stopped", failure: aFailure({ exitCode: 0, message: "ended with code 0" }) }),
  ]);
  world.pass();
  assert.deepEqual(world.states(), ["chat failed on a"]);
  assert.equal(world.models.get("chat")?.failuresInRow, 1);
  assert.equal(world.only().failure?.lastLines.length, 2);
});

test("a model that never started tries five replicas at once, no more, and their common failure counts once [80.A11]", () => {
  const wide = aModel("chat", { replicas: { min: 20, max: 20 } });
  const world = new PassWorld([wide], ["a", "b", "c"]);
  assert.equal(world.pass().commands.length, 5);
  assert.equal(world.pass().commands.length, 0);
  for (const id of ["a", "b", "c"])
    world.report(
      id,
      [...world.replicas.values()]
        .filter((doc) => doc.shards[0]?.nodeId === id)
        .map((doc) => aShard(doc, { state: "failed", failure: aFailure() })),
    );
  world.pass();
  assert.equal(world.models.get("chat")?.failuresInRow, 1);
  for (const id of ["a", "b", "c"]) world.report(id, []);
  assert.equal(world.pass(10_000).commands.length, 1, "one tries for all");
  assert.equal(world.pass(10_000).commands.filter(({ verb }) => verb.kind === "start").length, 1, "and only that one");
});

test("a start that ran out of GPU memory is not tried again with the same figure [80.A12 40.P8]", () => {
  const world = new PassWorld([chat], ["a"]);
  world.pass();
  world.report("a", [
    aShard(world.only(), { state: "failed", failure: aFailure({ kind: "gpuOom", message: "CUDA out of memory" }) }),
  ]);
  world.pass();
  world.report("a", []);
  world.pass(10_000);
  const given = [...world.replicas.values()].map(({ shards }) => (shards[0]?.memoryMib ?? 0) / GIB);
  assert.deepEqual(given, [70, 84]);
});

test("running out of the host's memory twice parks at once: the third try would be the same [80.A12]", () => {
  const world = new PassWorld([chat], ["a"]);
  for (let failure = 1; failure <= 2; failure++) {
    world.pass(20_000);
    const doc = [...world.replicas.values()].find(({ state }) => state === "placing")!;
    world.report("a", [
      aShard(doc, { state: "failed", failure: aFailure({ kind: "oom", message: "killed by the kernel" }) }),
    ]);
    world.pass();
    world.report("a", []);
  }
  assert.match(world.models.get("chat")?.parked?.why ?? "", /memory twice.*killed by the kernel/);
});

test("what ready engines use is kept for the next placement, and an estimate that is 10 % off is told once [40.P8]", () => {
  const world = settled(new PassWorld([chat]));
  const uuid = world.only().shards[0]!.gpuUuids[0]!;
  world.reportReady({ gpuUsedMib: { [uuid]: 90 * GIB }, since: 29_000 });
  assert.deepEqual(world.pass().writes, [], "it has not settled");
  world.reportReady({ gpuUsedMib: { [uuid]: 90 * GIB }, since: 31_000 });
  world.pass();
  world.pass();
  assert.equal(world.told.filter((kind) => kind === "estimateOff").length, 1);
  world.apply([twice]);
  world.pass();
  assert.deepEqual(
    [...world.replicas.values()].map(({ shards }) => (shards[0]?.memoryMib ?? 0) / GIB),
    [70, 90],
  );
});

test("a node that reports and never tells of its start: after 30 s it is told, and another node gets the start [40.R1]", () => {
  const world = new PassWorld([chat]);
  for (let at = 0; at <= 30; at += 2) world.pass();
  assert.ok(world.told.includes("unacknowledged"));
  assert.deepEqual(world.states(), ["chat stopping on a", "chat placing on b"]);
  for (let at = 0; at < 12; at += 2) world.pass();
  assert.equal(world.replicas.size, 2, "the start may still arrive");
  for (let at = 0; at < 10; at += 2) world.pass();
  assert.deepEqual(world.states(), ["chat placing on b"], "its card is free once the start can't arrive any more");
});

test("with no other node the start goes on being sent, and is picked up whenever it arrives [40.R1]", () => {
  const world = new PassWorld([chat], ["a"]);
  for (let at = 0; at <= 300; at += 2) world.pass();
  assert.equal(world.told.filter((kind) => kind === "unacknowledged").length, 1);
  const commands = [world.pass(), world.pass(), world.pass()].flatMap(sent);
  assert.deepEqual(commands, ["start r1@a"]);
  world.reportReady();
  world.pass();
  assert.deepEqual(world.states(), ["chat ready on a"]);
});

test("while most of the fleet is silent nothing is stopped, whatever the catalog says [80.C15 80.A14 40.N3b]", () => {
  const world = settled(new PassWorld([twice, aModel("old")]));
  world.apply([chat]);
  world.braked = true;
  for (let pass = 0; pass < 20; pass++) quiet(world);
  world.braked = false;
  world.pass();
  assert.equal(world.states().filter((state) => state.includes("draining")).length, 2);
});

test("a store from an old backup stops nothing: engines it does not know are adopted or kept and shown, until an operator confirms [80.P7]", () => {
  const world = new PassWorld([chat]);
  world.restored = true;
  const run = ["x1", "x2"].map((id) => aShard(aReplicaDoc(id, chat, "a"), { gpuUuids: [`a/${id[1]}`] }));
  const foreign = aShard(aReplicaDoc("y1", aModel("gone"), "b"));
  world.report("a", run);
  world.report("b", [foreign]);
  for (let pass = 0; pass < 20; pass++) assert.deepEqual(sent(world.pass()), []);
  assert.deepEqual([...world.replicas.keys()], ["x1", "x2"]);
  assert.deepEqual(world.plan().unknown, [{ nodeId: "b", replicaId: "y1", model: "gone", fate: "kept" }]);
  world.restored = false;
  const after = [world.pass(), world.pass(), world.pass()].flatMap(sent);
  assert.deepEqual(after, ["stop y1@b"]);
  assert.equal(world.states().filter((state) => state === "chat draining on a").length, 1);
});

test("an engine that the store does not know holds its card: nothing is placed beside it before it was measured [40.P8]", () => {
  const world = new PassWorld([chat], ["a"]);
  world.restored = true;
  world.report("a", [aShard(aReplicaDoc("y1", aModel("gone"), "a"), { gpuUuids: ["a/0"] })], {
    gpus: someGpus("a", 1),
  });
  assert.deepEqual(world.pass().unplaced[0]?.nodes, { gpuMemory: 1 });
});

const pair = aModel("chat", {
  profiles: [aProfile("p", { gpu: { classes: ["h200"], count: 8, memoryMib: 100 * GIB } })],
  multiNode: { nodes: 2, fabric: "same" },
});
function pairWorld(): PassWorld {
  const world = new PassWorld([pair], []);
  for (const id of ["a", "b", "c"]) world.addNode(id, { fabric: "x" });
  return world;
}

test("a replica on two nodes gets one start for each, with the head's address and port, and is ready when both are [40.N6]", () => {
  const world = pairWorld();
  const plan = world.pass();
  assert.deepEqual(sent(plan), ["start r1@a", "start r1@b"]);
  const heads = plan.commands.map(({ verb }) => (verb.kind === "start" ? verb.shard : undefined));
  assert.deepEqual(heads, [
    { index: 0, of: 2, headAddress: "a.test", rendezvousPort: 29_500 },
    { index: 1, of: 2, headAddress: "a.test", rendezvousPort: 29_500 },
  ]);
  const doc = world.only();
  world.report("a", [aShard(doc)]);
  world.pass();
  assert.deepEqual(world.states(), ["chat placing on a+b"]);
  world.report("b", [aShard(doc, { shard: 1, port: null, state: "starting" })]);
  world.pass();
  assert.deepEqual(world.states(), ["chat starting on a+b"]);
  world.report("b", [aShard(doc, { shard: 1, port: null })]);
  world.pass();
  assert.deepEqual(world.states(), ["chat ready on a+b"]);
});

test("one shard's failure stops the others, then the replica has failed, once; a lost node takes the whole replica [40.N6 40.N3]", () => {
  const world = pairWorld();
  world.pass();
  world.reportReady();
  world.pass();
  const doc = world.only();
  world.report("b", [aShard(doc, { shard: 1, state: "failed", failure: aFailure() })]);
  world.pass();
  assert.deepEqual(sent(world.pass()), ["stop r1@a"]);
  world.report("a", [aShard(doc, { state: "stopped" })]);
  assert.deepEqual(sent(world.pass()), ["forget r1@a", "forget r1@b"]);
  assert.equal(world.replicas.get("r1")?.state, "failed");
  assert.equal(world.models.get("chat")?.failuresInRow, 1);

  const other = pairWorld();
  other.pass();
  other.reportReady();
  other.pass();
  other.nodes.get("b")!.state = "lost";
  other.pass();
  assert.deepEqual(sent(other.pass()), ["stop r1@a"]);
  other.report("a", [aShard(other.replicas.get("r1")!, { state: "stopped" })]);
  other.pass();
  assert.deepEqual(other.states(), ["chat placing on a+c"]);
});

test("cards that appear, vanish, fall ill and recover are told once each, and a failed look tells nothing [40.N2]", () => {
  const world = new PassWorld([], ["a"]);
  world.pass();
  const gpus = someGpus("a", 8);
  const steps = [
    gpus.slice(1),
    gpus,
    gpus.map((gpu, at) => (at === 3 ? { ...gpu, health: "sick" as const, healthWhy: "XID 79" } : gpu)),
    gpus,
  ];
  for (const cards of steps) {
    world.report("a", [], { gpus: cards });
    world.pass();
    world.pass();
  }
  world.report("a", [], { gpus: [], gpuDiscovery: "failed" });
  world.pass();
  assert.deepEqual(world.told, ["gpuVanished", "gpuAppeared", "gpuSick", "gpuRecovered"]);
});

test("the pass says when it has something to do next, and nothing is due before [40.R1]", () => {
  const world = new PassWorld([chat], ["a"]);
  const placed = world.pass();
  assert.equal(placed.wakeAt, world.now + world.settings.resendMs);
  world.reportReady();
  world.pass();
  assert.equal(world.pass().wakeAt, null, "a settled cluster waits for news only");
});
