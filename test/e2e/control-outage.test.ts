import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { FeedMark } from "../../src/contract/feed.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { Secret } from "../../src/kernel/secret.ts";
import { FakeGateway } from "../../src/testing/fake-gateway.ts";
import { FaultProxy } from "../../src/testing/fault-proxy.ts";
import { type PostgresDatabases, startPostgresDatabases } from "../../src/testing/servers/postgres-databases.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { applyCatalog, enrolledAgent, leadingControl } from "./support/fake-fleet.ts";
import { keyOf, startTestControl } from "./support/test-control.ts";

/** Far longer than the test waits for a lead. */
const LONG_LEASE_S = 120;

let databases: PostgresDatabases;
before(async () => {
  databases = await startPostgresDatabases();
});
after(() => databases[Symbol.asyncDispose]());

const model = (replicas: number): Record<string, unknown> => ({
  name: "m",
  replicas: { min: replicas },
  profiles: [{ engine: "sim" }],
});

test("a leader whose store was away for longer than its lease commands and tells under a higher epoch, so that agents and gateways take its words at once [80.P1 80.C1 40.L3]", async () => {
  const url = new URL(await databases.create());
  await using proxy = await FaultProxy.start({ clock: systemClock, target: { port: Number(url.port) } });
  url.hostname = "127.0.0.1";
  url.port = `${proxy.port}`;
  await using control = await leadingControl({
    databaseUrl: new Secret(url.href),
    control: { lease_s: 2, settle_s: 1 },
  });
  const agent = await enrolledAgent(control, "rack-1");
  await using gateway = new FakeGateway(control.url, keyOf("gateway"));
  await applyCatalog(control, [model(3)]);
  await gateway.until("the replicas", () => gateway.endpoints.size === 3);
  const [told, asked] = [gateway.mark, agent.commands.at(-1)];
  assert.ok(told !== null && asked !== undefined && asked.seq >= 3 && told.version >= 2);

  await proxy.down();
  const leads = (wanted: boolean): Promise<boolean> =>
    eventually(
      "the lead",
      () => control.plane.leading,
      (leading) => leading === wanted,
    );
  await leads(false);
  await proxy.up();
  await leads(true);
  await applyCatalog(control, [model(4)]);
  await agent.until("a further start", () => agent.commands.length > 3);
  const next = agent.commands.at(-1) ?? assert.fail();
  assert.deepEqual([next.holder, next.epoch], [asked.holder, asked.epoch + 1]);
  const isNewer = (mark: FeedMark | null): boolean => mark !== null && mark.epoch > told.epoch;
  await gateway.until("a newer word", () => isNewer(gateway.mark) && gateway.endpoints.size === 4);
  agent.cut();
});

test("a control plane whose address is taken keeps no lead: the next one leads at once [40.L5]", async () => {
  const databaseUrl = new Secret(await databases.create());
  const control = { lease_s: LONG_LEASE_S, lease_max_blind_s: LONG_LEASE_S };
  await using other = await startTestControl();
  const { host: listen } = new URL(other.url);
  await assert.rejects(startTestControl({ databaseUrl, control, listen }), { code: "EADDRINUSE" });
  await using next = await leadingControl({ databaseUrl, control });
  assert.ok(next.plane.leading);
});
