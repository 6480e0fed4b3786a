import assert from "node:assert/strict";
import { test } from "node:test";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { onlyUpstream } from "./support/health.ts";
import { aTask, errorCodeOf, startCall } from "./support/calls.ts";
import { answerStream, MUTE, startPagedEngine, type PagedEngine } from "./support/paged-engine.ts";
import { passTime, passTimeUntil } from "./support/virtual-time.ts";
import { upstreamOf, virtualSim, withVirtualWorld } from "./support/virtual-world.ts";

// Which endpoint a call goes to, by what the gateway and the engines know. Times on a virtual clock; sockets are real.

const models = (...ids: string[]): string => JSON.stringify({ object: "list", data: ids.map((id) => ({ id })) });
const gauges = (values: Readonly<Record<string, number>>): string =>
  Object.entries(values)
    .map(([name, value]) => `# TYPE ${name} gauge\n${name}{model_name="m"} ${value}\n`)
    .join("");

const PAGE_VLLM = (running: number, kv = 0.1): string =>
  gauges({ "vllm:num_requests_running": running, "vllm:num_requests_waiting": 0, "vllm:kv_cache_usage_perc": kv });
const PAGE_VLLM_OLD = (running: number): string =>
  gauges({ "vllm:num_requests_running": running, "vllm:num_requests_waiting": 0, "vllm:gpu_cache_usage_perc": 0.1 });
const PAGE_SGLANG = (running: number): string =>
  gauges({ "sglang:num_running_reqs": running, "sglang:num_queue_reqs": 0, "sglang:token_usage": 0.1 });
const PAGE_LLAMA = (running: number): string =>
  gauges({ "llamacpp:requests_processing": running, "llamacpp:requests_deferred": 0 });

const paged = (
  metrics: string | number | (() => string | number),
  names: readonly string[] = ["m"],
): Promise<PagedEngine> =>
  startPagedEngine({ pages: { "/health": "ok", "/v1/models": models(...names), "/metrics": metrics } });

/** Lets a call stay on its engine for a while. */
const held =
  (release: (() => void)[]): ((req: unknown, res: Parameters<typeof answerStream>[0]) => void) =>
  (_req, res) =>
    void release.push(() => answerStream(res));

test("a call goes to the endpoint with the least work by the gateway's count and the engine's report together, and /health shows the parts of each score [10.R2]", async () => {
  const clock = new VirtualClock();
  await using busy = await paged(PAGE_VLLM(6));
  await using idle = await paged(PAGE_VLLM(0));
  await withVirtualWorld(clock, [upstreamOf("vllm", [busy.url, idle.url])], async ({ gateway, answers, endpoint }) => {
    for (let i = 0; i < 6; i += 1) await answers([startCall(gateway, { body: aTask() })]);
    assert.deepEqual([busy.posts, idle.posts], [0, 6]);
    const {
      choice,
    }: { readonly choice: { readonly scores: readonly { readonly id: string; readonly total: number }[] } } =
      await onlyUpstream(gateway);
    const ids = { busy: (await endpoint(busy.url)).id, idle: (await endpoint(idle.url)).id };
    const scores = Object.fromEntries(choice.scores.map(({ id, total }) => [id, total]));
    assert.ok((scores[ids.busy] ?? 0) > (scores[ids.idle] ?? 1), JSON.stringify(scores));
    assert.equal((await endpoint(busy.url)).external, 6);
    assert.equal((await endpoint(busy.url)).reported.running, 6);
  });
});

test("pages of vLLM under old and new names, and pages that name nothing or are not there, side by side: none without a signal is taken for an idle one, and each such is named once [10.R2]", async () => {
  const clock = new VirtualClock();
  const release: (() => void)[] = [];
  const withHold = async (metrics: (running: number) => string | number): Promise<PagedEngine> => {
    const engine: PagedEngine = await startPagedEngine({
      pages: { "/health": "ok", "/v1/models": models("m"), "/metrics": () => metrics(4 + engine.open) },
      onPost: held(release),
    });
    return engine;
  };
  await using fresh = await withHold(PAGE_VLLM);
  await using old = await withHold(PAGE_VLLM_OLD);
  await using foreign = await withHold(PAGE_SGLANG);
  await using missing = await withHold(() => 404);
  const all = [fresh, old, foreign, missing];
  await withVirtualWorld(
    clock,
    [
      upstreamOf(
        "vllm",
        all.map(({ url }) => url),
        { slots: 64 },
      ),
    ],
    async ({ gateway, answers, endpoint }) => {
      const reports = await Promise.all(all.map(async ({ url }) => (await endpoint(url)).reported));
      assert.deepEqual(
        reports.map(({ running }) => running),
        [4, 4, null, null],
      );
      assert.deepEqual(
        reports.map(({ kv_cache_use }) => kv_cache_use),
        [0.1, 0.1, null, null],
      );
      assert.deepEqual(
        reports.map((report) => report.missing === null),
        [true, true, false, false],
      );
      const calls = Array.from({ length: 24 }, () => startCall(gateway, { body: aTask() }));
      await passTimeUntil(clock, "all are there", () => release.length === 24, 5_000);
      const shares = all.map(({ posts }) => posts);
      // All are equally busy: taken for idle, the two that do not tell would get four calls each before the others get one.
      assert.deepEqual(shares, [6, 6, 6, 6]);
      await passTime(clock, 20_000);
      release.splice(0).forEach((end) => end());
      await answers(calls);
      const warned = gateway.logLines.filter((line) => line.includes("engine.no_load_signal"));
      assert.equal(warned.length, 2, warned.join("\n"));
      for (const { port } of [foreign, missing])
        assert.equal(warned.filter((line) => line.includes(`:${port}"`)).length, 1);
    },
  );
});

