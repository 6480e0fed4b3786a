import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { FaultProxy } from "../../src/testing/fault-proxy.ts";
import { anEngine } from "./support/an-engine.ts";
import { onlyUpstream, upstreamHealth } from "./support/health.ts";
import { aTask, call, errorCodeOf, startCall, type CallAnswer, type LiveCall } from "./support/calls.ts";
import { peakOf } from "./support/ledger-check.ts";
import { answerStream, startPagedEngine } from "./support/paged-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";
import { shownEndpoints } from "./support/virtual-world.ts";
import type { ShownEndpoint } from "./support/health.ts";

// Endpoints and upstreams that come, stay and go while work runs on them: by the whole list of one upstream, and by a new
// configuration.

const sim = (seed: number, port?: number): Promise<SimEngine> =>
  anEngine({ models: ["m", "n", "alias"], seed, ...(port === undefined ? {} : { port }) });

const upstream = (urls: readonly string[], more: Record<string, unknown> = {}): Record<string, unknown> => ({
  id: "u",
  models: ["m"],
  engine: "vllm",
  slots: 16,
  endpoints: urls.map((url) => ({ url })),
  ...more,
});

async function withGateway(
  first: readonly Record<string, unknown>[],
  run: (gateway: TestGateway) => Promise<void>,
): Promise<void> {
  const gateway = await startTestGateway({ upstreams: first });
  try {
    await run(gateway);
  } finally {
    await gateway.stop();
  }
}

const change = (gateway: TestGateway, urls: readonly string[], more?: Record<string, unknown>): void =>
  gateway.gateway.applyConfig(gateway.configOf({ upstreams: [upstream(urls, more)] }));

const healthOf = async (gateway: TestGateway) => await onlyUpstream(gateway);
const endpointOf = async (gateway: TestGateway, url: string): Promise<ShownEndpoint | undefined> =>
  (await shownEndpoints(gateway)).find((endpoint) => endpoint.url === url);
const endsWhole = ({ status, whole, text }: CallAnswer): boolean =>
  status === 200 && whole && text.endsWith("data: [DONE]\n\n");

test("an endpoint that stays keeps its running calls, its slots and its open breaker, and one that comes is used [10.R6]", async () => {
  await using stays = await sim(1);
  await using broken = await sim(2);
  await using comes = await sim(3);
  await using proxy = await FaultProxy.start({ clock: systemClock, target: { port: broken.port } });
  const away = `http://127.0.0.1:${proxy.port}`;
  await withGateway([upstream([stays.url, away], { health: "passive", slots: 3 })], async (gateway) => {
    await proxy.down();
    await eventually(
      "the breaker opens",
      async () => {
        assert.equal((await call(gateway, { body: aTask() })).status, 200);
        return (await endpointOf(gateway, away))?.breaker;
      },
      (breaker) => breaker === "open",
    );
    stays.resetLedger();
    const running = [1, 2].map(() => startCall(gateway, { body: aTask({ tokens: 30, delayBetweenMs: 40 }) }));
    for (const one of running) await one.received("data:");
    change(gateway, [away, stays.url, comes.url], { health: "passive", slots: 3 });
    const { in_use } = await healthOf(gateway);
    const facts = Object.fromEntries(
      (await shownEndpoints(gateway)).map((endpoint) => [endpoint.url, [endpoint.in_flight, endpoint.breaker]]),
    );
    assert.deepEqual(facts, { [away]: [0, "open"], [stays.url]: [2, "closed"], [comes.url]: [0, "closed"] });
    assert.equal(in_use.interactive, 2);
    const next = await call(gateway, { body: aTask({}, {}, "next") });
    assert.equal(next.status, 200);
    assert.equal(comes.ledger().finished, 1, "the one with nothing to do took it");
    for (const one of running) assert.ok(endsWhole(await one.answer));
    await eventually(
      "all slots are back",
      () => healthOf(gateway),
      (health) => health.in_use.interactive === 0,
    );
    assert.equal(stays.ledger().concurrentPeak, 2);
  });
});

