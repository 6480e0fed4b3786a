import assert from "node:assert/strict";
import { copyFile, mkdir, mkdtemp, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { checkWith, sha256 } from "../../src/audit/chain-tables.ts";
import { lazySigner } from "../../src/audit/open-signer.ts";
import type { ChainEntry, ChainPage } from "../../src/contract/audit-chain.ts";
import { API_ROUTES, isBoardHandler, isRelayHandler } from "../../src/control/api/routes.ts";
import type { ActionOutcome, ClusterView } from "../../src/control/view/cluster-view.ts";
import { ChainCheck, type ChainVerdict } from "../../src/decide/audit/chain-lines.ts";
import { aNodeDoc } from "../../src/testing/fleet-docs.ts";
import type { FakeAgent } from "../../src/testing/fake-agent.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { enrolledAgent, leadingControl } from "./support/fake-fleet.ts";
import { startTestControl, type TestControl } from "./support/test-control.ts";

const CATALOG = (...models: readonly string[]): string =>
  JSON.stringify({
    models: models.map((name) => ({ name, replicas: { min: 0 }, profiles: [{ engine: "sim" }] })),
  });

async function chainOf(control: TestControl): Promise<{ entries: ChainEntry[]; verdict: ChainVerdict }> {
  const { body } = await control.ask<ChainPage>("GET", "/v1/audit/chain", { role: "operator" });
  const signer = await lazySigner(control.dataDir, null)();
  const check = new ChainCheck(sha256, checkWith(signer.keysFor("audit chain")));
  for (const line of [...body.lines, body.seal ?? ""]) check.push(line);
  return { entries: body.lines.map((line) => JSON.parse(line) as ChainEntry), verdict: check.end() };
}

/** A view of which each act is done, or comes to what `outcome` says, and is written down in `acts`. */
function aView(acts: string[], outcome: ActionOutcome = { kind: "done" }): (live: ClusterView) => ClusterView {
  const act = (name: string) => () => (acts.push(name), Promise.resolve(outcome));
  return (live) => ({
    snapshot: async () => {
      const seen = await live.snapshot();
      const doc = aNodeDoc("node-1", { name: "rack-1" });
      return { ...seen, nodes: [{ doc, state: "ready", silentMs: 0, report: null }] };
    },
    explain: (model) => live.explain(model),
    gateways: () => live.gateways(),
    weights: () => live.weights(),
    logs: (replica, shard, lines) => live.logs(replica, shard, lines),
    setNode: act("setNode"),
    restart: act("restart"),
    rollout: act("rollout"),
    scale: act("scale"),
    retry: act("retry"),
    removeNode: act("removeNode"),
    confirmRestored: act("confirmRestored"),
    collectWeights: async () => (acts.push("collectWeights"), { kind: "collected", nodes: [] }),
  });
}

const leads = (control: TestControl): Promise<unknown> =>
  eventually(
    "the lead",
    () => control.plane.leading,
    (leading) => leading,
  );

const BODIES: Readonly<Record<string, string>> = {
  scale: '{"replicas":2}',
  tokenNew: '{"node":"rack-2"}',
  gatewayEnrol: '{"name":"gw-1"}',
  catalogApply: CATALOG("one", "two", "three"),
  catalogRollback: '{"revision":1}',
};
const REST: Readonly<Record<string, string>> = {
  cordon: "rack-1",
  uncordon: "rack-1",
  drain: "rack-1",
  nodeRemove: "rack-1",
  restart: "r-1",
  gatewayRevoke: "gw-1",
};
/** They ask, change nothing, or have nothing to change here. */
const NO_ACTS: ReadonlySet<string> = new Set(["catalogDiff", "catalogConfirm"]);
const ACTS = API_ROUTES.filter(
  ({ handler, methods: [method], access }) =>
    method !== "GET" && Array.isArray(access) && !isRelayHandler(handler) && !isBoardHandler(handler),
).filter(({ handler }) => !NO_ACTS.has(handler));

test("each act at a control plane is one entry of a signed chain: who, what, from where, with which end [80.C47 80.I10]", async () => {
  const acts: string[] = [];
  await using control = await startTestControl({ makeView: aView(acts) });
  await leads(control);
  await control.ask("PUT", "/v1/catalog", { body: CATALOG("one", "two") });
  for (const [index, { pattern, methods, handler }] of ACTS.entries()) {
    const path = pattern.replace("*", REST[handler] ?? "one");
    const body = BODIES[handler];
    const { status, headers } = await control.ask(methods[0] ?? "", path, body === undefined ? {} : { body });
    assert.ok(status < 300, `${path}: ${status}`);
    const { entries, verdict } = await chainOf(control);
    assert.deepEqual({ ...verdict, chain: "" }, { kind: "whole", chain: "", first: 1, last: index + 2, signed: true });
    const { who, from, act, outcome, status: told, request } = entries.at(-1) ?? assert.fail(path);
    assert.deepEqual([act, from, outcome, told], [`${methods[0]} ${path}`, "127.0.0.1", "ok", status]);
    assert.equal(who, (await lazySigner(control.dataDir, null)()).pseudonym("key-admin"));
    assert.equal(request, headers.get("x-request-id"));
  }
  assert.deepEqual(acts.length, ACTS.length - 5);
  const { entries } = await chainOf(control);
  assert.match(entries[0]?.detail ?? "", /^revision 1 \(api\): added one, two; sha256:[0-9a-f]{64}$/);
  assert.ok(!(await readFile(join(control.dataDir, "audit-chain.db"), "latin1")).includes("key-admin"));
});

test("an act that comes to nothing, or of which nobody knows, has a second entry that says so [80.I10 80.C47]", async () => {
  const outcomes: readonly [ActionOutcome, string, string][] = [
    [{ kind: "notLeader" }, "refused", "NOT_LEADER"],
    [{ kind: "refused", why: "not now" }, "refused", "ACTION_REFUSED"],
    [{ kind: "storeUnavailable" }, "unknown", "STORE_UNAVAILABLE"],
  ];
  for (const [outcome, told, code] of outcomes) {
    await using control = await startTestControl({ makeView: aView([], outcome) });
    const { headers } = await control.ask("POST", "/v1/nodes/rack-1/drain");
    await control.ask("POST", "/v1/nodes/no-such-node/drain");
    const request = headers.get("x-request-id");
    const { entries } = await eventually(
      "both",
      () => chainOf(control),
      (chain) => chain.entries.length === 2,
    );
    assert.deepEqual(
      entries.map((entry) => [entry.request, entry.outcome, entry.code]),
      [
        [request, "ok", null],
        [request, told, code],
      ],
    );
  }
});

test("while its chain can't be written a control plane does nothing that it is asked for but take a credential away, shows all, leads on, and acts again when it can [80.G18 80.C47 40.L1]", async (t) => {
  const acts: string[] = [];
  const dataDir = await mkdtemp(join(tmpdir(), "yardmaster-control-"));
  t.after(() => rm(dataDir, { recursive: true, force: true }));
  const file = join(dataDir, "audit-chain.db");
  await mkdir(file);
  const catalog = join(dataDir, "catalog.yaml");
  await writeFile(catalog, CATALOG("one"));
  await using blind = await startTestControl({
    makeView: aView(acts),
    dataDir,
    control: { catalog: { file: catalog } },
  });
  await leads(blind);
  for (const { pattern, methods, handler } of ACTS.filter((route) => route.handler !== "catalogRollback")) {
    const path = pattern.replace("*", REST[handler] ?? "rack-1").replace("models/rack-1", "models/one");
    const body = BODIES[handler];
    const { status, body: told } = await blind.ask(methods[0] ?? "", path, body === undefined ? {} : { body });
    if (handler === "gatewayRevoke") {
      assert.deepEqual([status, told.error?.code], [404, "KEY_UNKNOWN"]); // It was looked for.
      continue;
    }
    if (status === 404) continue; // There is no catalog, and so no model.
    assert.deepEqual([status, told.error?.code], [503, "AUDIT_UNAVAILABLE"], path);
  }
  const status = await eventually(
    "the file that waits",
    () => blind.ask<{ catalog: { revision: number; refused: string | null } }>("GET", "/v1/status"),
    ({ body }) => body.catalog.refused?.includes("audit's chain can't take an entry") === true,
  );
  assert.deepEqual([status.body.catalog.revision, acts, blind.plane.leading], [0, [], true]);
  await rmdir(file);
  await eventually(
    "the file's catalog",
    () => blind.ask<{ revision: number }>("GET", "/v1/catalog"),
    ({ body }) => body.revision === 1,
  );
  assert.equal((await blind.ask("POST", "/v1/nodes/rack-1/cordon")).status, 200);
  const { entries, verdict } = await chainOf(blind);
  assert.equal(verdict.kind, "whole");
  const taken = entries.find(({ act, outcome }) => act === "FILE catalog" && outcome === "ok");
  assert.deepEqual([taken?.who, taken?.from, taken?.request], [null, null, "-"]);
  assert.match(taken?.detail ?? "", /^revision 1 \(file\): added one; sha256:/);
  const revoked = entries.filter(({ act }) => act.startsWith("DELETE ") && act.endsWith("/gw-1"));
  assert.deepEqual(
    revoked.map(({ outcome }) => outcome),
    ["ok", "refused"],
  );
});

test("an epoch that is raised above what agents have obeyed, as with a restored database, has its entry [80.P7 80.C47]", async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "yardmaster-control-"));
  t.after(() => rm(dataDir, { recursive: true, force: true }));
  const [store, copy] = [join(dataDir, "control.db"), join(dataDir, "copy.db")];
  let agent: FakeAgent;
  {
    await using first = await leadingControl({ dataDir });
    agent = await enrolledAgent(first, "rack-1");
  }
  await copyFile(store, copy);
  {
    await using second = await leadingControl({ dataDir });
    agent.connect(second.url);
    await agent.until("its epoch", () => agent.highestEpoch?.epoch === 2);
  }
  await copyFile(copy, store);
  await rm(join(dataDir, "control.db.made"));
  await using restored = await leadingControl({ dataDir });
  agent.connect(restored.url);
  const isRaised = ({ act }: ChainEntry): boolean => act === "epochRaised";
  const { entries } = await eventually(
    "the entry",
    () => chainOf(restored),
    (chain) => chain.entries.some(isRaised),
  );
  const { who, outcome, detail } = entries.find(isRaised) ?? assert.fail();
  assert.deepEqual([who, outcome], [null, "ok"]);
  assert.match(detail ?? "", /^agents had obeyed epoch 2,/);
  agent.cut();
});
