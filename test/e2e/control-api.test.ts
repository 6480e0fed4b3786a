import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  appliedView,
  catalogView,
  eventView,
  leaderView,
  modelView,
  nodeView,
  placementView,
  replicaView,
  statusView,
  tokenView,
} from "../../src/contract/control-api.ts";
import { ROLES, type Role } from "../../src/contract/roles.ts";
import { API_ROUTES, type ApiRoute } from "../../src/control/api/routes.ts";
import type { ClusterView } from "../../src/control/view/cluster-view.ts";
import { aNodeDoc, aReplicaDoc } from "../../src/testing/fleet-docs.ts";
import { eventually, within } from "../../src/testing/wait-for.ts";
import { keyOf, startTestControl, type TestControl } from "./support/test-control.ts";

const catalog = (...models: readonly string[]): string =>
  `models: [${models.map((name) => `{name: ${name}, profiles: [{engine: sim}]}`).join(", ")}]\n`;

let control: TestControl;
before(async () => {
  control = await startTestControl({
    makeView: (live) => ({ ...bind(live), snapshot: () => withFleet(live) }),
  });
  await eventually(
    "the lead",
    () => control.plane.leading,
    (leading) => leading,
  );
});
after(() => control[Symbol.asyncDispose]());

const bind = (inner: ClusterView): ClusterView => ({
  snapshot: () => inner.snapshot(),
  explain: (model) => inner.explain(model),
  setNode: (...args) => inner.setNode(...args),
  restart: (...args) => inner.restart(...args),
  rollout: (...args) => inner.rollout(...args),
  scale: (...args) => inner.scale(...args),
  retry: (...args) => inner.retry(...args),
  removeNode: (...args) => inner.removeNode(...args),
  confirmRestored: (by) => inner.confirmRestored(by),
  logs: (...args) => inner.logs(...args),
  gateways: () => inner.gateways(),
  weights: () => inner.weights(),
  collectWeights: (damaged, by) => inner.collectWeights(damaged, by),
});

/** One node and one replica beside what the store has. */
async function withFleet(inner: ClusterView): ReturnType<ClusterView["snapshot"]> {
  const snapshot = await inner.snapshot();
  return {
    ...snapshot,
    nodes: [
      ...snapshot.nodes,
      { doc: aNodeDoc("node-1", { name: "rack-1" }), state: "never_seen", silentMs: null, report: null },
    ],
    replicas: [
      aReplicaDoc("r1", {
        model: "gone",
        shards: [{ nodeId: "node-1", gpuUuids: [], memoryMib: 0, rendezvousPort: null }],
      }),
    ],
  };
}

test("every route admits exactly the roles of its row, and no other method has an effect [80.C37]", async () => {
  for (const route of API_ROUTES) {
    const path = route.pattern.replace("*", "no-such");
    const [method = ""] = route.methods === "any" ? ["GET"] : route.methods;
    for (const role of [...ROLES, null] as const) {
      const status = await statusOf(route, method, path, role);
      // On loopback the metrics need no key.
      const open = ["open", "scrape", "page"].some((access) => access === route.access);
      const admitted = open || (role !== null && (route.access as readonly string[]).includes(role));
      if (admitted) assert.ok(status !== 401 && status !== 403, `${method} ${path} as ${role}: ${status}`);
      else assert.equal(status, role === null ? 401 : 403, `${method} ${path} as ${role}`);
    }
    for (const other of ["PATCH", "OPTIONS", "FOO"].filter((name) => name !== method)) {
      const { status } = await control.ask(other, path).catch(() => ({ status: 400 }));
      assert.ok([400, 404, 405].includes(status), `${other} ${path}: ${status}`);
    }
  }
});

/** A stream has no end, and who nobody is signed in as is no refusal of a role. */
async function statusOf({ handler }: ApiRoute, method: string, path: string, role: Role | null): Promise<number> {
  if (handler === "boardWho") return 200;
  if (handler !== "boardStream")
    return (await control.ask(method, path, { role, ...(method === "GET" ? {} : { body: "" }) })).status;
  const off = new AbortController();
  const headers: Record<string, string> = role === null ? {} : { authorization: `Bearer ${keyOf(role)}` };
  const { status } = await fetch(control.url + path, { headers, signal: off.signal });
  off.abort();
  return status;
}