test("an endpoint that leaves takes no new call, its streams end normally and it is shown as draining until then [10.R6 10.R1]", async () => {
  await using leaves = await sim(1);
  await using stays = await sim(2);
  await withGateway([upstream([leaves.url])], async (gateway) => {
    const running = [1, 2, 3].map(() => startCall(gateway, { body: aTask({ tokens: 20, delayBetweenMs: 40 }) }));
    for (const one of running) await one.received("data:");
    change(gateway, [stays.url]);
    const drains = await endpointOf(gateway, leaves.url);
    assert.deepEqual([drains?.draining, drains?.in_flight], [true, 3]);
    for (let i = 0; i < 5; i += 1) assert.ok(endsWhole(await call(gateway, { body: aTask() })));
    for (const one of running) assert.ok(endsWhole(await one.answer));
    await eventually(
      "it is gone",
      () => endpointOf(gateway, leaves.url),
      (endpoint) => endpoint === undefined,
    );
    assert.deepEqual([leaves.ledger().opened, leaves.ledger().finished, stays.ledger().finished], [3, 3, 5]);
  });
});

test("an endpoint that comes back while its last streams still run is the same one again: its slots count them [10.R6 10.A1]", async () => {
  await using one = await sim(1);
  await using other = await sim(2);
  const both = [
    { url: one.url, slots: 2 },
    { url: other.url, slots: 1 },
  ];
  await withGateway([upstream([], { endpoints: [both[0]] })], async (gateway) => {
    const running = [1, 2].map(() => startCall(gateway, { body: aTask({ tokens: 30, delayBetweenMs: 40 }) }));
    for (const each of running) await each.received("data:");
    const apply = (endpoints: unknown): void =>
      gateway.gateway.applyConfig(gateway.configOf({ upstreams: [upstream([], { endpoints })] }));
    apply([both[1]]);
    apply(both);
    const state = await endpointOf(gateway, one.url);
    assert.deepEqual([state?.draining, state?.in_flight], [false, 2]);
    assert.ok(endsWhole(await call(gateway, { body: aTask() })));
    assert.equal(other.ledger().finished, 1);
    for (const each of running) assert.ok(endsWhole(await each.answer));
    assert.equal(one.ledger().concurrentPeak, 2);
  });
});

test(
  "a rolling restart of three engines under load, each taken out of the list before it is stopped, fails no call [10.R6 80.G2]",
  { timeout: 240_000 },
  async () => {
    const engines = await Promise.all([1, 2, 3].map((seed) => sim(seed)));
    await withGateway(
      [
        upstream(
          engines.map(({ url }) => url),
          { slots: 60 },
        ),
      ],
      async (gateway) => {
        const list = (): void => change(gateway, urls, { slots: 60 });
        let urls = engines.map(({ url }) => url);
        let over = false;
        const answers: CallAnswer[] = [];
        const load = Array.from({ length: 8 }, async () => {
          while (!over) answers.push(await call(gateway, { body: aTask({ tokens: 8, delayBetweenMs: 25 }) }));
        });
        const served = (count: number): Promise<unknown> =>
          eventually(
            "calls go on",
            () => answers.length,
            (length) => length >= count,
            60_000,
          );
        await served(10);
        for (const [index, engine] of engines.entries()) {
          urls = urls.filter((url) => url !== engine.url);
          list();
          await eventually(
            "nothing runs there",
            () => endpointOf(gateway, engine.url),
            (endpoint) => endpoint === undefined,
            30_000,
          );
          const { opened } = engine.ledger();
          assert.equal(engine.ledger().concurrentNow, 0);
          await engine.terminate();
          assert.equal(engine.ledger().opened, opened);
          const fresh = await sim(10 + index, engine.port);
          engines[index] = fresh;
          urls.push(fresh.url);
          list();
          await served(answers.length + 12);
        }
        over = true;
        await Promise.all(load);
        assert.deepEqual(
          answers.filter((answer) => !endsWhole(answer)),
          [],
        );
        assert.ok(
          engines.every((engine) => engine.ledger().finished > 0),
          "the new engines were used",
        );
      },
    );
    await Promise.all(engines.map((engine) => engine.close()));
  },
);

