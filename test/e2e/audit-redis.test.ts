import assert from "node:assert/strict";
import { after, test } from "node:test";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call } from "./support/calls.ts";
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