for (const [engine, page] of [
  ["vllm", PAGE_VLLM],
  ["sglang", PAGE_SGLANG],
  ["llama.cpp", PAGE_LLAMA],
] as const) {
  test(`an upgrade of ${engine} that renames its metrics loses the signal in the open: the report ages away, our own counts go on, and the new page is read when it can be [10.R2]`, async () => {
    const clock = new VirtualClock();
    let page1: string | number = page(5);
    await using one = await paged(() => page1);
    await using two = await paged(page(0));
    await withVirtualWorld(clock, [upstreamOf(engine, [one.url, two.url])], async ({ gateway, answers, endpoint }) => {
      for (let i = 0; i < 4; i += 1) await answers([startCall(gateway, { body: aTask() })]);
      assert.deepEqual([one.posts, two.posts], [0, 4]);
      page1 = gauges({ "engine:requests_now": 5 });
      await passTime(clock, 30_000, 1_000);
      const state = await endpoint(one.url);
      assert.deepEqual([state.reported.running, state.external], [null, 0]);
      assert.match(state.reported.missing ?? "", /names no running/);
      for (let i = 0; i < 8; i += 1) await answers([startCall(gateway, { body: aTask() })]);
      assert.equal(one.posts, 4, "half of them: neither idle nor busy is known of it");
      page1 = page(5);
      await passTime(clock, 8_000, 1_000);
      assert.equal((await endpoint(one.url)).reported.missing, null);
      for (let i = 0; i < 4; i += 1) await answers([startCall(gateway, { body: aTask() })]);
      assert.equal(one.posts, 4);
    });
  });
}

test("an adapter's name goes only to the endpoints that list it, and a name that none lists to any [10.R1]", async () => {
  const clock = new VirtualClock();
  await using plain = await paged(404, ["base"]);
  await using adapted = await paged(404, ["base", "my-lora"]);
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [plain.url, adapted.url], { models: ["base", "my-lora", "alias"] })],
    async ({ gateway, answers }) => {
      const ask = async (model: string, times: number): Promise<void> => {
        for (let i = 0; i < times; i += 1)
          assert.equal((await answers([startCall(gateway, { body: aTask({}, { model }) })]))[0]?.status, 200);
      };
      await ask("my-lora", 6);
      assert.deepEqual([plain.posts, adapted.posts], [0, 6]);
      await ask("base", 4);
      await ask("alias", 4);
      assert.deepEqual([plain.posts, adapted.posts], [4, 10]);
    },
  );
});

const waitingAt = async (gateway: Parameters<typeof onlyUpstream>[0]): Promise<number> =>
  (await onlyUpstream(gateway)).queue.waiting.interactive;

for (const [what, before, after] of [
  ["becomes known", () => 503, models("base")],
  ["loses the adapter's name", () => models("base", "my-lora"), models("base")],
] as const)
  test(`a list of models that ${what} while calls wait holds for them too: each goes to an engine that has its model, and the gateway goes on [10.R1 10.A8]`, async () => {
    const clock = new VirtualClock();
    const releases = { plain: [] as (() => void)[], adapted: [] as (() => void)[] };
    let known = false;
    const engine = (name: "plain" | "adapted", list: () => string | number): Promise<PagedEngine> =>
      startPagedEngine({ pages: { "/health": "ok", "/v1/models": list }, onPost: held(releases[name]) });
    await using plain = await engine("plain", () => (known ? after : before()));
    await using adapted = await engine("adapted", () => (known ? models("base", "my-lora") : before()));
    const upstream = upstreamOf("generic", [plain.url, adapted.url], { slots: 8, models: ["base", "my-lora"] });
    const endpoints = [plain.url, adapted.url].map((url) => ({ url, slots: 1 }));
    const timeouts = { first_byte_s: 600, stall_s: 600 };
    const queue = { timeout_s: { interactive: 600 } };
    await withVirtualWorld(
      clock,
      [{ ...upstream, endpoints, timeouts, queue }],
      async ({ gateway, answers, endpoint }) => {
        const call = (model: string) => startCall(gateway, { body: aTask({}, { model }) });
        const running = [call("base"), call("base")];
        await passTimeUntil(clock, "both engines are full", () => plain.posts + adapted.posts === 2, 5_000);
        const waiting = [call("my-lora"), call("my-lora"), call("base")];
        await passTimeUntil(clock, "three wait", async () => (await waitingAt(gateway)) === 3, 5_000);
        known = true;
        const isKnown = async (): Promise<boolean> => (await endpoint(plain.url)).models?.join() === "base";
        await passTimeUntil(clock, "the list is read", isKnown, 90_000);
        releases.plain.splice(0).forEach((end) => end());
        await passTimeUntil(clock, "the base model's call goes", () => plain.posts === 2, 5_000);
        assert.equal(adapted.posts, 1, "the adapter's calls wait for the engine that has it");
        releases.plain.splice(0).forEach((end) => end());
        for (let posts = 2; posts <= 3; posts += 1) {
          releases.adapted.splice(0).forEach((end) => end());
          await passTimeUntil(clock, "the adapter's call goes", () => adapted.posts === posts, 5_000);
        }
        releases.adapted.splice(0).forEach((end) => end());
        for (const { status } of await answers([...running, ...waiting])) assert.equal(status, 200);
        assert.equal(plain.posts, 2);
      },
    );
  });

