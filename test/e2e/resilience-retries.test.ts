import assert from "node:assert/strict";
import { test } from "node:test";
import type { SimAction } from "../../src/sim-engine/script.ts";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { aTask, errorCodeOf, startCall } from "./support/calls.ts";
import { startPagedEngine } from "./support/paged-engine.ts";
import { passTime } from "./support/virtual-time.ts";
import { upstreamOf, virtualSim, withVirtualWorld } from "./support/virtual-world.ts";

// Which failures send a call elsewhere, which do not, and what all of it may cost. Times on a virtual clock; sockets are real.

const error = (
  code: number,
  message: string,
  type = "BadRequestError",
): { error: Record<string, string | number | null> } => ({ error: { message, type, param: null, code } });
const ENGINE_DEAD = error(
  500,
  "EngineCore encountered an issue. See stack trace (above) for the root cause.",
  "InternalServerError",
);

interface Row {
  readonly name: string;
  readonly sim: SimAction;
  readonly stream?: boolean;
}

const ELSEWHERE: readonly Row[] = [
  { name: "ends before the head", sim: { cutBeforeHead: true } },
  { name: "is reset before the head", sim: { cutBeforeHead: true, cut: "rst" } },
  { name: "breaks off behind the head, before the first event", sim: { cutAfterBytes: 0 } },
  { name: "breaks off inside the first event", sim: { cutAfterBytes: 40, cut: "rst" } },
  { name: "sends an error as the first event of a 200", sim: { errorEventFirst: true, thenDone: true } },
  { name: "sends a 200 stream without a byte", sim: { emptyStream: true } },
  { name: "says with a 500 that it is dead", sim: { status: 500, body: ENGINE_DEAD } },
  {
    name: "says with a 500 that it shuts down",
    sim: { status: 500, body: error(500, "cannot schedule new futures after shutdown", "InternalServerError") },
  },
  { name: "answers 502", sim: { status: 502, body: "bad gateway" } },
  { name: "answers 503", sim: { status: 503, body: error(503, "overloaded") } },
  { name: "answers 504", sim: { status: 504, body: "late" } },
  { name: "breaks off in a whole answer", sim: { cutAfterBytes: 60 }, stream: false },
  { name: "is dead, for a whole answer", sim: { status: 500, body: ENGINE_DEAD }, stream: false },
];

for (const { name, sim, stream = true } of ELSEWHERE) {
  test(`an engine that ${name}: the call is answered by the other one, once, and the answer says by which [10.R4 10.R4b]`, async () => {
    const clock = new VirtualClock();
    await using bad = await virtualSim(clock, 1);
    await using good = await virtualSim(clock, 2);
    bad.script({ do: sim });
    await withVirtualWorld(
      clock,
      [upstreamOf("vllm", [bad.url, good.url], { health: "passive" })],
      async ({ gateway, endpoint, answers }) => {
        const goodId = (await endpoint(good.url)).public_id;
        for (let i = 0; i < 2; i += 1) {
          const [answer] = await answers([startCall(gateway, { body: aTask({ tokens: 3 }, { stream }) })]);
          assert.deepEqual([answer?.status, answer?.whole], [200, true], answer?.text);
          assert.equal(answer?.headers["x-yardmaster-endpoint"], goodId);
          if (stream) assert.equal(answer?.text.match(/\[DONE\]/g)?.length, 1);
          assert.equal(errorCodeOf(answer?.text ?? ""), undefined);
        }
        assert.equal(good.ledger().finished, 2);
        const { records } = await gateway.audit();
        assert.deepEqual(
          records.map(({ outcome }) => outcome),
          ["ok", "ok"],
        );
        assert.ok(records.every(({ attempts }) => attempts <= 2));
        assert.ok(bad.ledger().opened >= 1);
        assert.equal(
          bad.ledger().opened,
          records.filter(({ attempts }) => attempts === 2).length,
          "each call met it at most once",
        );
      },
    );
  });
}

