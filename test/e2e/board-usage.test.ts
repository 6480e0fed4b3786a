import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { usageView, type UsageView } from "../../src/contract/usage-view.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { FakeGateway } from "../../src/testing/fake-gateway.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call } from "./support/calls.ts";
import { aChat } from "./support/jobs.ts";
import { shareFile } from "./support/shared-world.ts";
import { keyOf, startTestControl, type TestControl } from "./support/test-control.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// What the control plane says that keys have used, at all gateways that it knows.

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
after(() => engine.close());

/** One call at the first gateway, two at the second. */
async function withTwo(
  file: Record<string, unknown>,
  run: (control: TestControl, gateways: readonly TestGateway[]) => Promise<void>,
): Promise<void> {
  await using control = await startTestControl();
  const gateways: TestGateway[] = [];
  try {
    for (const name of ["gw-a", "gw-b"])
      gateways.push(
        await startTestGateway({
          env: { YARDMASTER_TOKEN: keyOf("gateway") },
          file: { ...file, gateway: { name, control: [control.url.replace("http", "ws")] } },
          upstreams: [{ id: "u", engine: "vllm", models: ["m"], slots: 4, endpoints: [{ url: engine.url }] }],
        }),
      );
    await known(control, 2);
    for (const gateway of [gateways[0], gateways[1], gateways[1]])
      assert.equal((await call(gateway as TestGateway, { body: aChat() })).status, 200);
    await run(control, gateways);
  } finally {
    for (const gateway of gateways) await gateway.stop();
  }
}

const known = (control: TestControl, wanted: number): Promise<unknown> =>
  eventually(
    `${wanted} gateways`,
    async () => (await control.ask<{ gateways: unknown[] }>("GET", "/v1/gateways")).body.gateways.length,
    (count) => count === wanted,
  );
const usageOf = async (control: TestControl, query = "?group=key"): Promise<UsageView> => {
  const { status, body } = await control.ask("GET", `/v1/usage${query}`, { role: "operator" });
  assert.equal(status, 200, JSON.stringify(body));
  return usageView.parse(body);
};
const csvOf = (control: TestControl): ReturnType<TestControl["ask"]> =>
  control.ask("GET", "/v1/usage?group=key&format=csv", { role: "operator" });

test("gateways that count by themselves are summed, and one that does not answer is named; a file without it is not given [60.K4 60.W1]", async () => {
  await withTwo({}, async (control) => {
    const view = await usageOf(control);
    assert.deepEqual(
      [view.total.requests, view.rows.map(({ key, requests }) => [key, requests]), view.missing],
      [3, [["test-client", 3]], []],
    );
    assert.ok((view.total.prompt_tokens ?? 0) > 0);
    assert.equal((await usageOf(control, "?group=model&limit=1")).rows.length, 1);
    const csv = await csvOf(control);
    assert.match(csv.headers.get("content-type") ?? "", /^text\/csv/);
    assert.match((csv.body as unknown as { text: string }).text, /^test-client,3,/m);
    assert.equal((await control.ask("GET", "/v1/usage?from=never", { role: "operator" })).status, 400);

    await using silent = new FakeGateway(control.url, keyOf("gateway"), { name: "gw-silent", board: true });
    await silent.until("a welcome", () => silent.count("welcome") === 1);
    await known(control, 3);
    const lacking = await usageOf(control);
    assert.deepEqual([lacking.total.requests, lacking.missing], [3, ["gw-silent"]]);
    const refused = await csvOf(control);
    assert.deepEqual([refused.status, refused.body.error?.code], [503, "GATEWAY_SILENT"]);
    assert.match(refused.body.error?.message ?? "", /gw-silent/);
  });
});

test("gateways that share a Redis have one count, which is in the sums once [60.K4]", async () => {
  await using server = await OwnRedis.start();
  await withTwo(shareFile(server.url), async (control, gateways) => {
    const seen = await eventually(
      "all three",
      () => usageOf(control),
      ({ total }) => total.requests >= 3,
    );
    assert.deepEqual([seen.total.requests, seen.missing], [3, undefined]);
    await gateways[0]?.gateway.stop(AbortSignal.abort());
    await known(control, 1);
    assert.equal((await usageOf(control)).total.requests, 3, "what the one that has left counted is in it");
  });
});
