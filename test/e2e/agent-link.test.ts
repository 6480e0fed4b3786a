import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { Verb } from "../../src/contract/agent-link.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { Secret } from "../../src/kernel/secret.ts";
import { FakeControlPlane } from "../../src/testing/fake-control-plane.ts";
import { FaultProxy } from "../../src/testing/fault-proxy.ts";
import { aSelfSignedCertificate } from "../../src/testing/self-signed-certificate.ts";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { agentWorld, ledAgent, TOKEN, untilLed, type AgentWorld } from "./support/test-agent.ts";
import { passTime, passTimeUntil } from "./support/virtual-time.ts";

const AT_ONCE = { random: { next: () => 0 } };
const stopOf = (replicaId: string): Verb => ({ kind: "stop", replicaId, generation: 1, graceMs: 100, why: "test" });

test("a node is enrolled by one use of its token over one connection; its own credential serves for all others, and after a restart [40.N1 80.D26]", async () => {
  const credentials = new Map<string, string>();
  await using other = await FakeControlPlane.start({ credentials });
  await using world = await agentWorld({ control: { credentials } });
  const { control, folder } = world;
  Object.assign(world.section, { control: [control.url, other.url] });
  await world.startAgent(AT_ONCE);
  await control.nextReport();
  await other.nextReport();
  assert.deepEqual([control.shown, other.shown.includes(TOKEN)], [[TOKEN], false]);
  const file = join(folder, "agent/membership.json");
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const [credential = ""] = credentials.keys();
  assert.equal((JSON.parse(readFileSync(file, "utf8")) as { credential: string }).credential, credential);
  await world.stopAgent();
  await world.startAgent(AT_ONCE);
  await control.nextReport();
  assert.deepEqual(control.shown, [TOKEN, credential]);
  assert.equal(control.report?.nodeId, "node-node-a");
  for (const secret of [TOKEN, credential]) assert.ok(!world.log().includes(secret));
});

test("control planes that others tell of are dialled, also after a restart; unsafe addresses are not [40.N1]", async () => {
  const credentials = new Map<string, string>();
  await using other = await FakeControlPlane.start({ credentials });
  const controls = ["ws://192.0.2.7:8300", "http://127.0.0.1:1", `${other.url}/`];
  await using world = await agentWorld({ control: { credentials, controls } });
  await world.startAgent(AT_ONCE);
  await other.nextReport();
  await world.stopAgent();
  await world.control.close();
  const from = other.heard.length;
  await world.startAgent(AT_ONCE);
  await other.until("a hello after the restart", () =>
    other.heard.slice(from).some(({ message }) => message.type === "hello"),
  );
  assert.doesNotMatch(readFileSync(join(world.folder, "agent/agent.json"), "utf8"), /192\.0\.2\.7/);
});

test("a renewed credential is kept before it is used, and used from the next connection on [40.N1]", async () => {
  await using world = await ledAgent();
  const { control, folder } = world;
  control.credentials.set("renewed-credential-0123456789", "node-node-a");
  control.say({
    type: "welcome",
    clusterId: "cluster",
    controlId: "x",
    nodeId: "node-node-a",
    credential: "renewed-credential-0123456789",
    heartbeatMs: 200,
    controls: [],
  });
  await eventually(
    "the file",
    () => readFileSync(join(folder, "agent/membership.json"), "utf8"),
    (text) => text.includes("renewed"),
  );
  await world.stopAgent();
  await world.startAgent();
  await control.nextReport();
  assert.equal(control.shown.at(-1), "renewed-credential-0123456789");
});

test("a token that is not accepted is shown once, not again and again [80.D26]", async () => {
  const clock = new VirtualClock();
  await using world = await agentWorld({ control: { tokens: [] } });
  await world.startAgent({ clock });
  await passTimeUntil(clock, "the refusal", () => world.control.refusals.length > 0, 60_000);
  await passTime(clock, 600_000, 5_000);
  assert.deepEqual([world.control.refusals, world.control.shown], [[401], [TOKEN]]);
  assert.match(world.log(), /enrol\.refused/);
});

test("wss is checked against the given certificates, and a control plane with another one is not spoken to [40.N1]", async () => {
  const certificate = aSelfSignedCertificate("localhost");
  await using world = await agentWorld({ control: { tls: certificate } });
  const url = `wss://localhost:${world.control.port}`;
  const file = join(world.folder, "ca.pem");
  await writeFile(file, aSelfSignedCertificate("localhost").cert);
  Object.assign(world.section, { control: [url], ca_file: file });
  await world.startAgent();
  await eventually(
    "the refusal",
    () => world.log(),
    (text) => text.includes("link.down"),
  );
  assert.deepEqual(world.control.shown, []);
  await world.stopAgent();
  await writeFile(file, certificate.cert);
  await world.startAgent();
  await world.control.nextReport();
});