test("a 429 of an engine is tried elsewhere, and where nobody can take it the client gets it as it is, with its Retry-After [10.R4]", async () => {
  const clock = new VirtualClock();
  await using one = await virtualSim(clock, 1);
  await using two = await virtualSim(clock, 2);
  const full: SimAction = { status: 429, body: error(429, "too many"), headers: { "retry-after": "7" } };
  one.script({ do: full });
  await withVirtualWorld(clock, [upstreamOf("generic", [one.url, two.url])], async ({ gateway, answers }) => {
    for (let i = 0; i < 2; i += 1)
      assert.equal((await answers([startCall(gateway, { body: aTask() })]))[0]?.status, 200);
    two.script({ do: full });
    const [refused] = await answers([startCall(gateway, { body: aTask() })]);
    assert.deepEqual([refused?.status, refused?.headers["retry-after"]], [429, "7"]);
    assert.match(refused?.text ?? "", /too many/);
  });
});

const ONCE: readonly Row[] = [
  {
    name: "400 context length",
    sim: { status: 400, body: error(400, "This model's maximum context length is 10 tokens.") },
  },
  {
    name: "400 content policy",
    sim: {
      status: 400,
      body: { error: { message: "policy", type: "invalid_request_error", code: "content_policy_violation" } },
    },
  },
  { name: "401", sim: { status: 401, body: error(401, "no") } },
  { name: "403", sim: { status: 403, body: error(403, "no") } },
  {
    name: "404 unknown adapter",
    sim: { status: 404, body: error(404, "The model `x` does not exist.", "NotFoundError") },
  },
  { name: "413", sim: { status: 413, body: error(413, "large") } },
  { name: "422", sim: { status: 422, body: error(422, "no") } },
  { name: "500 without a known cause", sim: { status: 500, body: error(500, "boom", "InternalServerError") } },
];

for (const { name, sim } of ONCE) {
  test(`an engine's ${name} is the answer: it reaches the client as it is, and no engine a second time [10.R4]`, async () => {
    const clock = new VirtualClock();
    await using one = await virtualSim(clock, 1);
    await using two = await virtualSim(clock, 2);
    for (const engine of [one, two]) engine.script({ do: sim });
    await withVirtualWorld(clock, [upstreamOf("vllm", [one.url, two.url])], async ({ gateway, answers }) => {
      const [answer] = await answers([startCall(gateway, { body: aTask() })]);
      assert.equal(answer?.status, sim.status);
      assert.equal(one.ledger().opened + two.ledger().opened, 1);
      const [record] = (await gateway.audit()).records;
      assert.deepEqual([record?.attempts, record?.outcome, record?.status], [1, "engine_error", sim.status]);
    });
  });
}

test("after the first byte there is no second try: a stream that breaks then ends with an error event, and one engine saw the call [10.R4]", async () => {
  const clock = new VirtualClock();
  await using one = await virtualSim(clock, 1);
  await using two = await virtualSim(clock, 2);
  for (const engine of [one, two]) engine.script({ do: { cutAfterEvents: 2, cut: "rst" } });
  await withVirtualWorld(clock, [upstreamOf("vllm", [one.url, two.url])], async ({ gateway, answers }) => {
    const [answer] = await answers([startCall(gateway, { body: aTask({ tokens: 9 }) })]);
    assert.deepEqual([answer?.status, answer?.whole], [200, false]);
    assert.match(answer?.text ?? "", /UPSTREAM_ERROR/);
    assert.doesNotMatch(answer?.text ?? "", /\[DONE\]/);
    assert.equal(one.ledger().opened + two.ledger().opened, 1);
  });
});