test("a key that is wrong, in the query, or sent twice opens nothing [80.C38]", async () => {
  const wrong = await fetch(`${control.url}/v1/status`, { headers: { authorization: "Bearer wrong" } });
  assert.equal(wrong.status, 401);
  const query = await fetch(`${control.url}/v1/status?key=${keyOf("admin")}`);
  assert.equal(query.status, 400);
  const raw = await rawAnswer(
    `GET /v1/status HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer ${keyOf("admin")}\r\nAuthorization: Bearer x\r\n\r\n`,
  );
  assert.match(raw, /^HTTP\/1.1 400/);
  assert.ok(!control.logLines.join("\n").includes("CANARY"));
});

/** What one connection is answered to these bytes. */
async function rawAnswer(bytes: string): Promise<string> {
  const { hostname, port } = new URL(control.url);
  const socket = connect(Number(port), hostname);
  let text = "";
  socket.setEncoding("utf8").on("data", (part: string) => (text += part));
  socket.on("error", () => {});
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.write(bytes);
  await within("the end of the connection", closed);
  return text;
}

test("paths and framing that readers could see differently are refused", async () => {
  for (const path of ["//v1/status", "/v1/../v1/status", "/v1/%2e%2e/status", "/v1\\status", "/v1/status;x", "/%00"]) {
    const text = await rawAnswer(
      `GET ${path} HTTP/1.1\r\nHost: c\r\nConnection: close\r\nAuthorization: Bearer ${keyOf("admin")}\r\n\r\n`,
    );
    assert.match(text, /^HTTP\/1.1 (400|404)/, path);
  }
  const both = await rawAnswer(
    "POST /v1/catalog/diff HTTP/1.1\r\nHost: c\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  );
  assert.match(both, /^HTTP\/1.1 400/);
});

test("a catalog is applied with its ETag, and an edit of an older one is told 412 [80.P10]", async () => {
  const first = await control.ask("PUT", "/v1/catalog", { body: catalog("a", "b") });
  assert.equal(first.status, 200);
  const { revision } = appliedView.parse(first.body);
  assert.equal(first.headers.get("etag"), `"${revision}"`);
  const shown = await control.ask("GET", "/v1/catalog", { role: "operator" });
  assert.equal(catalogView.parse(shown.body).text, catalog("a", "b"));
  const etag = shown.headers.get("etag") ?? "";
  const next = await control.ask("PUT", "/v1/catalog", { body: catalog("a", "b", "c"), headers: { "if-match": etag } });
  assert.equal(next.status, 200);
  const late = await control.ask("PUT", "/v1/catalog", { body: catalog("a", "b", "d"), headers: { "if-match": etag } });
  assert.equal(late.status, 412);
  assert.equal(late.body.error?.code, "CATALOG_CHANGED");
  assert.equal(late.body.details?.revision, revision + 1);
  assert.equal(
    (await control.ask("PUT", "/v1/catalog", { body: catalog("x"), headers: { "if-match": "12" } })).status,
    400,
  );
  const again = await control.ask("PUT", "/v1/catalog", { body: catalog("a", "b", "c") });
  assert.deepEqual(appliedView.parse(again.body), { revision: revision + 1, changed: false, diff: null });
});

test("a catalog with mistakes is told 422 with the path of each, and the last good one stays [80.P10]", async () => {
  const before = await control.ask("GET", "/v1/catalog");
  const refused = await control.ask("PUT", "/v1/catalog", {
    body: "models: [{name: a, profiles: [{engine: vllm}]}, {nam: b}]",
  });
  assert.equal(refused.status, 422);
  assert.equal(refused.body.error?.code, "CATALOG_INVALID");
  assert.deepEqual(
    refused.body.details?.problems?.map(({ path }) => path),
    [
      "models[0].profiles[0].gpu",
      "models[0].profiles[0].source",
      "models[1].name",
      "models[1].profiles",
      "models[1].nam",
    ],
  );
  for (const body of ["", "models: [", "\u0000", "[]", "models: {}", `a: &a [*a]`]) {
    const { status } = await control.ask("PUT", "/v1/catalog", { body });
    assert.equal(status, 422, JSON.stringify(body));
  }
  assert.deepEqual((await control.ask("GET", "/v1/catalog")).body, before.body);
});

test("a change that takes much away is told 409 with its token, and done with it [80.P10]", async () => {
  await control.ask("PUT", "/v1/catalog", { body: catalog("a", "b", "c") });
  const held = await control.ask("PUT", "/v1/catalog", { body: catalog("a") });
  assert.equal(held.status, 409);
  const { diff } = held.body.details ?? {};
  assert.deepEqual([diff?.lost, diff?.replicas, diff?.emptied], [2, 3, ["b", "c"]]);
  const judged = await control.ask<{ token: string }>("POST", "/v1/catalog/diff", {
    body: catalog("a"),
    role: "operator",
  });
  assert.equal(judged.body.token, diff?.token);
  assert.equal((await control.ask("PUT", `/v1/catalog?confirm=${diff?.token}`, { body: catalog("b") })).status, 409);
  assert.equal((await control.ask("PUT", `/v1/catalog?confirm=${diff?.token}`, { body: catalog("a") })).status, 200);
});

test("history, an earlier revision, and going back to it [40.C1]", async () => {
  await control.ask("PUT", "/v1/catalog", { body: catalog("a", "old") });
  const { body: now } = await control.ask("GET", "/v1/catalog");
  const { revision } = catalogView.parse(now);
  await control.ask("PUT", "/v1/catalog", { body: catalog("a", "old", "new") });
  const earlier = await control.ask("GET", `/v1/catalog/revisions/${revision}`);
  assert.equal(catalogView.parse(earlier.body).text, catalog("a", "old"));
  const body = JSON.stringify({ revision });
  const held = await control.ask("POST", "/v1/catalog/rollback", { body });
  assert.equal(held.status, 409, "it takes a model away");
  const confirm = held.body.details?.diff?.token ?? "";
  const back = await control.ask("POST", "/v1/catalog/rollback", { body: JSON.stringify({ revision, confirm }) });
  assert.equal(appliedView.parse(back.body).revision, revision + 2);
  const history = await control.ask<{ revisions: { author: string; origin: string }[] }>(
    "GET",
    "/v1/catalog/history?limit=2",
  );
  assert.deepEqual(
    history.body.revisions.map(({ author, origin }) => [author, origin]),
    [
      ["key-admin", `rollback to ${revision}`],
      ["key-admin", "api"],
    ],
  );
  for (const path of ["/v1/catalog/revisions/999", "/v1/catalog/revisions/0", "/v1/catalog/revisions/1e3"])
    assert.equal((await control.ask("GET", path)).status, 404, path);
  assert.equal(
    (await control.ask("POST", "/v1/catalog/rollback", { body: '{"revision":1,"__proto__":{}}' })).status,
    400,
  );
  assert.equal((await control.ask("GET", "/v1/catalog/history?limit=0")).status, 400);
});

test("status, leader and lists have the form that is documented, and unknown is null", async () => {
  await control.ask("PUT", "/v1/catalog", { body: catalog("a", "old", "org/model") });
  const status = statusView.parse((await control.ask("GET", "/v1/status")).body);
  assert.equal(status.leader.role, "leading");
  assert.deepEqual([status.nodes, status.replicas], [{ never_seen: 1 }, { placing: 1 }]);
  assert.equal(leaderView.parse((await control.ask("GET", "/v1/leader")).body).epoch, 1);
  const { body: nodes } = await control.ask<{ nodes: unknown[] }>("GET", "/v1/nodes");
  const [node] = nodes.nodes.map((entry) => nodeView.parse(entry));
  assert.deepEqual(
    [node?.name, node?.state, node?.silent_s, node?.gpus, node?.cores, node?.replicas],
    ["rack-1", "never_seen", null, null, null, 1],
  );
  assert.deepEqual((await control.ask("GET", "/v1/gpus")).body, { gpus: [] });
  const states = async (): Promise<readonly string[]> => {
    const { body } = await control.ask<{ models: unknown[] }>("GET", "/v1/models");
    return body.models.map((entry) => modelView.parse(entry)).map(({ name, state }) => `${name} ${state}`);
  };
  const expected = ["a waiting", "old waiting", "org/model waiting", "gone removed"].join();
  await eventually("what a pass found", states, (seen) => seen.join() === expected);
  const replicas = await control.ask<{ replicas: unknown[] }>("GET", "/v1/replicas");
  assert.deepEqual(
    replicas.body.replicas.map((entry) => replicaView.parse(entry).outdated),
    [true],
  );
  assert.ok(!JSON.stringify(replicas.body).includes("CANARY"), "an engine's key is in no answer");
  for (const name of ["a", "org/model", "org%2Fmodel"]) {
    const placement = await control.ask("GET", `/v1/models/${name}/placement`);
    assert.equal(placementView.parse(placement.body).fits, false, name);
  }
  assert.equal((await control.ask("GET", "/v1/models/none/placement")).body.error?.code, "MODEL_UNKNOWN");
});

test("what is done by request stands in the events with who did it", async () => {
  const issued = await control.ask("POST", "/v1/enrolment-tokens", { body: JSON.stringify({ node: "node-x" }) });
  assert.equal(issued.status, 201);
  const { token } = tokenView.parse(issued.body);
  assert.equal((await control.ask("POST", "/v1/models/a/retry", { role: "operator" })).status, 200);
  const events = await control.ask<{ events: unknown[] }>("GET", "/v1/events?limit=1000");
  const read = events.body.events.map((entry) => eventView.parse(entry));
  assert.ok(read.some(({ kind, by }) => kind === "tokenIssued" && by === "key-admin"));
  assert.ok(read.some(({ kind, by, model }) => kind === "modelRetried" && by === "key-operator" && model === "a"));
  assert.deepEqual(
    read.map(({ seq }) => seq),
    read.map((_, index) => (read[0]?.seq ?? 0) + index),
  );
  assert.ok(!JSON.stringify(read).includes(token));
  const newest = await control.ask<{ events: unknown[] }>("GET", `/v1/events?after_seq=${read.at(-1)?.seq ?? 0}`);
  assert.deepEqual(newest.body.events, []);
  for (const query of ["limit=0", "limit=x", "after_seq=-1", "since=1"])
    assert.equal((await control.ask("GET", `/v1/events?${query}`)).status, 400, query);
});

test("a node that is not there, a name that is none, and bodies that are no request are told so", async () => {
  assert.equal((await control.ask("POST", "/v1/nodes/none/cordon")).body.error?.code, "NODE_UNKNOWN");
  assert.equal((await control.ask("POST", "/v1/models/none/retry")).body.error?.code, "MODEL_UNKNOWN");
  assert.equal((await control.ask("DELETE", "/v1/nodes/none")).status, 404);
  for (const body of [
    "{",
    "[]",
    "{}",
    '{"node":"a b"}',
    '{"node":"x","role":"admin"}',
    `{"node":"${"x".repeat(70_000)}"}`,
  ]) {
    const { status } = await control.ask("POST", "/v1/enrolment-tokens", { body });
    assert.ok([400, 413].includes(status), `${body.slice(0, 30)}: ${status}`);
  }
  assert.equal((await control.ask("GET", "/nothing")).body.error?.code, "ROUTE_UNKNOWN");
});

test("a cordon is written under the leader's term and shown", async () => {
  await using own = await startTestControl();
  await eventually(
    "the lead",
    () => own.plane.leading,
    (leading) => leading,
  );
  assert.equal((await own.ask("POST", "/v1/nodes/rack-1/cordon")).status, 404);
  await own.plane.commit([{ kind: "node", id: "node-1", doc: aNodeDoc("node-1", { name: "rack-1" }) }], []);
  const cordoned = async (): Promise<boolean | undefined> => {
    const { body } = await own.ask<{ nodes: { cordoned: boolean }[] }>("GET", "/v1/nodes");
    return body.nodes[0]?.cordoned;
  };
  for (const [action, expected] of [
    ["cordon", true],
    ["uncordon", false],
  ] as const) {
    assert.equal((await own.ask("POST", `/v1/nodes/rack-1/${action}`, { role: "operator" })).status, 200);
    assert.equal(await cordoned(), expected);
  }
  assert.equal((await own.ask("DELETE", "/v1/nodes/rack-1")).status, 200);
  assert.equal(await cordoned(), undefined);
});

test("a standby shows what the store has, takes a catalog, and names the leader for what only that one may do", async () => {
  await using leader = await startTestControl();
  await eventually(
    "the lead",
    () => leader.plane.leading,
    (leading) => leading,
  );
  await leader.plane.commit([{ kind: "node", id: "node-1", doc: aNodeDoc("node-1", { name: "rack-1" }) }], []);
  await using standby = await startTestControl({ dataDir: leader.dataDir });
  assert.equal((await standby.ask("PUT", "/v1/catalog", { body: catalog("a") })).status, 200);
  const seen = await eventually(
    "the catalog on the leader",
    async () => (await leader.ask<{ revision?: number }>("GET", "/v1/catalog")).body.revision,
    (revision) => revision !== undefined,
  );
  assert.equal(seen, 1);
  assert.equal((await standby.ask("GET", "/v1/replicas/r1/logs")).body.error?.code, "NOT_LEADER");
  const refused = await standby.ask("POST", "/v1/nodes/rack-1/cordon");
  assert.equal(refused.status, 503);
  assert.equal(refused.body.error?.code, "NOT_LEADER");
  assert.ok(Number(refused.headers.get("retry-after")) >= 1);
  const self = leaderView.parse((await leader.ask("GET", "/v1/leader")).body).self;
  assert.ok(refused.body.error?.message.includes(self));
});

test("the watched file of a leader that would take much away is confirmed over the API [80.P10]", async () => {
  await using fresh = await startTestControl();
  const path = join(fresh.dataDir, "catalog.yaml");
  assert.equal((await fresh.ask("POST", "/v1/catalog/confirm", { body: '{"token":"x"}' })).status, 409);
  await writeFile(path, catalog("a", "b"));
  await using watching = await startTestControl({
    control: { catalog: { file: path } },
  });
  const revision = async (): Promise<number | undefined> =>
    (await watching.ask<{ revision?: number }>("GET", "/v1/catalog")).body.revision;
  await eventually("the file's catalog", revision, (found) => found === 1);
  await writeFile(path, catalog());
  const held = await eventually(
    "what waits",
    async () => statusView.parse((await watching.ask("GET", "/v1/status")).body).catalog.held,
    (found) => found !== null,
  );
  assert.equal((await watching.ask("POST", "/v1/catalog/confirm", { body: '{"token":"wrong"}' })).status, 409);
  const body = JSON.stringify({ token: held?.token });
  assert.equal((await watching.ask("POST", "/v1/catalog/confirm", { body, role: "operator" as Role })).status, 403);
  assert.equal((await watching.ask("POST", "/v1/catalog/confirm", { body })).status, 200);
  assert.equal(await revision(), 2);
});

test("a body of null is none that a route takes, and a number of any event may be asked for", async () => {
  await using fresh = await startTestControl();
  for (const path of ["/v1/rollout", "/v1/replicas/r1/restart"])
    assert.equal((await fresh.ask("POST", path, { body: "null" })).status, 400, path);
  assert.equal((await fresh.ask("GET", `/v1/events?after_seq=${Number.MAX_SAFE_INTEGER}`)).status, 200);
  assert.equal((await fresh.ask("GET", "/v1/events?after_seq=9007199254740992")).status, 400);
});
