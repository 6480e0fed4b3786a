import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { LINK_CLOSE } from "../../src/contract/agent-link.ts";
import {
  gatewayCredentialsView,
  gatewayCredentialView,
  gatewayView,
  type GatewayAnswer,
} from "../../src/contract/control-api.ts";
import type { FakeAgent } from "../../src/testing/fake-agent.ts";
import { FakeGateway } from "../../src/testing/fake-gateway.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { applyCatalog, enrolledAgent, leadingControl } from "./support/fake-fleet.ts";
import { keyOf, type TestControl } from "./support/test-control.ts";

let control: TestControl;
let agent: FakeAgent;
before(async () => {
  control = await leadingControl({ control: { settle_s: 1 } });
  agent = await enrolledAgent(control, "node-a");
});
after(async () => {
  agent.cut();
  await control[Symbol.asyncDispose]();
});

const model = (name: string, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  name,
  profiles: [{ engine: "sim" }],
  ...more,
});
const gateway = (options: ConstructorParameters<typeof FakeGateway>[2] = {}): FakeGateway =>
  new FakeGateway(control.url, keyOf("gateway"), options);
const seen = async (): Promise<readonly GatewayAnswer[]> => {
  const { body } = await control.ask<{ gateways: unknown[] }>("GET", "/v1/gateways", { role: "operator" });
  return body.gateways.map((entry) => gatewayView.parse(entry));
};
const heartbeat = async (holds: () => boolean, what: string): Promise<void> => {
  await eventually(
    what,
    () => {
      agent.report();
      return holds();
    },
    (over) => over,
    30_000,
  );
};

test("a gateway is told the models and, once they are ready, their replicas; changes come as changes [40.C3 80.C14]", async () => {
  await applyCatalog(control, [model("m", { aliases: ["alias"], slots_per_replica: 4 })]);
  await using gw = gateway();
  await heartbeat(() => gw.endpoints.size === 1, "the endpoint");
  assert.deepEqual(gw.models.get("m")?.aliases, ["alias"]);
  const [endpoint] = gw.endpoints.values();
  assert.deepEqual(
    [endpoint?.model, endpoint?.engine, endpoint?.slots, endpoint?.node, endpoint?.draining],
    ["m", "vllm", 4, "node-a", false],
  );
  assert.match(endpoint?.url ?? "", /^http:\/\/node-.*\.test:18\d{3}$/);
  assert.equal(endpoint?.engineKey.length, 43);
  const whole = gw.count("state");
  const version = gw.mark?.version ?? 0;
  await applyCatalog(control, [model("m", { slots_per_replica: 4 }), model("other")]);
  await heartbeat(() => gw.endpoints.size === 2, "the second endpoint");
  assert.equal(gw.count("state"), whole, "no whole state was needed");
  assert.ok((gw.mark?.version ?? 0) > version);
  assert.deepEqual(gw.models.get("m")?.aliases, []);
  assert.ok(!control.logLines.join("\n").includes(endpoint?.engineKey ?? "?"));
});

test("a gateway that has the newest version is sent nothing; one with a gap, another's mark or none is sent the whole state [40.C3]", async () => {
  await using first = gateway();
  await first.until("the state", () => first.mark !== null);
  const mark = first.mark;
  assert.ok(mark !== null);
  await using current = gateway({ have: mark });
  await current.until("the welcome", () => current.count("welcome") === 1);
  await using other = gateway({ have: { ...mark, holder: "another" } });
  await other.until("the state", () => other.count("state") === 1);
  assert.equal(current.count("state"), 0);
  current.say({ type: "resync" });
  await current.until("the state", () => current.count("state") === 1);
  assert.equal(current.mark?.version, mark.version);
});

test("a removed model's replica drains, and stops as soon as every gateway has said that it has no call there [40.C2 80.C16]", async () => {
  await applyCatalog(control, [model("m"), model("leaving")]);
  await using gw = gateway({ name: "gw-1" });
  await heartbeat(() => [...gw.endpoints.values()].some((endpoint) => endpoint.model === "leaving"), "the endpoint");
  const id = [...gw.endpoints.values()].find((endpoint) => endpoint.model === "leaving")?.replicaId ?? "";
  gw.used = { [id]: { inFlight: 1, idleMs: 0 } };
  await applyCatalog(control, [model("m")]);
  await heartbeat(() => gw.endpoints.get(id)?.draining === true, "the drain");
  assert.equal(gw.models.has("leaving"), false);
  const asked = agent.commands.length;
  await heartbeat(() => gw.mark !== null, "a heartbeat");
  assert.ok(!agent.commands.slice(asked).some(({ verb }) => verb.kind === "stop"));
  gw.used = { [id]: { inFlight: 0, idleMs: 10 } };
  await eventually(
    "the stop",
    () => {
      agent.report();
      return agent.commands.some(({ verb }) => verb.kind === "stop" && verb.replicaId === id);
    },
    (stopped) => stopped,
    60_000,
  );
  await heartbeat(() => !gw.endpoints.has(id), "the end");
});

