import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { API_ROUTES } from "../../src/control/api/routes.ts";
import { WRONG_KEYS_BURST } from "../../src/access/wrong-key-limit.ts";
import { LINK_CLOSE } from "../../src/contract/agent-link.ts";
import type { StoredEvent } from "../../src/contract/control-event.ts";
import type { LeaderAnswer, NodeAnswer } from "../../src/contract/control-api.ts";
import { FakeAgent } from "../../src/testing/fake-agent.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { applyCatalog, enrolledAgent, leadingControl, tokenFor } from "./support/fake-fleet.ts";
import { startTestControl, type TestControl } from "./support/test-control.ts";

let control: TestControl;
before(async () => {
  control = await leadingControl();
});
after(() => control[Symbol.asyncDispose]());

const events = async (kind: string): Promise<readonly StoredEvent[]> =>
  (await control.ask<{ events: StoredEvent[] }>("GET", `/v1/events?kind=${kind}`)).body.events;
const nodes = async (): Promise<readonly NodeAnswer[]> =>
  (await control.ask<{ nodes: NodeAnswer[] }>("GET", "/v1/nodes")).body.nodes;
/** One that fits only the node with its label. */
const modelFor = (node: string): Record<string, unknown> => ({
  name: `model-${node}`,
  profiles: [{ engine: "sim" }],
  nodes: { require: { for: node } },
});
const closed = (agent: FakeAgent): Promise<void> => agent.until("the close", () => agent.closedWith !== null);

test("a token enrols its node once; the credential that it was given for it serves from then on [40.N1 80.C39]", async () => {
  const token = await tokenFor(control, "node-a");
  const agent = new FakeAgent("node-a", token);
  agent.connect(control.url);
  await agent.until("the welcome", () => agent.nodeId !== null);
  assert.match(agent.credential, /^ymn_/);
  const again = new FakeAgent("node-a", token);
  again.connect(control.url);
  await closed(again);
  assert.equal(again.closedWith, LINK_CLOSE.unauthorized);
  assert.equal((await events("enrolmentRefused")).length, 1);
  agent.cut();
  await closed(agent);
  const { nodeId } = agent;
  const from = agent.heard.length;
  agent.connect(control.url);
  await agent.until("the welcome", () => agent.heard.slice(from).some(({ type }) => type === "welcome"));
  const welcome = agent.heard.slice(from).find((message) => message.type === "welcome");
  assert.deepEqual([welcome?.nodeId, welcome?.credential, welcome?.heartbeatMs], [nodeId, null, 2_000]);
  await eventually("the node", nodes, (seen) => seen.some(({ name, state }) => name === "node-a" && state === "ready"));
  agent.cut();
});

test("guessed tokens are tried ever more slowly, by their address, and told of once [80.D26 40.V3]", async () => {
  await using other = await startTestControl();
  const guess = async (index: number): Promise<number | null> => {
    const agent = new FakeAgent("guesser", `ymt_guess-${index}`);
    agent.connect(other.url);
    await closed(agent);
    return agent.closedWith;
  };
  const answers: (number | null)[] = [];
  for (let index = 0; index < WRONG_KEYS_BURST + 6; index += 1) answers.push(await guess(index));
  assert.deepEqual(answers.slice(0, WRONG_KEYS_BURST), Array(WRONG_KEYS_BURST).fill(LINK_CLOSE.unauthorized));
  assert.ok(answers.slice(WRONG_KEYS_BURST).includes(1013), `${answers.join()}`);
  const told = await eventually(
    "the event",
    async () => (await other.ask<{ events: StoredEvent[] }>("GET", "/v1/events?kind=enrolmentRefused")).body.events,
    (list) => list.length > 0,
  );
  assert.equal(told.length, 1);
});

test("a node's credential opens no route of the API but those that are open to all [80.D25]", async () => {
  const agent = await enrolledAgent(control, "curious");
  const keyed = API_ROUTES.filter(({ access }) => !["open", "scrape", "page"].includes(String(access)));
  assert.ok(keyed.length > 20);
  for (const { methods, pattern } of keyed)
    for (const method of methods) {
      const path = pattern.replaceAll(/\{[^}]+\}|:[a-z]+|\*/gi, "x");
      const response = await fetch(control.url + path, {
        method,
        headers: { authorization: `Bearer ${agent.credential}` },
      });
      assert.ok([401, 429].includes(response.status), `${method} ${path}: ${response.status}`);
      assert.ok(!(await response.text()).includes(agent.credential));
    }
  agent.cut();
});

