import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApprovalView, OverflowStateView, SpendView } from "../contract/overflow-view.ts";
import { captureIo } from "../testing/capture-io.ts";
import { runCtl } from "../testing/run-ctl.ts";
import { cliCommands } from "./commands.ts";
import { dispatch } from "./dispatch.ts";

const STATE: OverflowStateView = {
  upstream: "video",
  at: "2026-01-01T00:00:00.000Z",
  card: "loaded",
  why: "vram 42.4% ≥ 1.0%\u001b[2J",
  would_go_to: null,
  hold_s: 120,
  on_unreachable: "overflow",
  signals: [
    { kind: "comfyui_vram", state: "busy", reachable: true, value: 42.4, threshold: 1, reason: "vram 42.4% ≥ 1.0%" },
    { kind: "semaphore", state: "broken", reachable: false, value: null, threshold: 1, reason: "no answer" },
  ],
  tiers: [
    {
      id: "minimax",
      provider: "minimax",
      approved: false,
      approval: "tier",
      in_flight: 0,
      breaker: "closed",
      breaker_reason: null,
      halted: { at: "2026-01-01T00:00:00.000Z", why: "it answered 402", until: "2026-01-01T01:00:00.000Z" },
      missing: ["not_approved", "no_key"],
    },
  ],
};
const APPROVAL: ApprovalView = {
  tier: "minimax",
  job: "job_a",
  content_hash: "0123456789abcdef".repeat(4),
  provider: "minimax https://api.minimax.io",
  max_price: 0.5,
  currency: "EUR",
  by: "boss",
  at: "2026-01-01T00:00:00.000Z",
  expires_at: "2026-01-01T01:00:00.000Z",
  state: "open",
};
const SPEND: SpendView = {
  ledger: "local",
  stopped: { by: "boss", at: "2026-01-01T00:00:00.000Z", why: "odd" },
  refuses: null,
  tiers: [
    {
      tier: "minimax",
      currency: null,
      day: "2026-01-01",
      month: "2026-01",
      spent_today: 1.5,
      reserved_today: 0.5,
      per_day: 20,
      spent_this_month: 1.5,
      reserved_this_month: 0.5,
      per_month: null,
      halted: null,
    },
  ],
  open: [
    {
      id: "minimax:job_a",
      tier: "minimax",
      subject: "job_a",
      state: "unknown",
      reserved: 0.5,
      currency: "EUR",
      at: "2026-01-01T00:00:00.000Z",
      why: "the answer was lost",
    },
  ],
};

