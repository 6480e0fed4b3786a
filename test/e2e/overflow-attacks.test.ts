import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, afterEach, test } from "node:test";
import { CTL_AUDIT_COMMANDS } from "../../src/cli/ctl-audit.ts";
import { dispatch } from "../../src/cli/dispatch.ts";
import type { OverflowStateView, SpendView } from "../../src/contract/overflow-view.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import type { FakeCloud } from "../../src/testing/cloud/fake-cloud.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { call, startCall } from "./support/calls.ts";
import { aChat, accepted, ended, jobOf } from "./support/jobs.ts";
import {
  aCloud,
  aTier,
  ENV,
  OUTSIDE_KEY,
  outsideKey,
  signalPages,
  type SignalPages,
} from "./support/overflow-world.ts";
import { programFolder, runProgram } from "./support/program.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// What may go wrong around overflow, done on purpose.

let engine: SimEngine;
let cloud: FakeCloud;
let pages: SignalPages;
before(async () => {
  engine = await anEngine({ slots: 8 });
});
beforeEach(async () => {
  engine.resetLedger();
  cloud = await aCloud();
  pages = await signalPages();
  pages.taken = true;
});
afterEach(async () => {
  await cloud.close();
  await pages[Symbol.asyncDispose]();
});
after(() => engine.close());

const UPSTREAM = (): Record<string, unknown> => ({
  id: "u",
  models: ["m"],
  engine: "vllm",
  slots: 4,
  endpoints: [{ url: engine.url }],
});
const section = (tier: Record<string, unknown>, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  upstream: "u",
  signals: [{ kind: "semaphore", url: `${pages.url}/status`, busy_field: "guard.busy" }],
  signal_memory_ms: 0,
  hold_s: 0,
  tiers: [tier],
  ...more,
});
const SECRET = "CANARY-signing-secret-0123456789abcdef";

async function start(
  overflow: Record<string, unknown>,
  upstreams: readonly Record<string, unknown>[] = [UPSTREAM()],
): Promise<TestGateway> {
  const options = {
    upstreams,
    keys: [outsideKey],
    env: { ...ENV, SIGNING: SECRET },
    file: { overflow: [overflow], signing_key_envs: ["SIGNING"] },
  };
  const gateway = await startTestGateway(options);
  return { ...gateway, keys: { ...gateway.keys, client: OUTSIDE_KEY } };
}