test("a node that reports an epoch or a commit that nobody gave it ends no term and makes no old copy of the store, and is told of [80.P3 80.P7 80.D25]", async () => {
  const liar = await enrolledAgent(control, "liar");
  const before = (await control.ask<LeaderAnswer>("GET", "/v1/leader")).body;
  const { highestEpoch } = liar;
  assert.ok(highestEpoch !== null);
  liar.report({ highestEpoch: { ...highestEpoch, epoch: 2 ** 48, holder: "me" } });
  liar.report({ highestEpoch: { ...highestEpoch, epoch: highestEpoch.epoch + 1, holder: "me" } });
  liar.report({ highestCommit: 2 ** 40, proofs: { epoch: liar.epochProof, commit: liar.epochProof } });
  await eventually(
    "the event",
    () => events("credentialRefused"),
    (seen) =>
      seen.some(({ nodeId, why }) => nodeId === liar.nodeId && why.includes("no control plane of this cluster")),
  );
  // It is heard as before once it tells the truth.
  liar.report();
  await eventually("the node", nodes, (list) => list.some(({ name, state }) => name === "liar" && state === "ready"));
  const { body } = await control.ask<LeaderAnswer>("GET", "/v1/leader");
  assert.deepEqual([body.epoch, body.leader], [before.epoch, before.leader]);
  assert.equal((await control.ask<{ restored: boolean }>("GET", "/v1/status")).body.restored, false);
  liar.cut();
});

test("a second machine gets no token for the name of a node that is connected, unless it is said to take its place [40.N1]", async () => {
  const agent = await enrolledAgent(control, "taken");
  const ask = (body: object): ReturnType<typeof control.ask> =>
    control.ask("POST", "/v1/enrolment-tokens", { body: JSON.stringify({ node: "taken", ...body }) });
  const refused = await ask({});
  assert.deepEqual([refused.status, refused.body.error?.code], [409, "NODE_CONNECTED"]);
  assert.equal((await ask({ replace: true })).status, 201);
  assert.ok(agent.isOpen, "a token that is not used shuts nobody out");
  agent.cut();
  await eventually(
    "a token for a node that is away",
    () => ask({}),
    ({ status }) => status === 201,
  );
});

test("what is no node's credential is refused before the connection opens, and so is another version of the link [40.N1]", async () => {
  for (const [credential, status] of [
    ["ymn_guessed", 401],
    ["CANARY-admin-0123456789abcdef0123456789abcdef", 401],
    ["", 401],
  ] as const) {
    const agent = new FakeAgent("node-x", credential);
    agent.connect(control.url);
    await agent.until("the refusal", () => agent.refusedWith !== null);
    assert.equal(agent.refusedWith, status);
  }
  for (const [path, expected] of [
    ["/agent/v2", /^HTTP\/1\.1 404 .*speaks \/agent\/v1 and \/gateway\/v1/s],
    ["/v1/status", /^HTTP\/1\.1 404 .*nothing here speaks another protocol/s],
    ["/agent/v1?token=x", /^HTTP\/1\.1 400 /],
  ] as const)
    assert.match(await upgradeAnswer(path), expected);
  assert.ok(!control.logLines.join("\n").includes("CANARY"));
});

/** What a request for an upgrade is answered with. */
async function upgradeAnswer(path: string): Promise<string> {
  const { port } = new URL(control.url);
  using client = await RawClient.connect(Number(port));
  const key = "dGhlIHNhbXBsZSBub25jZQ==";
  const lines = [
    `GET ${path} HTTP/1.1`,
    "Host: c",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
  ];
  await client.write(
    Buffer.from(`${lines.join("\r\n")}\r\nSec-WebSocket-Key: ${key}\r\nAuthorization: Bearer x\r\n\r\n`),
  );
  return (await client.readToEnd()).toString("latin1");
}

