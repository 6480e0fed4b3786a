import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { anEngine } from "./support/an-engine.ts";
import { onlyUpstream } from "./support/health.ts";
import { aTask, call, errorCodeOf } from "./support/calls.ts";
import { startPagedEngine } from "./support/paged-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Names with several addresses, engines that are not there yet, and engines of which nothing but POST works.

const sim = (options: { readonly host?: string; readonly port?: number } = {}): Promise<SimEngine> =>
  anEngine({ slots: 16, ...options });

async function withGateway(
  upstreams: readonly Record<string, unknown>[],
  run: (gateway: TestGateway) => Promise<void>,
): Promise<void> {
  const gateway = await startTestGateway({ upstreams });
  try {
    await run(gateway);
  } finally {
    await gateway.stop();
  }
}

const upstream = (
  id: string,
  models: readonly string[],
  urls: readonly string[],
  more: Record<string, unknown> = {},
): Record<string, unknown> => ({ id, models, slots: 8, endpoints: urls.map((url) => ({ url })), ...more });
const statusOf = (gateway: TestGateway, path: string): Promise<number> =>
  fetch(`${gateway.url}${path}`).then(async (res) => (await res.text(), res.status));

/** A port on which nothing listens, for the moment. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return port;
}

for (const host of ["127.0.0.1", "::1"]) {
  test(`an engine under the name localhost is reached though it listens on ${host} alone [10.R4]`, async () => {
    await using engine = await sim({ host });
    await withGateway(
      [upstream("u", ["m"], [`http://localhost:${engine.port}`], { engine: "vllm" })],
      async (gateway) => {
        for (let i = 0; i < 5; i += 1) assert.equal((await call(gateway, { body: aTask() })).status, 200);
        await eventually(
          "its pages are reached too",
          async () => (await onlyUpstream(gateway)).endpoints[0]?.health,
          (health) => health === "healthy",
        );
        assert.equal(engine.ledger().finished, 5);
      },
    );
  });
}

test("where no address of a name takes a connection the answer names those that were tried, and the name is looked up anew for the next call", async () => {
  const port = await freePort();
  await withGateway([upstream("u", ["m"], [`http://localhost:${port}`], { health: "passive" })], async (gateway) => {
    const refused = await call(gateway, { body: aTask() });
    assert.deepEqual([refused.status, errorCodeOf(refused.text)], [502, "UPSTREAM_ERROR"]);
    const line = await eventually(
      "the log",
      () => gateway.logLines.find((text) => text.includes("request.failed")),
      (found) => found !== undefined,
    );
    assert.match(line ?? "", /tried 127\.0\.0\.1:\d+, \[::1\]:\d+/);
    await using engine = await sim({ port });
    assert.equal((await call(gateway, { body: aTask() })).status, 200);
    assert.equal(engine.ledger().finished, 1);
  });
});

test(
  "a gateway starts while one of three upstreams, then all of them, are away or have names that do not resolve: it says so, serves what is there, and picks the others up when they come [10.R5 80.C12 80.I9]",
  { timeout: 90_000 },
  async () => {
    const port = await freePort();
    await using there = await sim();
    const away = upstream("away", ["a"], [`http://127.0.0.1:${port}`], { engine: "vllm" });
    const unnamed = upstream("unnamed", ["b"], ["http://no-such-host.invalid:8000"], { engine: "vllm" });
    await withGateway([upstream("there", ["m"], [there.url], { engine: "vllm" }), away, unnamed], async (gateway) => {
      assert.equal((await call(gateway, { body: aTask() })).status, 200);
      await eventually(
        "the others are known to be away",
        async () => (await gateway.health()).upstreams.map(({ available }: { available: boolean }) => available),
        (seen) => String(seen) === "true,false,false",
        40_000,
      );
      assert.equal(await statusOf(gateway, "/readyz"), 200);
      for (const model of ["a", "b"]) {
        const codes: string[] = [];
        for (let i = 0; i < 4; i += 1)
          codes.push(errorCodeOf((await call(gateway, { body: aTask({}, { model }) })).text) ?? "");
        assert.ok(
          codes.every((code) => code === "UPSTREAM_ERROR" || code === "UPSTREAM_UNAVAILABLE"),
          String(codes),
        );
        assert.equal(codes.at(-1), "UPSTREAM_UNAVAILABLE", "after three failed connections none is tried");
      }
    });
    await withGateway([away], async (gateway) => {
      await eventually(
        "nothing can be served",
        () => statusOf(gateway, "/readyz"),
        (status) => status === 503,
        20_000,
      );
      assert.equal(await statusOf(gateway, "/healthz"), 200);
      await using engine = await anEngine({ models: ["a"], slots: 4, port });
      await eventually(
        "it is picked up",
        () => statusOf(gateway, "/readyz"),
        (status) => status === 200,
        20_000,
      );
      await eventually(
        "it serves",
        async () => (await call(gateway, { body: aTask({}, { model: "a" }) })).status,
        (status) => status === 200,
        20_000,
      );
      assert.ok(engine.ledger().finished >= 1);
    });
  },
);

for (const status of [401, 404, 405]) {
  test(`an engine that answers every page with ${status} and works for POST is used, costs no generated token to watch, and is never taken for dead [10.R1 10.R5b]`, async () => {
    await using engine = await startPagedEngine({
      pages: { "/health": status, "/v1/models": status, "/metrics": status },
    });
    await withGateway([upstream("u", ["m"], [engine.url])], async (gateway) => {
      await eventually(
        "its pages were asked for",
        () => engine.gets.get("/health") ?? 0,
        (count) => count >= 1,
      );
      for (let i = 0; i < 5; i += 1) assert.equal((await call(gateway, { body: aTask() })).status, 200);
      const [state] = (await onlyUpstream(gateway)).endpoints;
      assert.deepEqual([state?.health, state?.breaker], ["unknown", "closed"]);
      assert.equal(engine.posts, 5);
    });
  });
}

test("an upstream with passive health is asked for no page at all [10.R1]", async () => {
  await using engine = await startPagedEngine({ pages: {} });
  await using watched = await startPagedEngine({ pages: { "/health": "ok" } });
  await withGateway(
    [
      upstream("u", ["m"], [engine.url], { health: "passive", engine: "vllm" }),
      upstream("v", ["n"], [watched.url], { engine: "vllm" }),
    ],
    async (gateway) => {
      assert.equal((await call(gateway, { body: aTask() })).status, 200);
      await eventually(
        "the other is watched",
        () => watched.gets.size,
        (size) => size >= 3,
      );
      assert.deepEqual([...engine.gets], []);
    },
  );
});