/** An agent on virtual time whose link passes through a proxy that can be hurt. */
async function virtualAgent(): Promise<{ world: AgentWorld; clock: VirtualClock; proxy: FaultProxy }> {
  const clock = new VirtualClock();
  const world = await agentWorld();
  const proxy = await FaultProxy.start({ clock: systemClock, target: { port: world.control.port } });
  Object.assign(world.section, { control: [`ws://127.0.0.1:${proxy.port}`] });
  await world.startAgent({ clock, ...AT_ONCE });
  await passTimeUntil(clock, "a report", () => world.control.report !== undefined, 60_000);
  return { world, clock, proxy };
}

for (const direction of ["upstream", "downstream"] as const) {
  const lost = direction === "upstream" ? "from the agent" : "from the control plane";
  test(`a link on which nothing ${lost} gets through is found dead within 35 s, and dialled anew [80.A2]`, async () => {
    const { world, clock, proxy } = await virtualAgent();
    await using _world = world;
    await using _proxy = proxy;
    await passTime(clock, 120_000);
    assert.equal(proxy.accepted, 1);
    const hurt = proxy.add(direction, { kind: "timeout", timeoutMs: 0 });
    const ms = await passTimeUntil(clock, "the end of the link", () => world.log().includes("no answer for"), 60_000);
    // What the agent reads of its machine takes real time, in which the virtual one goes on.
    const silentS = Number(/no answer for (\d+) s/.exec(world.log())?.[1]);
    assert.ok(silentS <= 35 && ms <= 60_000, `${silentS} s, ${ms} ms`);
    hurt[Symbol.dispose]();
    await passTimeUntil(clock, "a new link", () => proxy.accepted > 1, 60_000);
  });
}

test("a link on which only pings go unanswered is dead, whatever else comes in [80.A2]", async () => {
  const { world, clock, proxy } = await virtualAgent();
  await using _world = world;
  await using _proxy = proxy;
  world.control.answersPings = false;
  const ms = await passTimeUntil(
    clock,
    "the end of the link",
    () => {
      world.control.say({ type: "ping", n: 1 });
      return world.log().includes("no answer for");
    },
    60_000,
  );
  assert.ok(ms <= 45_000, `${ms} ms`);
});

test("a control plane that was restarted has every agent back after one quick try", async () => {
  const clock = new VirtualClock();
  await using world = await agentWorld();
  const { control } = world;
  await world.startAgent({ clock });
  await passTimeUntil(clock, "a report", () => control.report !== undefined, 60_000);
  await passTime(clock, 10_000);
  const { port, credentials } = control;
  await control.close();
  await using again = await FakeControlPlane.start({ credentials }, port);
  const ms = await passTimeUntil(clock, "a report", () => again.report !== undefined, 60_000);
  assert.ok(ms <= 5_000, `${ms} ms`);
});

test("only a control plane that said to lead on this link is obeyed, and what it said is forgotten with the link [80.C2 40.N1]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await world.startAgent(AT_ONCE);
  await control.nextReport();
  const unled = await control.command(stopOf("r9"));
  assert.deepEqual([unled.outcome, unled.code], ["refused", "NOT_LEADING"]);
  control.lead();
  assert.equal((await control.command(stopOf("r9"))).outcome, "done");
  control.cut();
  await control.nextReport();
  assert.equal((await control.command(stopOf("r9"))).code, "NOT_LEADING");
});

test("an agent that can't write down whom it obeys obeys nobody and says so, and follows by itself as soon as it can write [80.A15 80.C2]", async () => {
  await using world = await ledAgent();
  const { control, folder } = world;
  // What is written to it finds the disk full.
  const draft = join(folder, "agent", "epoch.json.new");
  await symlink("/dev/full", draft);
  const refused = await control.command(stopOf("r9"));
  assert.deepEqual([refused.outcome, refused.code], ["failed", "AGENT_STATE"]);
  control.lead({ epoch: 2, holder: "x" });
  await eventually(
    "the failure",
    () => world.log(),
    (text) => text.includes("lead.not_kept"),
  );
  await control.nextReport();
  assert.equal(control.report?.highestEpoch?.epoch, 1, "nothing is claimed that is not on the disk");
  await rm(draft);
  await control.until("the lead is followed", () => control.report?.highestEpoch?.epoch === 2);
  assert.equal((await control.command(stopOf("r9"), { epoch: 2, holder: "x", seq: 1 })).outcome, "done");
});

