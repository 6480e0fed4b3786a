import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Change, Plot, Snapshot, TryEvent, UpstreamRow } from "../../src/contract/board.ts";
import { cliCommands } from "../../src/cli/commands.ts";
import { dispatch } from "../../src/cli/dispatch.ts";
import type { Role } from "../../src/contract/roles.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import { queuesView } from "../../src/contract/queues.ts";
import { jobView } from "../../src/contract/job-view.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { FakeGateway } from "../../src/testing/fake-gateway.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { signIn, type BoardStream, type SignedIn } from "./support/board-client.ts";
import { keyOf, startTestControl, type TestControl } from "./support/test-control.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

let control: TestControl;
let engine: SimEngine;
const gateways: TestGateway[] = [];
let by: SignedIn;

const aGateway = (name: string, key: string): Promise<TestGateway> =>
  startTestGateway({
    env: { YARDMASTER_TOKEN: keyOf("gateway") },
    file: { gateway: { name, control: [control.url.replace("http", "ws")] } },
    keys: [{ id: "typed", key, role: "client" }],
    upstreams: [
      { id: "u", engine: "vllm", models: ["m"], slots: 4, batch_max: 2, endpoints: [{ url: engine.url }] },
      { id: `only-${name}`, engine: "vllm", models: [`m-${name}`], slots: 2, endpoints: [{ url: engine.url }] },
    ],
  });
const TYPED = "CANARY-typed-0123456789abcdef";

before(async () => {
  control = await startTestControl();
  engine = await anEngine({ slots: 16, decodeTps: 60 });
  gateways.push(await aGateway("gw-a", TYPED), await aGateway("gw-b", TYPED));
  by = await signIn(control.url, { key: keyOf("operator") });
  await eventually(
    "both gateways",
    async () => ((await (await by.fetch("/v1/gateways")).json()) as { gateways: unknown[] }).gateways.length,
    (count) => count === 2,
  );
});
after(async () => {
  await Promise.all(gateways.map((gateway) => gateway.stop()));
  await engine.close();
  await control[Symbol.asyncDispose]();
});

/** Lays all that a board was told over each other. */
function tablesOf(stream: BoardStream): Record<string, Record<string, unknown>> {
  const tables: Record<string, Record<string, unknown>> = {};
  for (const { event, data } of stream.events) {
    if (event === "snapshot")
      for (const [name, rows] of Object.entries((data as Snapshot).tables)) tables[name] = { ...rows };
    if (event !== "change") continue;
    const { set = {}, gone = {} } = data as Change;
    for (const [name, rows] of Object.entries(set)) tables[name] = { ...tables[name], ...rows };
    for (const [name, keys] of Object.entries(gone)) for (const key of keys) delete tables[name]?.[key];
  }
  return tables;
}
const upstreamOf = (stream: BoardStream, id: string): UpstreamRow | undefined =>
  tablesOf(stream)["upstreams"]?.[id] as UpstreamRow | undefined;

test("while no board is open gateways are asked for nothing; the queues of all are summed, and the plot remembers them", async () => {
  await using quiet = new FakeGateway(control.url, keyOf("gateway"));
  await quiet.until("a welcome", () => quiet.count("welcome") === 1);
  using stream = await by.stream();
  await stream.until("both gateways' word", () => upstreamOf(stream, "u")?.gateways.length === 2);
  const row = upstreamOf(stream, "u");
  assert.deepEqual([row?.slots, row?.batchMax, row?.endpoints.all], [8, 4, 1]);
  assert.deepEqual(row?.inUse, { interactive: 0, system: 0, batch: 0 });
  assert.deepEqual(row?.queueMs, { p50: null, p95: null, count: 0 }, "nobody has asked: unknown, not 0");
  assert.deepEqual(upstreamOf(stream, "only-gw-a")?.gateways, ["gw-a"]);
  assert.equal(quiet.count("boardWatch"), 0, "one that has not said that it knows of boards is not asked");
  const ask = { method: "POST", headers: { "content-type": "application/json" } };
  const chat = (gateway: TestGateway, tokens: number): Promise<Response> =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      ...ask,
      headers: { ...ask.headers, authorization: `Bearer ${TYPED}` },
      body: JSON.stringify({ model: "m", max_tokens: tokens, messages: [{ role: "user", content: "x" }] }),
    });
  const running = gateways.map((gateway) => chat(gateway, 150));
  await stream.until("a slot in use at each", () => upstreamOf(stream, "u")?.inUse.interactive === 2, 10_000);
  await Promise.all(running.map(async (answer) => (await answer).arrayBuffer()));
  await stream.until("how long they took", () => (upstreamOf(stream, "u")?.firstByteMs.count ?? 0) === 2, 10_000);
  const plot = (await (await by.fetch("/board/api/plot?upstream=u")).json()) as Plot;
  assert.ok(plot.inUse.interactive.includes(2) && plot.at.length === plot.slots.length);
  assert.ok(plot.slots.every((slots) => slots === 8));
});