test("engines that answer everything with 503 see at most a fifth more calls than came, and three, and the clients get that 503 [80.G9 80.C20 10.R4]", async () => {
  const clock = new VirtualClock();
  const engines = await Promise.all([1, 2, 3].map((seed) => virtualSim(clock, seed)));
  await using stack = new AsyncDisposableStack();
  for (const engine of engines) {
    stack.use(engine);
    engine.script({ do: { status: 503, body: error(503, "down") } });
  }
  await withVirtualWorld(
    clock,
    [
      upstreamOf(
        "vllm",
        engines.map(({ url }) => url),
        { retry: { attempts: 2 } },
      ),
    ],
    async ({ gateway, answers, clock: time }) => {
      let sent = 0;
      for (let round = 0; round < 20; round += 1) {
        const calls = Array.from({ length: 10 }, () => startCall(gateway, { body: aTask() }));
        sent += calls.length;
        for (const { status } of await answers(calls)) assert.equal(status, 503);
        const seen = engines.reduce((sum, engine) => sum + engine.ledger().opened, 0);
        assert.ok(seen <= 1.2 * sent + 3, `${seen} tries for ${sent} calls`);
        await passTime(time, 500);
      }
      assert.ok(engines.reduce((sum, engine) => sum + engine.ledger().opened, 0) > sent, "some were tried again");
    },
  );
});

test("an engine that is mute costs one limit of time, whatever the number of tries, and a call's own deadline bounds all of them together [10.R4 80.C20 80.I9]", async () => {
  const clock = new VirtualClock();
  const engines = await Promise.all([1, 2, 3].map((seed) => virtualSim(clock, seed)));
  await using stack = new AsyncDisposableStack();
  for (const engine of engines) {
    stack.use(engine);
    engine.script({ do: { hangNoHead: true } });
  }
  await withVirtualWorld(
    clock,
    [
      upstreamOf(
        "vllm",
        engines.map(({ url }) => url),
        { timeouts: { first_byte_s: 20 } },
      ),
    ],
    async ({ gateway, answers, clock: time }) => {
      let from = time.mono();
      const [late] = await answers([startCall(gateway, { body: aTask() })]);
      assert.deepEqual([late?.status, errorCodeOf(late?.text ?? "")], [504, "UPSTREAM_TIMEOUT"]);
      assert.ok(time.mono() - from <= 22_000, `${time.mono() - from} ms`);
      for (const engine of engines) {
        engine.clearScript();
        engine.script({ do: { delayHeadMs: 3_000, status: 503, body: error(503, "down") } });
      }
      from = time.mono();
      const [own] = await answers([startCall(gateway, { body: aTask(), headers: { "x-request-timeout-ms": "5000" } })]);
      assert.deepEqual([own?.status, errorCodeOf(own?.text ?? "")], [504, "UPSTREAM_TIMEOUT"]);
      assert.ok(time.mono() - from <= 6_500, `${time.mono() - from} ms`);
      assert.equal((await gateway.audit()).records.at(-1)?.attempts, 2);
    },
  );
});

test("a call to an upstream of kind http that may have had an effect is never sent twice; one that never went out is sent elsewhere [10.R4]", async () => {
  const clock = new VirtualClock();
  await using breaks = await startPagedEngine({
    pages: { "/v1/x": "page" },
    onPost: (req) => void req.socket.destroy(),
  });
  await using works = await startPagedEngine({
    pages: { "/v1/x": "page" },
    onPost: (_req, res) => void res.end("done"),
  });
  const upstream = (urls: readonly string[]): Record<string, unknown> => ({
    id: "h",
    kind: "http",
    slots: 8,
    health: "passive",
    routing: { policy: "round_robin" },
    endpoints: urls.map((url) => ({ url })),
  });
  await withVirtualWorld(clock, [upstream([breaks.url, works.url])], async ({ gateway, answers }) => {
    const seen: number[] = [];
    for (let i = 0; i < 2; i += 1)
      seen.push(
        (await answers([startCall(gateway, { path: "/upstreams/h/v1/x", body: Buffer.from("pay") })]))[0]?.status ?? 0,
      );
    assert.deepEqual(seen.toSorted(), [200, 502]);
    assert.deepEqual([breaks.posts, works.posts], [1, 1]);
    const { port } = works;
    await breaks.close();
    for (let i = 0; i < 4; i += 1)
      assert.equal(
        (await answers([startCall(gateway, { path: "/upstreams/h/v1/x", body: Buffer.from("pay") })]))[0]?.status,
        200,
      );
    assert.deepEqual([works.posts, works.port], [5, port]);
  });
});