test("an endpoint that loads or says that it is unwell is left out with its reason, and used again without anybody's help when it is well [10.R1 10.R5]", async () => {
  const clock = new VirtualClock();
  let page: string | number = 503;
  await using unwell = await startPagedEngine({ pages: { "/health": () => page, "/v1/models": models("m") } });
  await using well = await paged(404);
  await withVirtualWorld(
    clock,
    [upstreamOf("generic", [unwell.url, well.url])],
    async ({ gateway, answers, endpoint }) => {
      const state = await endpoint(unwell.url);
      assert.deepEqual([state.health, state.health_reason], ["unhealthy", "health page says 503"]);
      for (let i = 0; i < 4; i += 1) await answers([startCall(gateway, { body: aTask() })]);
      assert.deepEqual([unwell.posts, well.posts], [0, 4]);
      page = "ok";
      await passTimeUntil(clock, "it is well", async () => (await endpoint(unwell.url)).health === "healthy", 3_000);
      for (let i = 0; i < 4; i += 1) await answers([startCall(gateway, { body: aTask() })]);
      assert.equal(unwell.posts, 2);
    },
  );
});

test("round_robin goes around, whatever the load [10.R2]", async () => {
  const clock = new VirtualClock();
  await using busy = await paged(PAGE_VLLM(3));
  await using idle = await paged(PAGE_VLLM(0));
  await withVirtualWorld(
    clock,
    [upstreamOf("vllm", [busy.url, idle.url], { routing: { policy: "round_robin" } })],
    async ({ gateway, answers }) => {
      for (let i = 0; i < 8; i += 1) await answers([startCall(gateway, { body: aTask() })]);
      assert.deepEqual([busy.posts, idle.posts], [4, 4]);
    },
  );
});

test("an upstream that accepts and never answers holds up no other: its calls end by its own limit, the other's take as long as alone [80.I9 10.R5]", async () => {
  const clock = new VirtualClock();
  await using mute = await startPagedEngine({ pages: { "/health": MUTE }, onPost: () => {} });
  await using well = await virtualSim(clock, 2);
  const upstreams = [
    { ...upstreamOf("generic", [mute.url], { timeouts: { first_byte_s: 10 } }), id: "mute", models: ["a"] },
    { ...upstreamOf("generic", [well.url], { slots: 64 }), id: "well", models: ["m"] },
  ];
  await withVirtualWorld(clock, upstreams, async ({ gateway, answers }) => {
    const stuck = Array.from({ length: 50 }, () => startCall(gateway, { body: aTask({}, { model: "a" }) }));
    await passTimeUntil(clock, "the mute one is full", () => mute.open === 16, 2_000);
    const from = clock.mono();
    const fine = Array.from({ length: 50 }, () => startCall(gateway, { body: aTask({ delayFirstMs: 200 }) }));
    for (const answer of await answers(fine)) {
      assert.equal(answer.status, 200);
      assert.equal(answer.queueMs, 0);
    }
    assert.ok(clock.mono() - from <= 1_500, `${clock.mono() - from} ms`);
    assert.equal(well.ledger().finished, 50);
    const ends = await answers(stuck);
    for (const { status, text } of ends)
      assert.ok(
        [503, 504].includes(status) &&
          ["UPSTREAM_TIMEOUT", "UPSTREAM_UNAVAILABLE", "QUEUE_TIMEOUT"].includes(errorCodeOf(text) ?? ""),
        `${status} ${text}`,
      );
    assert.ok(clock.mono() - from <= 45_000, "every wait ended");
    assert.equal(mute.open, 0);
  });
});