test("`GET /v1/queues` has what boards show", async () => {
  const { body } = await control.ask("GET", "/v1/queues", { role: "operator" });
  const { upstreams } = queuesView.parse(body);
  assert.deepEqual(
    upstreams.map(({ id }) => id),
    ["only-gw-a", "only-gw-b", "u"],
  );
  assert.equal((await control.ask("GET", "/v1/queues", { role: "client" })).status, 403);
});

test("`ctl queues` tells the same, `ctl board` makes a link that works once, and a failure is no success", async () => {
  const ctl = async (role: Role, ...args: readonly string[]): Promise<{ code: number; out: string; err: string }> => {
    const { io, output } = captureIo({ YARDMASTER_URL: control.url, YARDMASTER_KEY: keyOf(role) });
    return { code: await dispatch(["ctl", ...args], cliCommands, "0", io), ...output() };
  };
  const queues = await ctl("operator", "queues");
  assert.equal(queues.code, 0, queues.err);
  assert.match(queues.out, /^UPSTREAM +IN USE +SLOTS +WAITING +LONGEST/);
  assert.match(queues.out, /^u +0\/0\/0 +8 +0\/0\/0 +- /m);
  assert.match((await ctl("operator", "queues", "-o", "wide")).out, /gw-a,gw-b/);
  assert.equal(queuesView.parse(JSON.parse((await ctl("operator", "queues", "-o", "json")).out)).upstreams.length, 3);
  assert.notEqual((await ctl("client", "queues")).code, 0);
  const link = await ctl("operator", "board");
  const once = /^http:\/\/127\.0\.0\.1:\d+\/board\/#once=([\w-]{43})\n$/.exec(link.out)?.[1] ?? "";
  assert.equal((await (await signIn(control.url, { once })).fetch("/v1/status")).status, 200);
  assert.notEqual((await ctl("client", "board")).code, 0);
});

test("a gateway lets no control plane make keys, read its record or forget a card's fault, whoever it says that asks [60.K2]", async () => {
  const { desk } = control.plane.gateways;
  const [peer] = desk.peers;
  assert.ok(peer !== undefined);
  const asker = { keyId: "key-admin", role: "admin" as const };
  for (const [method, target] of [
    ["GET", "/admin/keys"],
    ["POST", "/admin/keys"],
    ["DELETE", "/admin/keys/typed"],
    ["GET", "/admin/audit"],
    ["POST", "/admin/gpus/clear"],
    ["POST", "/v1/jobs"],
    ["GET", "/metrics"],
  ] as const) {
    const body = method === "POST" ? { body: "{}" } : {};
    const { status } = await desk.asks.askWhole(peer, asker, { method, target, ...body });
    assert.equal(status, 403, `${method} ${target}`);
  }
  const role = { keyId: "key-approver", role: "approver" as const };
  const { status } = await desk.asks.askWhole(peer, role, { method: "GET", target: "/v1/jobs" });
  assert.equal(status, 403, "and the role is looked at here too");
});

