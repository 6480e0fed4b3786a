import assert from "node:assert/strict";
import { after, test } from "node:test";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call, errorCodeOf } from "./support/calls.ts";
import { accepted, ask } from "./support/jobs.ts";
import { chatBody, ReplayWorld } from "./support/replay-world.ts";
import type { TestGateway } from "./support/test-gateway.ts";

// One audit for all gateways under `coordination: redis`.

const server = await OwnRedis.start();
after(() => server.close());
let prefixes = 0;

const open = (url = server.url): Promise<ReplayWorld> =>
  ReplayWorld.open({
    gateways: 2,
    file: {
      coordination: "redis",
      redis_url: url,
      coordination_timeout_ms: 2_000,
      key_prefix: `a${++prefixes}`,
      audit: { max: 50_000 },
    },
  });
const gatewaysOf = ({ gateways }: ReplayWorld): readonly [TestGateway, TestGateway] => {
  const [one, other] = gateways;
  assert.ok(one !== undefined && other !== undefined);
  return [one, other];
};
const chats = (gateway: TestGateway, count: number) =>
  Promise.all(Array.from({ length: count }, () => call(gateway, { body: chatBody() })));

test("each gateway shows the requests of all, in one sequence without gaps, and knows of no prompt or key [10.O1 80.I7]", async () => {
  const world = await open();
  try {
    const [one, other] = gatewaysOf(world);
    const answers = [...(await chats(one, 15)), ...(await chats(other, 15))];
    for (const gateway of [one, other]) {
      const page = await eventually(
        "all records",
        () => gateway.audit("?limit=100"),
        ({ records }) => records.length === 30,
      );
      assert.deepEqual(
        page.records.map(({ seq }) => seq),
        Array.from({ length: 30 }, (_, i) => i + 1),
      );
      assert.deepEqual(
        new Set(page.records.map(({ requestId }) => requestId)),
        new Set(answers.map(({ headers }) => headers["x-request-id"])),
      );
      assert.deepEqual(page.gaps, []);
      assert.doesNotMatch(JSON.stringify(page), /CANARY|"hi"/);
    }
    const some = await one.audit("?after_seq=27&key_id=test-client");
    assert.equal(some.records.length, 3);
  } finally {
    await world.close();
  }
});

test("a gateway that stops leaves none of its requests out: two hundred, and a stop at once [10.O1]", async () => {
  const world = await open();
  const [one, other] = gatewaysOf(world);
  try {
    const answers = await chats(one, 200);
    await one.stop();
    const page = await other.audit("?limit=1000");
    assert.deepEqual(
      new Set(page.records.map(({ requestId }) => requestId)),
      new Set(answers.map(({ headers }) => headers["x-request-id"])),
    );
    assert.equal(page.records.length, 200);
    assert.deepEqual(page.gaps, []);
  } finally {
    await other.stop();
    await world.engine[Symbol.asyncDispose]();
  }
});

test("while the server is away requests go on as fast, and are all recorded when it is back [10.O1 80.G18]", async () => {
  await using own = await OwnRedis.start(["--appendonly", "yes", "--appendfsync", "always"]);
  const world = await open(own.url);
  try {
    const [one] = gatewaysOf(world);
    await chats(one, 10);
    await eventually(
      "the first records",
      () => one.audit(),
      ({ records }) => records.length === 10,
    );
    await own.kill();
    const answers = await chats(one, 100);
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    await own.again();
    const page = await eventually(
      "all records",
      () => one.audit("?limit=1000").catch(() => null),
      (read) => read?.records?.length === 110,
    );
    assert.equal(page?.dropped, 0);
    assert.deepEqual(page?.gaps, []);
    assert.equal(await one.metric("yardmaster_audit_dropped_total"), 0);
  } finally {
    await world.close();
  }
});

test("what an administrator changes is on record before it is done, and is not done while the audit is away; inference goes on, and a key is revoked all the same [80.G18 60.K1]", async () => {
  await using own = await OwnRedis.start(["--appendonly", "yes", "--appendfsync", "always"]);
  const world = await open(own.url);
  try {
    const [one] = gatewaysOf(world);
    const change = (method: string, path: string, body?: unknown): Promise<Response> =>
      fetch(`${one.url}${path}`, {
        method,
        headers: { authorization: `Bearer ${one.keys.admin}`, "content-type": "application/json" },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
    const aKey = (id: string): unknown => ({ id, role: "client" });
    assert.equal((await change("POST", "/admin/keys", aKey("early"))).status, 201);
    const rotated = await change("POST", "/admin/keys/early/rotate", { overlap_s: 0 });
    assert.equal(rotated.status, 200);
    const { key: early } = (await rotated.json()) as { key: string };
    await own.kill();
    for (let round = 0; round < 3; round += 1)
      for (const [method, path, body] of [
        ["POST", "/admin/keys", aKey("late")],
        ["POST", "/admin/keys/early/rotate", {}],
      ] as const) {
        const refused = await change(method, path, body);
        assert.deepEqual([refused.status, errorCodeOf(await refused.text())], [503, "AUDIT_UNAVAILABLE"]);
      }
    assert.equal((await call(one, { body: chatBody() })).status, 200);
    const { keys } = (await (await change("GET", "/admin/keys")).json()) as { keys: { id: string; source: string }[] };
    assert.deepEqual(
      keys.filter(({ source }) => source === "stored").map(({ id }) => id),
      ["early"],
    );
    assert.equal((await call(one, { body: chatBody(), key: early })).status, 200);
    assert.equal((await change("DELETE", "/admin/keys/early")).status, 200);
    assert.equal((await call(one, { body: chatBody(), key: early })).status, 401);
    await own.again();
    await eventually(
      "the record of the revoked key",
      () => one.audit("?limit=1000&key_id=test-admin").catch(() => null),
      (page) => page?.records?.some(({ method }) => method === "DELETE") === true,
    );
    const { records } = await one.audit("?limit=1000&key_id=test-admin");
    const done = records
      .filter(({ outcome }) => outcome === "ok")
      .map(({ method, route, status }) => [method, route, status]);
    // The first refusal may have found out: its record was on its way, and the one behind it says that nothing was done.
    const refusedIds = new Set(
      records.filter(({ outcome }) => outcome === "refused").map(({ requestId }) => requestId),
    );
    assert.ok(refusedIds.size >= 6);
    const kept = records.filter(({ outcome, requestId }) => outcome === "ok" && !refusedIds.has(requestId));
    assert.deepEqual(
      kept.map(({ method, route, status }) => [method, route, status]),
      [
        ["POST", "/admin/keys/early", 201],
        ["POST", "/admin/keys/early/rotate", 200],
        ["DELETE", "/admin/keys/early", 200],
      ],
    );
    assert.ok(done.length - kept.length <= 1);
  } finally {
    await world.close();
  }
});

test("a job of another key that an operator ends is on record under the operator's name [80.G18]", async () => {
  const world = await open();
  try {
    const [one] = gatewaysOf(world);
    world.answer = () => {};
    const { id } = await accepted(one, { body: chatBody() });
    for (const [key, records] of [
      [one.keys.operator, 1],
      [one.keys.client, 1],
    ] as const) {
      assert.equal((await ask(one, `/${id}`, { method: "DELETE", key })).status, 200);
      const page = await one.audit("?limit=100");
      const about = page.records.filter(({ route }) => route === `/v1/jobs/${id}`);
      assert.deepEqual(
        about.map(({ keyId, method }) => [keyId, method]),
        Array.from({ length: records }, () => ["test-operator", "DELETE"]),
      );
    }
  } finally {
    await world.close();
  }
});
