import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { anEngine } from "./support/an-engine.ts";
import { BatchProcesses } from "./support/batch-processes.ts";
import { aLine, customId, linesOf, over, submit, upload } from "./support/batches.ts";

// Files that are larger than what a gateway may hold of them.

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
after(() => engine.close());

const MIB = 1024 * 1024;
/** The most memory that the process ever had. */
const peakMib = (pid: number): number => {
  const [, kib = "0"] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kib) / 1024;
};

for (const mode of ["local", "redis"] as const)
  test(`a file of 128 MiB goes in and comes out (${mode}) in a fraction of its size of memory [20.J7 80.I9]`, async (t) => {
    await using server = mode === "redis" ? await OwnRedis.start() : null;
    const shared =
      server === null ? {} : { coordination: "redis", redis_url: server.url, coordination_timeout_ms: 2_000 };
    await using world = await BatchProcesses.make(engine, shared);
    const { client, pid } = await world.start("one");
    await upload(client, Buffer.alloc(MIB, 0x61));
    const before = peakMib(pid);
    const text = Buffer.alloc(128 * MIB, 0x61);
    text.write("end", text.length - 3);
    const file = await upload(client, text);
    assert.equal(file.bytes, text.length);
    const grown = peakMib(pid) - before;
    const answer = await client.files.content(file.id);
    let bytes = 0;
    let last = Buffer.alloc(0);
    for await (const piece of answer.body as unknown as AsyncIterable<Uint8Array>) {
      bytes += piece.length;
      last = Buffer.from(piece);
    }
    assert.equal(bytes, text.length);
    assert.equal(last.subarray(-3).toString(), "end");
    const after = peakMib(pid) - before;
    t.diagnostic(`the process grew by ${Math.round(grown)} MiB for the way in, by ${Math.round(after)} MiB in all`);
    assert.ok(after < 96, `grown by ${after} MiB`);
  });

test("long lines are carried out in small chunks, and each comes back whole [20.J7]", async (t) => {
  await using world = await BatchProcesses.make(engine);
  const { client, pid } = await world.start("one");
  await upload(client, Buffer.alloc(MIB, 0x61));
  const before = peakMib(pid);
  const text = "x".repeat(100_000);
  const lines = Array.from({ length: 100 }, (_, index) =>
    aLine(
      customId(index),
      {},
      {
        body: { model: "m", messages: [{ role: "user", content: text }], sim: { tokens: 2 } },
      },
    ),
  );
  const batch = await over(client, (await submit(client, lines.join("\n"))).id);
  assert.deepEqual((await linesOf(client, batch.error_file_id)).slice(0, 1), []);
  assert.deepEqual(batch.request_counts, { total: 100, completed: 100, failed: 0 });
  assert.equal((await linesOf(client, batch.output_file_id)).length, 100);
  t.diagnostic(`the process grew by ${Math.round(peakMib(pid) - before)} MiB for 10 MiB of lines`);
});