test("jobs of every gateway are seen, shown and cancelled by the gateway's own routes, and are on its record [60.K2 20.J2]", async () => {
  const [gateway] = gateways;
  assert.ok(gateway !== undefined);
  const submitted = await fetch(`${gateway.url}/v1/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${TYPED}`, "content-type": "application/json" },
    body: JSON.stringify({
      path: "/v1/chat/completions",
      body: { model: "m", max_tokens: 4_000, messages: [{ role: "user", content: "<b>x</b>" }] },
    }),
  });
  const { id } = jobView.parse(await submitted.json());
  using stream = await by.stream();
  await stream.until("the job", () => tablesOf(stream)["jobs"]?.[id] !== undefined, 10_000);
  assert.equal(jobView.parse(await (await by.fetch(`/v1/jobs/${id}`)).json()).id, id);
  const listed = (await (await by.fetch("/v1/jobs?limit=10")).json()) as { data: { id: string }[] };
  assert.ok(listed.data.some((job) => job.id === id));
  const cancelled = await by.fetch(`/v1/jobs/${id}`, { method: "DELETE" });
  assert.equal(jobView.parse(await cancelled.json()).state, "cancelled");
  const audit = (await (
    await fetch(`${gateway.url}/admin/audit?limit=50`, { headers: { authorization: `Bearer ${gateway.keys.admin}` } })
  ).json()) as { events: { keyId?: string; key_id?: string; route: string }[] };
  assert.ok(JSON.stringify(audit).includes("key-operator"), "whoever was signed in stands in the gateway's record");
  const unknown = await by.fetch("/v1/jobs/job_none", { method: "DELETE" });
  assert.deepEqual(
    [unknown.status, ((await unknown.json()) as { error: { code: string } }).error.code],
    [404, "JOB_UNKNOWN"],
  );
  assert.equal((await by.fetch("/v1/overflow/upstreams/u")).status, 404);
  assert.equal((await by.fetch("/v1/jobs?limit=0")).status, 400);
});

async function tryIt(body: Record<string, unknown>): Promise<TryEvent[]> {
  const answer = await by.fetch("/v1/try", {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "content-type": "application/json" },
  });
  assert.equal(answer.status, 200);
  const text = await answer.text();
  return text
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as TryEvent);
}

test("a model is tried as a key's own request, with its times beside it; a wrong key and an unknown model are told so", async () => {
  const events = await tryIt({ model: "m", prompt: "hello", maxTokens: 12, key: TYPED });
  const [head] = events;
  assert.ok(head?.kind === "head" && head.status === 200 && head.queueMs !== null && head.requestId !== null);
  const texts = events.filter(({ kind }) => kind === "text");
  assert.ok(texts.length > 1 && texts[0]?.kind === "text" && (texts[0].firstByteMs ?? -1) >= 0);
  const end = events.at(-1);
  assert.ok(end?.kind === "end" && end.completionTokens === 12 && (end.tokensPerSecond ?? 0) > 0, JSON.stringify(end));
  const failed = async (body: Record<string, unknown>): Promise<string> => {
    const last = (await tryIt(body)).at(-1);
    return last?.kind === "error" ? last.code : "none";
  };
  assert.equal(await failed({ model: "m", prompt: "x", key: "wrong-key-0123456789" }), "UNAUTHORIZED");
  assert.equal(await failed({ model: "none", prompt: "x" }), "MODEL_UNKNOWN");
  assert.ok(!control.logLines.join().includes(TYPED));
  assert.ok(
    !gateways
      .flatMap(({ logLines }) => logLines)
      .join()
      .includes(TYPED),
  );
  for (const body of [
    '{"model":"m"}',
    '{"model":"m","prompt":"x","key":"a\\nb"}',
    '{"model":"m","prompt":"x","maxTokens":0}',
  ])
    assert.equal(
      (await by.fetch("/v1/try", { method: "POST", body, headers: { "content-type": "application/json" } })).status,
      400,
      body,
    );
});

test("without a gateway that could be asked it is said so, and a gateway that leaves takes its word along", async () => {
  await using own = await startTestControl();
  for (const [method, path] of [
    ["GET", "/v1/queues"],
    ["GET", "/v1/jobs"],
    ["DELETE", "/v1/jobs/job_x"],
    ["POST", "/v1/overflow/stop"],
  ] as const) {
    const { status, body } = await own.ask(method, path, method === "POST" ? { body: "{}" } : {});
    assert.deepEqual([status, body.error?.code], [503, "GATEWAY_SILENT"], path);
  }
  using stream = await by.stream();
  await stream.until("its upstream", () => upstreamOf(stream, "only-gw-b") !== undefined);
  await gateways.pop()?.stop();
  await stream.until("its upstream to go", () => upstreamOf(stream, "only-gw-b") === undefined, 10_000);
  assert.deepEqual(upstreamOf(stream, "u")?.gateways, ["gw-a"]);
  assert.equal(upstreamOf(stream, "u")?.slots, 4);
});