const asApprover = (gateway: Pick<TestGateway, "url" | "keys">, path: string, body?: unknown): Promise<Response> =>
  fetch(`${gateway.url}${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${gateway.keys.approver}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });

test("each act of an administrator and each decision about money is one entry of a chain that `ctl` exports and checks without the gateway [80.I10 80.C47 80.D33]", async () => {
  const gateway = await start(section(aTier(cloud, { approval: "per_job" }), { hold_s: 600 }));
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-export-"));
  try {
    const job = await accepted(gateway, { body: aChat() });
    await eventually(
      "the job to lack its approval",
      () => jobOf(gateway, job.id),
      ({ overflow }) => overflow?.missing[0]?.lacks[0] === "no_job_approval",
    );
    await asApprover(gateway, "/admin/overflow/stop", { why: "odd" });
    await asApprover(gateway, "/admin/overflow/go", {});
    await asApprover(gateway, "/admin/overflow/approvals", { job: job.id, tier: "cloud", max_price: 0.5 });
    await asApprover(gateway, "/admin/overflow/tiers/cloud/resume", {});
    await ended(gateway, job.id);
    const { io, output } = captureIo({ YARDMASTER_URL: gateway.url, YARDMASTER_KEY: gateway.keys.operator });
    assert.equal(await dispatch(["ctl", "audit", "export", "--data-dir", folder], CTL_AUDIT_COMMANDS, "0", io), 0);
    const text = output().out;
    const entries = text
      .trimEnd()
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as { seq: number; act: string; outcome: string; who: string });
    assert.deepEqual(
      entries.map(({ seq }) => seq),
      entries.map((_, index) => index + 1),
    );
    const acts = entries.map(({ act, outcome }) => `${act} ${outcome}`);
    for (const once of [
      "POST /admin/overflow/stop ok",
      "POST /admin/overflow/go ok",
      `POST /admin/overflow/approvals/cloud/${job.id} ok`,
      "POST /overflow/u/cloud money_committed",
      "POST /overflow/u/cloud money_charged",
    ])
      assert.equal(acts.filter((act) => act === once).length, 1, `${once} in ${acts.join("; ")}`);
    // It was not halted: the entry that it would be done is followed by one that it was not.
    assert.deepEqual(
      acts.filter((act) => act.includes("resume")).map((act) => act.split(" ").at(-1)),
      ["ok", "refused"],
    );
    assert.ok(!text.includes("test-approver") && !text.includes("CANARY"));
    const verify = async (content: string): Promise<{ code: number; out: string }> => {
      const path = join(folder, "export.jsonl");
      await writeFile(path, content);
      const asked = captureIo({ SIGNING: SECRET });
      const args = ["ctl", "audit", "verify", path, "--secret-env", "SIGNING", "--who", "test-approver"];
      return { code: await dispatch(args, CTL_AUDIT_COMMANDS, "0", asked.io), out: asked.output().out };
    };
    const whole = await verify(text);
    assert.equal(whole.code, 0, whole.out);
    const theirs = entries.filter(({ act }) => act.includes("/admin/")).map(({ seq }) => seq);
    assert.ok(whole.out.includes(`entries of test-approver: ${theirs.join(", ")}\n`), whole.out);
    const changed = await verify(text.replace("money_charged", "money_freed"));
    const bad = entries.find(({ outcome }) => outcome === "money_charged")?.seq;
    assert.deepEqual([changed.code, changed.out.includes(`first bad sequence number ${bad}:`)], [1, true]);
  } finally {
    await gateway.stop();
    await rm(folder, { recursive: true, force: true });
  }
});

test("no address in a request makes the gateway connect anywhere, and no key of a tier leaves for it [80.D23 80.C46]", async () => {
  let connections = 0;
  const trap = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  await new Promise<void>((resolve) => trap.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(trap.address() as AddressInfo).port}`;
  const gateway = await start(section(aTier(cloud)));
  try {
    const fields: readonly Record<string, unknown>[] = [
      { api_base: url, base_url: url, api_key: "x" },
      { model: url },
      { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: `${url}/a.png` } }] }] },
      { messages: [{ role: "user", content: [{ type: "input_audio", input_audio: { url: `${url}/a.wav` } }] }] },
      { callback_url: url, webhook: url, extra_body: { base_url: url } },
    ];
    for (const more of fields) {
      await call(gateway, { body: { ...aChat(), max_tokens: 4, ...more } });
      const body = { ...aChat(), max_tokens: 4, ...more };
      const answer = await call(gateway, { path: "/v1/jobs", body: { class: "batch", body } });
      if (answer.status === 202) await ended(gateway, (JSON.parse(answer.text) as { id: string }).id);
    }
    assert.equal(connections, 0);
  } finally {
    await gateway.stop();
    trap.close();
  }
});

test("a job with parts stays here though its card is busy and the tier lacks nothing else, and says so [50.V3 50.V5]", async () => {
  const gateway = await start(section(aTier(cloud)));
  try {
    const job = await accepted(gateway, { parts: [{ body: aChat() }, { body: aChat() }] });
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.state, done.overflow?.decision, done.overflow?.card], ["completed", "local", "loaded"]);
    assert.deepEqual(done.overflow?.missing, [{ tier: "cloud", lacks: ["has_parts"] }]);
    assert.deepEqual([cloud.ledger().submits, engine.ledger().entries.length], [0, 2]);
  } finally {
    await gateway.stop();
  }
});

test("a signal whose page hangs holds up one chat for its time, and the others hardly at all [50.V1 50.V2 50.V7]", async () => {
  pages.spoilt = () => {};
  const site = { id: "site", provider: "openai", base_url: engine.url, approved: true };
  const gateway = await start(section(site, { signal_timeout_ms: 3_000, signal_memory_ms: 0 }));
  try {
    const first = await call(gateway, { body: { ...aChat(), max_tokens: 2 }, class: "interactive" });
    assert.equal(first.headers["x-yardmaster-upstream"], "u");
    for (let index = 0; index < 5; index += 1) {
      const { status, tookMs, headers } = await call(gateway, {
        body: { ...aChat(), max_tokens: 2 },
        class: "interactive",
      });
      assert.deepEqual([status, headers["x-yardmaster-upstream"]], [200, "u"]);
      assert.ok(tookMs < 2_000, `${Math.round(tookMs)} ms`);
    }
  } finally {
    await gateway.stop();
  }
});