test("a credential speaks for its own node: a report of another one, and a hello as another one, end the connection and are told [80.C40 80.D25]", async () => {
  const victim = await enrolledAgent(control, "victim");
  const thief = await enrolledAgent(control, "thief");
  thief.report({ nodeId: victim.nodeId ?? "", name: "victim" });
  await closed(thief);
  assert.equal(thief.closedWith, LINK_CLOSE.unauthorized);
  await eventually(
    "the event",
    () => events("credentialRefused"),
    (seen) => seen.some(({ nodeId: of }) => of === thief.nodeId),
  );
  const { nodeId } = thief;
  thief.nodeId = victim.nodeId;
  thief.connect(control.url);
  await thief.until("the close", () => thief.closedWith !== null);
  assert.equal(thief.closedWith, LINK_CLOSE.unauthorized);
  assert.ok(victim.isOpen);
  // A name is what the node was enrolled under, whatever it calls itself.
  thief.nodeId = nodeId;
  thief.part = { name: "victim" };
  thief.connect(control.url);
  await thief.until("the welcome", () => thief.isOpen && thief.heard.at(-1)?.type === "lead");
  thief.report();
  const seen = await eventually("the node", nodes, (list) =>
    list.some(({ id, state }) => id === nodeId && state === "ready"),
  );
  assert.equal(seen.find(({ id }) => id === nodeId)?.name, "thief");
  victim.cut();
  thief.cut();
});

test("a second machine with a connected node's credential is not let in, and told of once; one that takes its place by a token, or after its end, is [40.N1 80.I4 80.C40]", async () => {
  await using own = await leadingControl();
  const agent = await enrolledAgent(own, "original");
  const { nodeId, credential } = agent;
  const copy = new FakeAgent("original", credential);
  Object.assign(copy, { nodeId, bootId: "boot-2" });
  for (let round = 0; round < 3; round += 1) {
    agent.report();
    copy.connect(own.url);
    await closed(copy);
    assert.equal(copy.closedWith, 1013);
  }
  assert.ok(agent.isOpen);
  const told = await own.ask<{ events: StoredEvent[] }>("GET", "/v1/events?kind=credentialRefused");
  assert.deepEqual(
    told.body.events.map((event) => event.nodeId),
    [nodeId],
  );
  agent.cut();
  await closed(agent);
  copy.connect(own.url);
  await copy.until("the welcome", () => copy.heard.some(({ type }) => type === "welcome"));
  const heir = new FakeAgent("original", await tokenFor(own, "original", true));
  heir.bootId = "boot-3";
  heir.connect(own.url);
  await heir.until("the welcome", () => heir.nodeId !== null);
  await closed(copy);
  heir.cut();
});

test("a newer connection of a node takes over, and commands go to it with numbers that go on growing [40.N1 80.C1]", async () => {
  const agent = await enrolledAgent(control, "twice");
  agent.obeys = false;
  await eventually("the node", nodes, (list) => list.some(({ name, state }) => name === "twice" && state === "ready"));
  agent.part = { labels: { for: "twice" } };
  agent.report();
  await applyCatalog(control, [modelFor("twice")]);
  await agent.until("a start", () => agent.commands.length > 0);
  const second = new FakeAgent("twice", agent.credential);
  second.nodeId = agent.nodeId;
  second.part = agent.part;
  second.obeys = false;
  second.connect(control.url);
  await closed(agent);
  assert.equal(agent.closedWith, LINK_CLOSE.replaced);
  await second.until("the start again", () => second.commands.length > 0);
  const [first, next] = [agent.commands.at(-1), second.commands[0]];
  assert.ok(first !== undefined && next !== undefined && next.seq > first.seq, `${first?.seq} ${next?.seq}`);
  assert.deepEqual([next.epoch, next.holder, next.clusterId], [first.epoch, first.holder, first.clusterId]);
  assert.notEqual(next.commandId, first.commandId);
  assert.ok(next.validForMs >= 15_000);
  const at = second.heard.findIndex(({ type }) => type === "command");
  assert.ok(
    second.heard.slice(0, at).some(({ type }) => type === "lead"),
    "lead was said on this connection first",
  );
  // A refusal is told once, however often the same is asked and refused.
  for (let time = 0; time < 3; time += 1)
    second.say({ type: "result", commandId: next.commandId, outcome: "refused", code: "LAUNCH_REFUSED", why: "no" });
  const [refusal] = await eventually(
    "the event",
    () => events("commandRefused"),
    (seen) => seen.length > 0,
  );
  assert.match(refusal?.why ?? "", /LAUNCH_REFUSED/);
  assert.equal((await events("commandRefused")).filter(({ replicaId }) => replicaId !== null).length, 1);
  second.cut();
});

