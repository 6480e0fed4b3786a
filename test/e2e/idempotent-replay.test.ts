import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { IDEMPOTENCY_WORLD, idempotencySuite } from "./idempotent-replay.conformance.ts";
import { aDataDir } from "./support/jobs.ts";
import { chatBody, numbered, ReplayWorld } from "./support/replay-world.ts";

idempotencySuite("one gateway", () => ReplayWorld.open(IDEMPOTENCY_WORLD));

test("of many equal requests while the database of answers can't be used one goes through, and the others get its answer [20.I1 80.G16]", async () => {
  await using dir = await aDataDir();
  await writeFile(join(dir.path, "replies.db"), "no database");
  const world = await ReplayWorld.open({ file: { data_dir: dir.path } });
  try {
    const held = Promise.withResolvers<() => void>();
    world.answer = (got, count) => held.resolve(() => numbered(got, count));
    const calls = Array.from({ length: 40 }, () =>
      world.start({ body: chatBody(), headers: { "idempotency-key": "away" } }),
    );
    (await held.promise)();
    const answers = await Promise.all(calls.map(({ answer }) => answer));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
    assert.equal(world.asked, 1);
    assert.equal(answers.filter((one) => one.headers["idempotent-replayed"] === "true").length, 39);
  } finally {
    await world.close();
  }
});