test("slots 4, then 1, then 4 by reload under load: no count is ever negative, one call runs at a time in between, and nothing fails [10.R6 80.I3]", async () => {
  await using engine = await sim(1);
  await withGateway([upstream([engine.url], { slots: 4 })], async (gateway) => {
    const apply = (slots: number): void =>
      gateway.gateway.applyConfig(gateway.configOf({ upstreams: [upstream([engine.url], { slots })] }));
    const calls = Array.from({ length: 24 }, (_, i) =>
      startCall(gateway, { body: aTask({ tokens: 4, delayBetweenMs: 30 }, {}, `call-${i}`) }),
    );
    assert.ok(await engine.waitFor((ledger) => ledger.concurrentNow === 4, 60_000));
    apply(1);
    const shrunkAt = systemClock.mono();
    const seen: number[] = [];
    await eventually(
      "only one runs",
      async () => {
        const { in_use, endpoints } = await healthOf(gateway);
        seen.push(in_use.interactive, endpoints[0]?.in_flight ?? 0);
        return engine.ledger().finished;
      },
      (finished) => finished >= 10,
    );
    assert.ok(
      seen.every((count) => count >= 0 && count <= 4),
      String(seen),
    );
    const later = engine.ledger().entries.filter(({ openedMs }) => openedMs > shrunkAt);
    assert.ok(later.length >= 5);
    assert.equal(peakOf(later), 1);
    apply(4);
    for (const one of calls) assert.ok(endsWhole(await one.answer));
    assert.equal(engine.ledger().concurrentPeak, 4);
    assert.deepEqual(
      (
        await eventually(
          "idle",
          () => healthOf(gateway),
          (health) => health.in_use.interactive === 0,
        )
      ).in_use,
      { interactive: 0, system: 0, batch: 0 },
    );
  });
});

test("an upstream that is removed ends its streams normally, tells those that wait, and is unknown to new calls; put back meanwhile it counts what still runs [10.R6 80.I3]", async () => {
  await using engine = await sim(1);
  await using other = await sim(2);
  const rest = { id: "rest", models: ["n"], engine: "vllm", slots: 4, endpoints: [{ url: other.url }] };
  await withGateway([upstream([engine.url], { slots: 2 }), rest], async (gateway) => {
    const apply = (list: readonly Record<string, unknown>[]): void =>
      gateway.gateway.applyConfig(gateway.configOf({ upstreams: list }));
    const running = [1, 2].map(() => startCall(gateway, { body: aTask({ tokens: 40, delayBetweenMs: 40 }) }));
    for (const one of running) await one.received("data:");
    const waits = startCall(gateway, { body: aTask() });
    await eventually(
      "it waits",
      () => healthOf(gateway),
      (health) => health.queue.waiting.interactive === 1,
    );
    apply([rest]);
    const told = await waits.answer;
    assert.deepEqual([told.status, errorCodeOf(told.text)], [503, "UPSTREAM_UNAVAILABLE"]);
    const unknown = await call(gateway, { body: aTask() });
    assert.deepEqual([unknown.status, errorCodeOf(unknown.text)], [404, "MODEL_UNKNOWN"]);
    apply([upstream([engine.url], { slots: 2 }), rest]);
    const again = [1, 2, 3].map(() => startCall(gateway, { body: aTask() }));
    for (const one of [...running, ...again]) assert.ok(endsWhole(await one.answer));
    assert.equal(engine.ledger().concurrentPeak, 2, "more ran than there are slots");
    assert.equal(engine.ledger().finished, 5);
  });
});