test("garbage, binary and oversized frames, a second hello and words before the welcome end that connection and no other [80.I9 80.D27]", async () => {
  const good = await enrolledAgent(control, "good");
  const bad = await enrolledAgent(control, "bad");
  const frames: readonly (string | Buffer)[] = [
    "{",
    '{"type":"report","seq":1,"report":{"nodeId":7}}',
    Buffer.from([1, 2, 3]),
    `{"type":"logs","requestId":"x","lines":["${"x".repeat(5 * 1024 * 1024)}"]}`,
    '{"type":"hello","nodeName":"bad","nodeId":null,"bootId":"b","agentVersion":"1"}',
  ];
  for (const frame of frames) {
    bad.sayRaw(frame);
    await closed(bad);
    const from = bad.heard.length;
    bad.connect(control.url);
    await bad.until("the welcome", () => bad.heard.slice(from).some(({ type }) => type === "welcome"));
  }
  bad.sayRaw('{"type":"from-the-future","secret":"CANARY-future"}');
  bad.say({ type: "ping", n: 5 });
  await bad.until("the pong", () => bad.heard.some((message) => message.type === "pong" && message.n === 5));
  assert.ok(good.isOpen);
  assert.ok(!control.logLines.join("\n").includes("CANARY"));
  good.cut();
  bad.cut();
});

test("a node that is removed is disconnected, can't come back, and gets no document again [80.C40]", async () => {
  const agent = await enrolledAgent(control, "removed");
  await eventually("the node", nodes, (list) =>
    list.some(({ name, state }) => name === "removed" && state === "ready"),
  );
  assert.equal((await control.ask("DELETE", "/v1/nodes/removed")).status, 200);
  await closed(agent);
  assert.equal(agent.closedWith, LINK_CLOSE.unauthorized);
  agent.connect(control.url);
  await agent.until("the refusal", () => agent.refusedWith !== null);
  assert.equal(agent.refusedWith, 401);
  assert.ok(!(await nodes()).some(({ name }) => name === "removed"));
});

test("logs of a replica come from its node; an unknown replica, an unknown log and a silent node are told apart [40.N4]", async () => {
  const agent = await enrolledAgent(control, "logs");
  agent.part = { labels: { for: "logs" } };
  agent.report();
  await applyCatalog(control, [modelFor("logs")]);
  await agent.until("a start", () => agent.shards.length > 0);
  const [shard] = agent.shards;
  const ask = (id: string, query = ""): ReturnType<TestControl["ask"]> =>
    control.ask("GET", `/v1/replicas/${id}/logs${query}`);
  const { replicaId = "" } = shard ?? {};
  assert.deepEqual((await ask(replicaId, "?lines=10")).body, {
    replica: replicaId,
    shard: 0,
    lines: [`a line of ${replicaId}`],
  });
  assert.deepEqual([(await ask("nobody")).status, (await ask(replicaId, "?shard=1")).status], [404, 404]);
  assert.equal((await ask(replicaId, "?lines=0")).status, 400);
  agent.obeys = false;
  const asked = agent.commands.length;
  const pending = ask(replicaId);
  await agent.until("the question", () => agent.commands.length > asked);
  agent.say({
    type: "result",
    commandId: agent.commands.at(-1)?.commandId ?? "",
    outcome: "refused",
    code: "SHARD_UNKNOWN",
    why: "",
  });
  assert.equal((await pending).body.error?.code, "SHARD_UNKNOWN");
  agent.cut();
  await eventually(
    "the end of the connection",
    () => control.logLines.join("\n"),
    (text) => /"agent\.disconnected"[^\n]*"logs"/.test(text),
  );
  assert.equal((await ask(replicaId)).body.error?.code, "NODE_SILENT");
});