test("while most hosts are bad or unknown nothing goes to a tier, not even what can't be done here; when it is one alone it goes [80.A14 50.V3]", async () => {
  const dead = (id: string, hosts: readonly number[]): Record<string, unknown> => ({
    ...UPSTREAM(),
    id,
    models: [id],
    endpoints: hosts.map((host) => ({ url: `http://127.0.0.${host}:9` })),
  });
  const gone = { ...dead("u", [2]), models: ["m"] };
  const alive = { ...UPSTREAM(), id: "v", models: ["v"] };
  const policy = section(aTier(cloud), { signals: [] });
  const gateway = await start(policy, [gone, dead("w", [3, 4]), alive]);
  try {
    const job = await accepted(gateway, { body: aChat() });
    await eventually(
      "the brake to be told",
      async () => (await (await asApprover(gateway, "/overflow/u")).json()) as OverflowStateView,
      ({ card, why, would_go_to }) =>
        card === "unreachable" && why.includes("3 of 4 hosts are bad or unknown") && would_go_to === null,
    );
    assert.equal(cloud.ledger().submits, 0);
    const options = {
      upstreams: [gone, alive],
      keys: [outsideKey],
      env: { ...ENV, SIGNING: SECRET },
      file: { overflow: [policy], signing_key_envs: ["SIGNING"] },
    };
    gateway.gateway.applyConfig(gateway.configOf(options));
    const done = await ended(gateway, job.id);
    assert.deepEqual([done.overflow?.tier, cloud.ledger().submits], ["cloud", 1]);
  } finally {
    await gateway.stop();
  }
});

test("a gateway that is killed inside a paid chat leaves its money held over its restart, and a second one is a second call [80.O2 80.C32 50.V7]", async () => {
  const site = await anEngine({ models: ["big"] });
  const APPROVER = "CANARY-approver-0123456789abcdef0123456789abcdef";
  const hashed = (key: string): string => `sha256:${createHash("sha256").update(key).digest("hex")}`;
  const { key: _key, ...rest } = outsideKey;
  const keys = [
    { ...rest, hash: hashed(OUTSIDE_KEY) },
    { id: "boss", role: "approver", hash: hashed(APPROVER) },
  ];
  const tier = {
    id: "site",
    provider: "openai",
    base_url: site.url,
    model: "big",
    approved: true,
    price: { per_call: 1, currency: "EUR" },
    budget: { per_day: 2, per_month: 2 },
  };
  await using folder = await programFolder();
  await folder.write({ auth: { keys }, upstreams: [UPSTREAM()], overflow: [section(tier)] });
  const reached = (port: number): TestGateway =>
    ({
      port,
      url: `http://127.0.0.1:${port}`,
      keys: { client: OUTSIDE_KEY, approver: APPROVER },
    }) as unknown as TestGateway;
  const spend = async (gateway: TestGateway): Promise<SpendView> =>
    (await (await asApprover(gateway, "/admin/overflow/spend")).json()) as SpendView;
  try {
    const first = runProgram(["gateway", "--config", folder.config]);
    const one = reached(await first.ready());
    const streamed = { ...aChat({ tokens: 8, delayBetweenMs: 60_000 }), max_tokens: 8, stream: true };
    const live = startCall(one, { body: streamed, class: "interactive" });
    await live.headed();
    first.kill("SIGKILL");
    await first.end();
    await live.answer;
    await using second = runProgram(["gateway", "--config", folder.config]);
    const two = reached(await second.ready());
    const { tiers, open } = await spend(two);
    assert.deepEqual([tiers[0]?.spent_today, tiers[0]?.reserved_today, open.length], [0, 1, 1]);
    const again = await call(two, { body: { ...aChat(), max_tokens: 4 }, class: "interactive" });
    assert.equal(again.headers["x-yardmaster-upstream"], "site");
    // The budget of two is used: what nobody knows counts.
    const third = await call(two, { body: { ...aChat(), max_tokens: 4 }, class: "interactive" });
    assert.equal(third.headers["x-yardmaster-upstream"], "u");
    assert.equal(site.ledger().entries.length, 2);
    const path = `/admin/overflow/reservations/${encodeURIComponent(open[0]?.id ?? "")}`;
    assert.equal((await asApprover(two, path, { charged: null })).status, 200);
    assert.deepEqual((await spend(two)).open, []);
  } finally {
    await site.close();
  }
});