for (const [what, upstreams] of [
  ["an upstream that is renamed", () => [] as const],
  // It waits at the one that gets the endpoint, which stands before the one that has it.
  [
    "an endpoint that moves to another upstream",
    (other: string) => [{ id: "v", models: ["n"], slots: 4, endpoints: [{ url: other, slots: 1 }] }],
  ],
] as const)
  test(`${what} counts there what still runs for the former one, until it ends [10.R6 10.A1 80.I3]`, async () => {
    await using engine = await sim(1);
    await using other = await sim(2);
    const passive = { health: "passive", engine: "generic" };
    const before = [...upstreams(other.url), upstream([engine.url], { slots: 2 })];
    const after = [
      {
        id: "v",
        models: ["m", "n"],
        slots: 4,
        endpoints: [
          { url: other.url, slots: 1 },
          { url: engine.url, slots: 2 },
        ],
      },
    ];
    await withGateway(
      before.map((one) => ({ ...one, ...passive })),
      async (gateway) => {
        const long = (model: string) =>
          startCall(gateway, { body: aTask({ tokens: 40, delayBetweenMs: 40 }, { model }) });
        const running = [long("m"), long("m"), ...upstreams(other.url).map(() => long("n"))];
        for (const one of running) await one.received("data:");
        const waiting =
          before.length > 1 ? [1, 2].map(() => startCall(gateway, { body: aTask({}, { model: "n" }) })) : [];
        await eventually(
          "they wait",
          async () => (waiting.length === 0 ? 0 : (await upstreamHealth(gateway, "v")).queue.waiting.interactive),
          (count) => count === waiting.length,
        );
        gateway.gateway.applyConfig(gateway.configOf({ upstreams: after.map((one) => ({ ...one, ...passive })) }));
        const { endpoints } = await upstreamHealth(gateway, "v");
        assert.deepEqual(
          endpoints.map(({ url, external }) => [url, external]),
          [
            [other.url, 0],
            [engine.url, 2],
          ],
        );
        const next = Array.from({ length: 6 }, () => startCall(gateway, { body: aTask() }));
        for (const one of [...running, ...waiting, ...next]) assert.ok(endsWhole(await one.answer));
        assert.deepEqual([engine.ledger().concurrentPeak, other.ledger().concurrentPeak], [2, 1]);
        const used = await upstreamHealth(gateway, "v");
        assert.deepEqual(
          used.endpoints.map(({ external, in_flight }) => [external, in_flight]),
          [
            [0, 0],
            [0, 0],
          ],
        );
      },
    );
  });

test("calls that wait at an upstream that is removed go on at the one that has its model from then on, in their order, those that were told a place there excepted [10.R6]", async () => {
  await using engine = await sim(1);
  await using other = await sim(2);
  await using outside = await sim(3);
  const passive = { health: "passive", engine: "generic" };
  const one = (
    id: string,
    model: string,
    url: string,
    more: Record<string, unknown> = {},
  ): Record<string, unknown> => ({
    id,
    models: [model],
    slots: 1,
    endpoints: [{ url }],
    ...passive,
    ...more,
  });
  const before = [one("u", "m", engine.url), one("w", "n", outside.url)];
  await withGateway(before, async (gateway) => {
    const running = ["m", "n"].map((model) =>
      startCall(gateway, { body: aTask({ tokens: 20, delayBetweenMs: 40 }, { model }) }),
    );
    for (const each of running) await each.received("data:");
    const waiting: LiveCall[] = [];
    const wait = async (call: LiveCall): Promise<void> => {
      waiting.push(call);
      await eventually(
        "it waits",
        async () => (await upstreamHealth(gateway, "u")).queue.waiting.interactive,
        (count) => count === waiting.length,
      );
    };
    for (const tag of ["first", "second"]) await wait(startCall(gateway, { body: aTask({}, {}, tag) }));
    const told = startCall(gateway, { body: aTask(), headers: { "x-yardmaster-queue-events": "1" } });
    await wait(told);
    await told.received(": queue position=");
    const abroad = startCall(gateway, { body: aTask({}, { model: "n" }) });
    await eventually(
      "the other model's call waits",
      async () => (await upstreamHealth(gateway, "w")).queue.waiting.interactive,
      (count) => count === 1,
    );
    const after = [one("v", "m", other.url), one("x", "n", outside.url, { external: true })];
    gateway.gateway.applyConfig(gateway.configOf({ upstreams: after }));
    const answers = await Promise.all(waiting.slice(0, 2).map(({ answer }) => answer));
    for (const answer of answers) {
      assert.ok(endsWhole(answer));
      assert.equal(answer.headers["x-yardmaster-upstream"], "v");
    }
    assert.deepEqual(
      other.ledger().entries.map(({ tag }) => tag),
      ["first", "second"],
    );
    assert.match((await told.answer).text, /UPSTREAM_UNAVAILABLE/);
    const stays = await abroad.answer;
    assert.deepEqual([stays.status, errorCodeOf(stays.text)], [503, "UPSTREAM_UNAVAILABLE"]);
    for (const each of running) assert.ok(endsWhole(await each.answer));
    assert.equal(engine.ledger().concurrentPeak, 1);
  });
});