test("a gateway's request for a model that runs on demand has it started, told in words meanwhile [10.L1 40.C3]", async () => {
  await applyCatalog(control, [model("m"), model("lazy", { replicas: { min: 0, max: 1 } })]);
  await using gw = gateway();
  await heartbeat(() => gw.models.get("lazy")?.settled === "stopped", "the model");
  agent.obeys = false;
  gw.demand = { lazy: { waiting: 2, oldestWaitMs: 100 } };
  gw.reportNow();
  await heartbeat(() => gw.models.get("lazy")?.settled === "starting", "the start");
  assert.match(gw.models.get("lazy")?.why ?? "", /placing since/);
  agent.obeys = true;
  await heartbeat(() => gw.models.get("lazy")?.settled === "ready", "the replica");
  assert.equal(gw.models.get("lazy")?.why, null);
});

test("who connected, how far each has been told and what it holds is shown", async () => {
  await using gw = gateway({ name: "gw-shown" });
  gw.demand = { m: { waiting: 3, oldestWaitMs: 5 } };
  gw.used = { r1: { inFlight: 2, idleMs: 0 }, r2: { inFlight: 1, idleMs: 0 } };
  const all = await eventually("the gateway", seen, (list) =>
    list.some(({ name, waiting, behind }) => name === "gw-shown" && waiting === 3 && !behind),
  );
  const mine = all.find(({ name }) => name === "gw-shown");
  assert.deepEqual([mine?.in_flight, mine?.version, mine?.at], [3, "test", gw.mark?.version]);
});

test("only a gateway's own credential, a gateway's key and an administrator's have the feed; one that is taken back ends at once [80.C37 80.C38]", async () => {
  for (const [credential, status] of [
    [keyOf("operator"), 403],
    [keyOf("client"), 403],
    [keyOf("agent"), 403],
    ["ymg_guessed", 401],
    ["wrong", 401],
    [null, 401],
    [agent.credential, 401],
  ] as const) {
    await using refused = new FakeGateway(control.url, credential);
    await refused.until("the refusal", () => refused.refusedWith !== null);
    assert.equal(refused.refusedWith, status, credential ?? "none");
  }
  const made = await control.ask("POST", "/v1/gateways/credentials", { body: '{"name":"gw-9"}' });
  const { credential } = gatewayCredentialView.parse(made.body);
  await using gw = new FakeGateway(control.url, credential, { name: "calls itself otherwise" });
  await gw.until("the state", () => gw.mark !== null);
  assert.ok((await seen()).some(({ name }) => name === "gw-9"));
  const listed = await control.ask("GET", "/v1/gateways/credentials", { role: "operator" });
  assert.deepEqual(
    gatewayCredentialsView.parse(listed.body).credentials.map(({ name }) => name),
    ["gw-9"],
  );
  assert.ok(!JSON.stringify(listed.body).includes(credential));
  assert.equal((await control.ask("DELETE", "/v1/gateways/credentials/gw-9", { role: "operator" })).status, 403);
  assert.equal((await control.ask("DELETE", "/v1/gateways/credentials/gw-9")).status, 200);
  await gw.until("the close", () => gw.closedWith !== null);
  assert.equal(gw.closedWith, LINK_CLOSE.unauthorized);
  assert.equal((await control.ask("DELETE", "/v1/gateways/credentials/gw-9")).status, 404);
  assert.ok(!control.logLines.join("\n").includes(credential));
});

test("garbage from a gateway ends its connection, and what it held is in no log; others go on [80.I9]", async () => {
  await using good = gateway();
  await good.until("the state", () => good.mark !== null);
  for (const frame of ["{", '{"type":"report","used":"CANARY-garbage"}', "x".repeat(5 * 1024 * 1024)]) {
    await using bad = gateway();
    await bad.until("the state", () => bad.mark !== null);
    bad.sayRaw(frame);
    await bad.until("the close", () => bad.closedWith !== null);
  }
  assert.equal(good.closedWith, null);
  assert.ok(!control.logLines.join("\n").includes("CANARY-garbage"));
});
