import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { AuditPage, AuditRecord } from "../../src/contract/audit-event.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, startCall } from "./support/calls.ts";
import { OPERATOR_KEY, programFolder, reach, runProgram } from "./support/program.ts";

// What the audit holds after a gateway was stopped or killed, read by the next one from the same folder.

let engine: SimEngine;

before(async () => {
  engine = await anEngine({ slots: 256 });
});
after(() => engine.close());

const REQUESTS = 1_000;
const file = (): Record<string, unknown> => ({
  drain_s: 30,
  upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 200, endpoints: [{ url: engine.url }] }],
});

async function sendMany(port: number): Promise<void> {
  const gateway = reach(port);
  let left = REQUESTS;
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const { status } = await startCall(gateway, { body: aTask({ tokens: 1 }, { stream: false }) }).answer;
      assert.equal(status, 200);
    }
  };
  await Promise.all(Array.from({ length: 32 }, worker));
}

async function readAll(port: number): Promise<AuditPage & { readonly all: readonly AuditRecord[] }> {
  const all: AuditRecord[] = [];
  for (;;) {
    const res = await fetch(`http://127.0.0.1:${port}/admin/audit?limit=500&after_seq=${all.at(-1)?.seq ?? 0}`, {
      headers: { authorization: `Bearer ${OPERATOR_KEY}` },
    });
    assert.equal(res.status, 200, await res.clone().text());
    const page = (await res.json()) as AuditPage;
    all.push(...page.records);
    if (page.records.length === 0) return { ...page, all };
  }
}

test("a thousand requests and SIGTERM right behind the last: not one audit event is missing [10.O1]", async () => {
  await using folder = await programFolder(file());
  await using first = runProgram(["gateway", "--config", folder.config]);
  await sendMany(await first.ready());
  first.kill("SIGTERM");
  assert.equal((await first.end()).code, 0);
  await using second = runProgram(["gateway", "--config", folder.config]);
  const page = await readAll(await second.ready());
  assert.equal(page.all.length, REQUESTS);
  assert.equal(new Set(page.all.map(({ requestId }) => requestId)).size, REQUESTS);
  assert.deepEqual(
    page.all.map(({ seq }) => seq),
    Array.from({ length: REQUESTS }, (_, i) => i + 1),
  );
  assert.deepEqual(page.gaps, []);
});

test("after kill -9 at most the last moment's audit events are missing, and a gap says that some may be [10.O1 80.I9]", async () => {
  await using folder = await programFolder(file());
  await using first = runProgram(["gateway", "--config", folder.config]);
  const port = await first.ready();
  await sendMany(port);
  await eventually(
    "the events are stored",
    async () => (await fetch(`http://127.0.0.1:${port}/metrics`)).text(),
    (page) => /^yardmaster_audit_pending 0$/m.test(page),
    60_000,
  );
  const last = startCall(reach(port), { body: aTask({ tokens: 1 }, { stream: false }) });
  await last.headed();
  first.kill("SIGKILL");
  await first.end();
  await using second = runProgram(["gateway", "--config", folder.config]);
  const page = await readAll(await second.ready());
  assert.ok(page.all.length === REQUESTS || page.all.length === REQUESTS + 1, String(page.all.length));
  assert.deepEqual(
    page.gaps.map(({ why, missing }) => [why, missing]),
    [["run_not_closed", null]],
  );
});