test("a waiting call goes to a moved endpoint as soon as the former upstream's call on it has ended [10.R6]", async () => {
  await using engine = await sim(1);
  const passive = { health: "passive", engine: "generic", endpoints: [{ url: engine.url }], slots: 1 };
  await withGateway([{ id: "u", models: ["m"], ...passive }], async (gateway) => {
    const first = startCall(gateway, { body: aTask({ tokens: 20, delayBetweenMs: 40 }) });
    await first.received("data:");
    gateway.gateway.applyConfig(gateway.configOf({ upstreams: [{ id: "v", models: ["m"], ...passive }] }));
    const second = startCall(gateway, { body: aTask() });
    assert.ok(endsWhole(await first.answer));
    const answer = await second.answer;
    assert.ok(endsWhole(answer));
    assert.ok((answer.queueMs ?? 0) > 0, "it waited");
    assert.equal(engine.ledger().concurrentPeak, 1);
  });
});

test("an upstream that had the endpoint all along keeps its slots there when another that had it too is removed [10.R6]", async () => {
  await using engine = await sim(1);
  const passive = { health: "passive", engine: "generic", endpoints: [{ url: engine.url }], slots: 2 };
  const stays = { id: "v", models: ["n"], ...passive };
  await withGateway([{ id: "u", models: ["m"], ...passive }, stays], async (gateway) => {
    const long = [1, 2].map(() => startCall(gateway, { body: aTask({ tokens: 40, delayBetweenMs: 40 }) }));
    for (const one of long) await one.received("data:");
    gateway.gateway.applyConfig(gateway.configOf({ upstreams: [stays] }));
    const answer = await call(gateway, { body: aTask({}, { model: "n" }) });
    assert.ok(endsWhole(answer));
    assert.equal(answer.queueMs, 0);
    for (const one of long) assert.ok(endsWhole(await one.answer));
  });
});

test("a model's name that moves to another upstream takes new calls along, and an alias that goes is unknown at once [10.R6]", async () => {
  await using one = await sim(1);
  await using two = await sim(2);
  const pair = (first: readonly string[], second: readonly string[]): readonly Record<string, unknown>[] => [
    { id: "u", models: first, engine: "generic", slots: 4, endpoints: [{ url: one.url }] },
    { id: "v", models: second, engine: "generic", slots: 4, endpoints: [{ url: two.url }] },
  ];
  await withGateway(pair(["m", "alias"], ["n"]), async (gateway) => {
    const ask = (model: string): Promise<CallAnswer> => call(gateway, { body: aTask({}, { model }) });
    const old = startCall(gateway, { body: aTask({ tokens: 15, delayBetweenMs: 40 }, { model: "alias" }) });
    await old.received("data:");
    gateway.gateway.applyConfig(gateway.configOf({ upstreams: pair(["m"], ["n", "alias"]) }));
    assert.equal((await ask("alias")).headers["x-yardmaster-upstream"], "v");
    gateway.gateway.applyConfig(gateway.configOf({ upstreams: pair(["m"], ["n"]) }));
    assert.equal(errorCodeOf((await ask("alias")).text), "MODEL_UNKNOWN");
    assert.equal((await ask("m")).headers["x-yardmaster-upstream"], "u");
    const ended = await old.answer;
    assert.ok(endsWhole(ended));
    assert.equal(ended.headers["x-yardmaster-upstream"], "u");
  });
});

test("a call whose kept connection breaks while its endpoint leaves goes to one that stays, not once more to the one that stops [10.R6 10.R4]", async () => {
  let broken: (() => void) | undefined;
  await using leaves = await startPagedEngine({
    pages: {},
    onPost: (req, res, body) => {
      if (body.includes("hold")) broken = () => req.socket.destroy();
      else answerStream(res);
    },
  });
  await using stays = await sim(2);
  await withGateway([upstream([leaves.url], { health: "passive", engine: "generic" })], async (gateway) => {
    assert.ok(endsWhole(await call(gateway, { body: aTask() })));
    const held = startCall(gateway, { body: aTask({}, { user: "hold" }) });
    await eventually(
      "it is held",
      () => broken !== undefined,
      (is) => is,
    );
    change(gateway, [stays.url], { health: "passive", engine: "generic" });
    broken?.();
    assert.ok(endsWhole(await held.answer));
    assert.deepEqual([leaves.posts, stays.ledger().finished], [2, 1]);
  });
});