test("`ctl overflow` shows each signal, what each tier lacks and where a job would go, and asks for nothing else [50.V5]", async () => {
  const ran = await runCtl(["ctl", "overflow", "video"], 200, STATE);
  assert.deepEqual([ran.code, ran.asked], [0, [["GET /overflow/video", null]]]);
  assert.match(ran.out, /upstream video: loaded \(vram 42\.4% ≥ 1\.0%/);
  assert.match(ran.out, /a job would go to: nobody else, it stays here/);
  assert.match(ran.out, /semaphore +broken +no answer/);
  assert.match(ran.out, /minimax +minimax +not approved +0 +closed +not_approved, no_key/);
  assert.match(ran.out, /minimax is asked for nothing since 2026-01-01.*: it answered 402; .*ctl spend resume minimax/);
  assert.ok(!ran.out.includes("\u001b"));
  const json = await runCtl(["ctl", "overflow", "video", "--json"], 200, STATE);
  assert.deepEqual(JSON.parse(json.out), STATE);
});

test("`ctl approve` approves one job for one tier up to a price, lists and revokes [80.O3 50.V4]", async () => {
  const given = await runCtl(["ctl", "approve", "job_a", "--tier", "minimax", "--max-price", "0.5"], 201, APPROVAL);
  assert.deepEqual(
    [given.code, given.asked],
    [0, [["POST /admin/overflow/approvals", { job: "job_a", tier: "minimax", max_price: 0.5, expires_s: 3_600 }]]],
  );
  assert.match(given.out, /minimax +job_a +0\.5 EUR +boss +\S+ +open +0123456789ab/);
  const revoked = await runCtl(["ctl", "approve", "job_a", "--tier", "minimax", "--revoke"], 200, {
    ...APPROVAL,
    state: "revoked",
  });
  assert.deepEqual([revoked.code, revoked.asked[0]?.[0]], [0, "DELETE /admin/overflow/approvals/minimax/job_a"]);
  const listed = await runCtl(["ctl", "approve", "--list"], 200, {
    data: [APPROVAL, { ...APPROVAL, state: "forged" }],
  });
  assert.equal(listed.asked[0]?.[0], "GET /admin/overflow/approvals");
  assert.match(listed.out, /forged/);
});

const spends: readonly [args: readonly string[], request: string, body: unknown][] = [
  [["stop", "--why", "odd"], "POST /admin/overflow/stop", { why: "odd" }],
  [["go"], "POST /admin/overflow/go", null],
  [["accept"], "POST /admin/overflow/accept", null],
  [["resume", "minimax"], "POST /admin/overflow/tiers/minimax/resume", null],
  [
    ["settle", "minimax:job_a", "--charged", "0.4"],
    "POST /admin/overflow/reservations/minimax%3Ajob_a",
    { charged: 0.4 },
  ],
  [["settle", "minimax:job_a", "--nothing"], "POST /admin/overflow/reservations/minimax%3Ajob_a", { charged: null }],
];
for (const [args, request, body] of spends)
  test(`\`ctl spend ${args.join(" ")}\` asks for that alone, and a refusal is exit code 1 [50.V4 80.O7]`, async () => {
    const ran = await runCtl(["ctl", "spend", ...args], 200, {});
    assert.deepEqual([ran.code, ran.asked, ran.out], [0, [[request, body]], "done\n"]);
    for (const [status, code] of [
      [403, "FORBIDDEN"],
      [503, "OVERFLOW_LEDGER_UNAVAILABLE"],
      [503, "AUDIT_UNAVAILABLE"],
    ] as const) {
      const refused = await runCtl(["ctl", "spend", ...args], status, { error: { code, message: "no" } });
      assert.deepEqual([refused.code, refused.out], [1, ""]);
      assert.match(refused.err, new RegExp(code));
    }
  });

test("`ctl spend` shows what was spent and held, that it is stopped, and unknown as `-` [50.V4 80.O2]", async () => {
  const ran = await runCtl(["ctl", "spend"], 200, SPEND);
  assert.equal(ran.code, 0);
  assert.match(ran.out, /^stopped by boss at 2026-01-01T00:00:00\.000Z: odd\n/);
  assert.match(ran.out, /minimax +- +1\.5 \+ 0\.5 of 20 +1\.5 \+ 0\.5 of - +-/);
  assert.match(ran.out, /minimax:job_a +unknown +0\.5 EUR/);
  const json = await runCtl(["ctl", "spend", "show", "--json"], 200, SPEND);
  assert.deepEqual(JSON.parse(json.out), SPEND);
});

test("`ctl spend` does not say that spending is allowed while the ledger is not the one that the gateway knew [80.O6]", async () => {
  const why = "it is not the ledger that this gateway knew: an operator must accept it (ctl spend accept)";
  const ran = await runCtl(["ctl", "spend"], 200, { ...SPEND, stopped: null, refuses: why });
  assert.equal(ran.code, 0);
  assert.equal(ran.out.split("\n")[0], `nothing is spent: ${why}`);
});

const wrong: readonly (readonly string[])[] = [
  ["overflow"],
  ["overflow", "a", "b"],
  ["approve"],
  ["approve", "job_a"],
  ["approve", "job_a", "--tier", "../x", "--max-price", "1"],
  ["approve", "job_a", "--tier", "t"],
  ["approve", "job_a", "--tier", "t", "--max-price", "-1"],
  ["approve", "job_a", "--tier", "t", "--max-price", "much"],
  ["spend", "all"],
  ["spend", "resume"],
  ["spend", "settle", "id"],
  ["spend", "settle", "id", "--charged", "1", "--nothing"],
  ["spend", "settle", "--nothing"],
];
for (const args of wrong)
  test(`\`ctl ${args.join(" ")}\` is a usage error that asks no gateway [50.V4]`, async () => {
    const ran = await runCtl(["ctl", ...args], 200, {});
    assert.deepEqual([ran.code, ran.asked], [2, []]);
  });

test("a gateway that is not there is exit code 3, and an answer of another shape is 1 [50.V4]", async () => {
  const { io } = captureIo({ YARDMASTER_URL: "http://127.0.0.1:9" });
  assert.equal(await dispatch(["ctl", "spend", "stop", "--data-dir", "none"], cliCommands, "0", io), 3);
  for (const args of [["overflow", "video"], ["spend"], ["approve", "--list"]])
    assert.equal((await runCtl(["ctl", ...args], 200, { nonsense: true })).code, 1);
});
