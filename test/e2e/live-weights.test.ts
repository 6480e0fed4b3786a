import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { weightsName } from "../../src/contract/resolve-catalog.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { someBytes } from "../../src/testing/weights/cache-world.ts";
import { FakeFileServer } from "../../src/testing/weights/fake-file-server.ts";
import { ctl, ctlDone } from "./support/live-ctl.ts";
import { allReady, LiveWorld, simModel } from "./support/live-world.ts";

const BYTES = someBytes(3_000_000);

test("weights are fetched, shown and kept while a catalog wants them, and go when two revisions no longer do and somebody asks [40.W1 40.W2 40.W3]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/m.gguf", { bytes: BYTES, stalls: [1_000_000] });
  const source = `${server.origin}/m.gguf`;
  const name = weightsName(source);
  await using world = await LiveWorld.start();
  const agent = await world.addAgent("node-a");
  const cpu = { cores: 0.01, memory_gb: 0.001 };
  const fetching = simModel("m", { profiles: [{ engine: "sim", source, cpu, disk_gb: 0.003 }] });
  await world.apply(fetching);
  await eventually(
    "its progress",
    () => ctlDone(world, "replicas"),
    (text) => /fetching, 33 % of 3\.0 MB, \d+\.\d MB\/s/.test(text),
    60_000,
  );
  server.release();
  await world.untilReplicas("the replica", (list) => allReady(list, 1));
  const folder = join(agent.folder, "weights");
  await writeFile(join(folder, "mine.gguf"), "mine");
  await eventually(
    "what the node holds",
    () => ctlDone(world, "weights", "list"),
    (text) => /whole +yes +m$/m.test(text),
    60_000,
  );
  assert.match(await ctlDone(world, "weights", "gc"), /nothing is unwanted/);

  // The catalog before still wants them; the one after that does not.
  await world.apply(simModel("other"));
  await world.untilReplicas("the other", (list) => allReady(list, 1) && list[0]?.model === "other");
  const idle = new RegExp(`^node-a +${name.slice(0, 16)} +3\\.0 MB +whole +- +m$`, "m");
  await eventually(
    "weights that only the last catalog wants",
    () => ctlDone(world, "weights", "list"),
    (text) => idle.test(text),
    60_000,
  );
  assert.match(await ctlDone(world, "weights", "gc", "--collect"), /nothing is unwanted/);
  assert.ok(existsSync(join(folder, name)));
  await world.apply(simModel("other", { aliases: ["again"] }));
  await eventually(
    "they are unwanted",
    () => ctlDone(world, "weights", "gc"),
    (text) => /1 unwanted, 3\.0 MB\nremove them with/.test(text),
    60_000,
  );
  const done = await ctlDone(world, "weights", "gc", "--collect");
  assert.match(done, /^asked to remove 1 weights of 3\.0 MB on 1 nodes$/m);
  assert.match(done, new RegExp(`^node-a +${name.slice(0, 16)} +removed +3\\.0 MB +-$`, "m"));
  assert.deepEqual(
    readdirSync(folder).filter((entry) => !entry.startsWith(".")),
    ["mine.gguf"],
  );
  const events = await ctlDone(world, "events", "--kind", "weightsCollected");
  assert.match(events, /1 nodes are asked to remove 1 weights/);
  assert.equal(server.ledger.length, 1);
});

test("weights that somebody changed are fetched anew, shown as damaged, and go only when an operator asks for the damaged ones [40.W2 40.W3]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/m.gguf", { bytes: BYTES });
  const source = `${server.origin}/m.gguf`;
  await using world = await LiveWorld.start();
  const agent = await world.addAgent("node-a");
  const cpu = { cores: 0.01, memory_gb: 0.001 };
  await world.apply(simModel("m", { profiles: [{ engine: "sim", source, cpu, disk_gb: 0.003 }] }));
  const [first] = await world.untilReplicas("the replica", (list) => allReady(list, 1));
  const folder = join(agent.folder, "weights");
  await truncate(join(folder, weightsName(source), "m.gguf"), 1_000_000);
  assert.equal((await ctl(world, "restart", first?.id ?? "", "--in-place")).code, 0);
  await world.untilReplicas("another one", (list) => allReady(list, 1) && list[0]?.id !== first?.id);
  const row = new RegExp(`^node-a +${weightsName(source).slice(0, 16)}\\.damaged +1\\.0 MB +damaged +- +-$`, "m");
  await eventually(
    "what is damaged",
    () => ctlDone(world, "weights", "list"),
    (text) => row.test(text),
    60_000,
  );
  assert.match(
    await ctlDone(world, "weights", "gc"),
    /nothing is unwanted\n1 damaged, 1\.0 MB: yardmaster ctl weights gc --damaged/,
  );
  assert.match(await ctlDone(world, "weights", "gc", "--collect"), /nothing is unwanted/);
  assert.match(
    await ctlDone(world, "weights", "gc", "--damaged"),
    /1 damaged, 1\.0 MB\nremove them with: .* --damaged --collect/,
  );
  const done = await ctlDone(world, "weights", "gc", "--damaged", "--collect");
  assert.match(done, /\.damaged +removed +1\.0 MB +-$/m);
  assert.deepEqual(
    readdirSync(folder).filter((entry) => !entry.startsWith(".")),
    [weightsName(source)],
  );
  assert.equal(server.ledger.length, 2);
});
