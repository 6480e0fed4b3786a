import assert from "node:assert/strict";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { canMount, smallDisk } from "../../src/testing/small-disk.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aClient, manyLines, over, submit, upload } from "./support/batches.ts";
import { call } from "./support/calls.ts";
import { aChat } from "./support/jobs.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// A gateway whose disk is in trouble: it starts, and serves what needs none of it.

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
after(() => engine.close());

const aGateway = (dataDir: string): Promise<TestGateway> =>
  startTestGateway({
    file: { data_dir: dataDir },
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 4, endpoints: [{ url: engine.url }] }],
  });
const GARBAGE = "no database at all, and long enough to be looked at; ".repeat(50);
const UNAVAILABLE = { status: 503, code: "FILE_STORE_UNAVAILABLE" };

const mustAnswerCalls = async (gateway: TestGateway): Promise<void> =>
  assert.equal((await call(gateway, { body: aChat() })).status, 200);

test("a gateway starts beside a damaged database of files: calls are answered, files with a code that stays, and all is back when the file is [20.J7 80.G19]", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-disk-"));
  const path = join(folder, "files.db");
  try {
    const first = await aGateway(folder);
    const before = aClient(first.port, first.keys.client);
    const batch = await over(before, (await submit(before, manyLines(3))).id);
    await first.stop();
    await rename(path, `${path}.good`);
    await writeFile(path, GARBAGE);

    const gateway = await aGateway(folder);
    try {
      const client = aClient(gateway.port, gateway.keys.client);
      await mustAnswerCalls(gateway);
      await assert.rejects(client.files.list(), UNAVAILABLE);
      await assert.rejects(client.files.content(batch.output_file_id ?? ""), UNAVAILABLE);
      await assert.rejects(client.files.delete(batch.input_file_id), UNAVAILABLE);
      await assert.rejects(client.batches.retrieve(batch.id), UNAVAILABLE);
      await assert.rejects(client.batches.cancel(batch.id), UNAVAILABLE);
      await assert.rejects(upload(client, manyLines(1)), UNAVAILABLE);
      await assert.rejects(submit(client, manyLines(1)), UNAVAILABLE);

      await rename(`${path}.good`, path);
      await eventually(
        "the batch is there again",
        () => client.batches.retrieve(batch.id).catch(() => null),
        (found) => found?.status === "completed",
      );
      await eventually(
        "the log says so",
        () => gateway.logLines.join("\n"),
        (log) => /batches\.store.*away/.test(log) && /batches\.store.*back/.test(log),
      );
      await over(client, (await submit(client, manyLines(2))).id);
    } finally {
      await gateway.stop();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

if (canMount) {
  test("a gateway starts on a disk that is full, and answers calls [80.G19]", async () => {
    using disk = smallDisk("size=1m");
    assert.ok(disk !== null);
    disk.fill();
    const gateway = await aGateway(disk.folder);
    try {
      await mustAnswerCalls(gateway);
      disk.clear();
      await eventually(
        "its keys have a file",
        () => gateway.logLines.join("\n"),
        (log) => /keys\.store.*back/.test(log),
      );
    } finally {
      await gateway.stop();
    }
  });

  test("on a full disk a file can be deleted and a new one has its room, also after a start on that disk [20.J7 80.G19]", async () => {
    using disk = smallDisk("size=24m");
    assert.ok(disk !== null);
    const text = Buffer.alloc(1_000_000, "x\n");
    const first = await aGateway(disk.folder);
    const ids: string[] = [];
    {
      const client = aClient(first.port, first.keys.client);
      for (let n = 0; n < 4; n += 1) ids.push((await upload(client, text)).id);
    }
    await first.stop();
    disk.fill();

    const gateway = await aGateway(disk.folder);
    try {
      const client = aClient(gateway.port, gateway.keys.client);
      await mustAnswerCalls(gateway);
      assert.equal((await client.files.list()).data.length, ids.length);
      for (const id of ids.slice(0, 3)) assert.equal((await client.files.delete(id)).deleted, true);
      const again = await upload(client, text);
      const back = Buffer.from(await (await client.files.content(again.id)).arrayBuffer());
      assert.ok(back.equals(text));
    } finally {
      await gateway.stop();
    }
  });
}

// Those of the other features; each is opened when it is needed, or its owner tries again.
for (const name of ["jobs.db", "limits.db", "usage.db", "audit.db", "audit-chain.db", "ledger.db", "replies.db"]) {
  test(`a damaged ${name} keeps no gateway from starting and no call from its answer [80.G19]`, async () => {
    const folder = await mkdtemp(join(tmpdir(), "yardmaster-disk-"));
    await writeFile(join(folder, name), GARBAGE);
    const gateway = await aGateway(folder);
    try {
      await mustAnswerCalls(gateway);
    } finally {
      await gateway.stop();
      await rm(folder, { recursive: true, force: true });
    }
  });
}

test("keys that can't be read in are told from wrong ones, let others in meanwhile, and work once they are read [60.K1 80.G19]", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-disk-"));
  const path = join(folder, "keys.db");
  const ask = (gateway: TestGateway, key: string): Promise<Response> =>
    fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  const make = async (gateway: TestGateway, id: string): Promise<{ status: number; key: string; code: string }> => {
    const answer = await fetch(`${gateway.url}/admin/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.keys.admin}`, "content-type": "application/json" },
      body: JSON.stringify({ id }),
    });
    const body = (await answer.json()) as { key?: string; error?: { code: string } };
    return { status: answer.status, key: body.key ?? "", code: body.error?.code ?? "" };
  };
  try {
    const first = await aGateway(folder);
    const { key } = await make(first, "made");
    assert.equal((await ask(first, key)).status, 200);
    await first.stop();
    await rename(path, `${path}.good`);
    await writeFile(path, GARBAGE);

    const gateway = await aGateway(folder);
    try {
      await mustAnswerCalls(gateway);
      const refused = await ask(gateway, key);
      assert.equal(refused.status, 503);
      assert.ok(Number(refused.headers.get("retry-after")) > 0);
      assert.equal(((await refused.json()) as { error: { code: string } }).error.code, "KEY_STORE_UNAVAILABLE");
      const change = await make(gateway, "other");
      assert.deepEqual([change.status, change.code], [503, "KEY_STORE_UNAVAILABLE"]);

      await rename(`${path}.good`, path);
      await eventually(
        "the keys are read",
        () => gateway.logLines.join("\n"),
        (log) => /keys\.store.*back/.test(log),
      );
      assert.equal((await ask(gateway, key)).status, 200);
      assert.equal((await ask(gateway, "no key at all")).status, 401);
      assert.equal((await make(gateway, "other")).status, 201);
    } finally {
      await gateway.stop();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