test("an older epoch and a second holder are refused, also after a restart of the agent, and nothing of theirs is done [80.C1 80.C2]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  control.lead({ epoch: 5, holder: "x" });
  assert.equal((await control.command(stopOf("r9"), { epoch: 5, holder: "x", seq: 1 })).outcome, "done");
  await world.stopAgent();
  await world.startAgent(AT_ONCE);
  await control.nextReport();
  assert.deepEqual(control.report?.highestEpoch, { clusterId: "cluster", epoch: 5, holder: "x" });
  for (const [lead, code] of [
    [{ epoch: 4, holder: "y" }, "STALE_EPOCH"],
    [{ epoch: 5, holder: "y" }, "EPOCH_CONFLICT"],
    [{ epoch: 9, holder: "y", clusterId: "other" }, "CLUSTER_MISMATCH"],
  ] as const) {
    control.lead(lead);
    const start = await control.command(world.hostileStart([]), { ...lead, seq: 100 });
    assert.deepEqual([start.outcome, start.code], ["refused", code]);
  }
  // A number that was used before the restart is not used again.
  control.lead({ epoch: 5, holder: "x" });
  const replayed = await control.command(world.hostileStart([]), { epoch: 5, holder: "x", seq: 1 });
  assert.equal(replayed.code, "REPLAYED");
  assert.deepEqual((await control.nextReport()).shards, []);
});

test("a command that comes again is answered as the first time, and has one effect [80.D27]", async () => {
  await using world = await ledAgent();
  const { control } = world;
  const start = world.hostileStart(["exit=1"]);
  const first = await control.command(start, { commandId: "same", seq: 10 });
  await control.untilState("r1", "failed");
  const again = await control.command(start, { commandId: "same", seq: 10 });
  assert.deepEqual([first.outcome, again.outcome], ["accepted", "accepted"]);
  const replayed = await control.command(stopOf("r1"), { commandId: "other", seq: 10 });
  assert.equal(replayed.code, "REPLAYED");
  assert.equal((await control.nextReport()).shards.length, 1);
  await world.stopAgent(); // The log is written in batches, and to its end then.
  assert.equal(world.log().match(/"state":"failed"/g)?.length, 1);
});

test("unknown messages are passed over, broken ones end the connection, and no secret of theirs is in the log [40.N1]", async () => {
  await using world = await agentWorld();
  const { control } = world;
  await world.startAgent(AT_ONCE);
  await control.nextReport();
  control.sayRaw('{"type":"from-the-future","secret":"CANARY-future"}');
  await control.nextReport();
  assert.equal(control.open, 1);
  for (const frame of ['{"type":"command","engineKey":"CANARY-broken"}', "CANARY-not-json", Buffer.from([1, 2])]) {
    const from = control.shown.length;
    control.sayRaw(frame);
    await control.until("a new connection", () => control.shown.length > from);
    await control.nextReport();
  }
  assert.doesNotMatch(world.log(), /CANARY/);
});

test("a welcome of another cluster is refused", async () => {
  await using world = await ledAgent();
  const { port, credentials } = world.control;
  await world.control.close();
  await using other = await FakeControlPlane.start({ credentials, clusterId: "other" }, port);
  await world.stopAgent();
  await world.startAgent({ token: new Secret(TOKEN), ...AT_ONCE });
  await other.until("a hello", () => other.heard.length > 0);
  await eventually(
    "the refusal",
    () => world.log(),
    (text) => text.includes("belongs to cluster cluster"),
  );
  assert.ok(!other.heard.some(({ message }) => message.type === "report"));
});

test("a second control plane takes over with a higher epoch, and the first is refused from then on [80.C2]", async () => {
  const credentials = new Map<string, string>();
  await using standby = await FakeControlPlane.start({ credentials });
  await using world = await agentWorld({ control: { credentials } });
  const { control } = world;
  Object.assign(world.section, { control: [control.url, standby.url] });
  await world.startAgent(AT_ONCE);
  await untilLed(control);
  await standby.nextReport();
  standby.lead({ epoch: 2, holder: "standby" });
  assert.equal((await standby.command(stopOf("r9"), { epoch: 2, holder: "standby" })).outcome, "done");
  const late = await control.command(world.hostileStart([]));
  assert.deepEqual([late.outcome, late.code], ["refused", "STALE_EPOCH"]);
});
