import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { statusView } from "../../src/contract/control-api.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { someBytes } from "../../src/testing/weights/cache-world.ts";
import { FakeFileServer } from "../../src/testing/weights/fake-file-server.ts";
import { ctl, ctlDone } from "./support/live-ctl.ts";
import { allReady, LiveWorld, QUICK, simModel } from "./support/live-world.ts";

/** Content by path, of every file below a folder. */
const hashesIn = (folder: string): ReadonlyMap<string, string> =>
  new Map(
    readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => {
        const path = join(entry.parentPath, entry.name);
        return [path, createHash("sha256").update(readFileSync(path)).digest("hex")] as const;
      }),
  );

test("a store that was put back from a copy knows nothing of newer weights: before an operator confirms, `gc --collect` removes no file, wanted or not, and afterwards only what nobody wants [80.P7 80.I6 40.W2]", async () => {
  await using server = await FakeFileServer.start();
  for (const name of ["old", "new"]) server.files.set(`/${name}.gguf`, { bytes: someBytes(200_000, name.length) });
  await using world = await LiveWorld.start({ ...QUICK, lost_after_s: 60 });
  const agent = await world.addAgent("node-a");
  const cpu = { cores: 0.01, memory_gb: 0.001 };
  const fetching = (name: string): Record<string, unknown> =>
    simModel(name, { profiles: [{ engine: "sim", source: `${server.origin}/${name}.gguf`, cpu }] });
  await world.apply(fetching("old"));
  await world.untilReplicas("the first", (list) => allReady(list, 1));
  await world.stopControl();
  const copy = join(world.folder, "copy");
  await cp(world.dataDir, copy, { recursive: true });
  await world.startControl();
  await world.apply(fetching("old"), fetching("new"));
  await world.untilReplicas("both", (list) => allReady(list, 2));
  const weights = join(agent.folder, "weights");
  await mkdir(join(weights, "a person's"));
  await writeFile(join(weights, "a person's", "thesis.txt"), "thesis");
  // An orphan: fetched by the node, wanted by no catalog that the copy has.
  await world.apply(fetching("old"), simModel("x"));
  await world.apply(fetching("old"), simModel("y"));
  await eventually(
    "the newer weights are unwanted",
    () => ctlDone(world, "weights", "gc"),
    (text) => /1 unwanted/.test(text),
    60_000,
  );
  const before = hashesIn(weights);
  assert.equal([...before].length >= 3, true);

  await world.stopControl();
  await rm(world.dataDir, { recursive: true });
  await cp(copy, world.dataDir, { recursive: true });
  await world.startControl();
  await eventually(
    "it is found out",
    async () => statusView.parse((await world.control.ask("GET", "/v1/status")).body).restored,
    (is) => is,
    30_000,
  );
  await world.untilNodes("the node", (nodes) => nodes[0]?.state === "ready");
  for (let round = 0; round < 3; round += 1) {
    const refused = await ctl(world, "weights", "gc", "--collect");
    assert.deepEqual([refused.code, /WEIGHTS_HELD/.test(refused.err)], [1, true], refused.out + refused.err);
  }
  assert.match(await ctlDone(world, "weights", "gc"), /nothing can be removed now: .*old copy/);
  assert.deepEqual(hashesIn(weights), before, "no file has gone or changed");
  assert.equal((await ctl(world, "leader", "confirm-restored")).code, 0);
  const collected = await eventually(
    "what nobody wants goes",
    () => ctlDone(world, "weights", "gc", "--collect"),
    (text) => /^node-a .* removed /m.test(text),
    60_000,
  );
  assert.match(collected, /^asked to remove 1 weights/m);
  const after = hashesIn(weights);
  for (const [path, digest] of after) assert.equal(before.get(path), digest, path);
  assert.equal(before.size - after.size, 1);
  assert.ok([...after.keys()].some((path) => path.endsWith("thesis.txt")));
  assert.ok([...after.keys()].some((path) => path.endsWith("old.gguf")));
  rmSync(copy, { recursive: true });
});
