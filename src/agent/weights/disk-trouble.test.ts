import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { weightsName } from "../../contract/resolve-catalog.ts";
import { canMount, smallDisk } from "../../testing/small-disk.ts";
import { eventually } from "../../testing/wait-for.ts";
import { cacheWorld, someBytes, type CacheWorld } from "../../testing/weights/cache-world.ts";
import { FakeFileServer } from "../../testing/weights/fake-file-server.ts";
import type { WeightsView } from "./weights-cache.ts";

const MB = 1_000_000;

const troubled = (world: CacheWorld, source: string, holder: string, why: RegExp): Promise<WeightsView> =>
  eventually(
    `${source} is in trouble`,
    () => world.view(source, { holder }),
    (view) => view.kind === "fetching" && why.test(view.why ?? ""),
    30_000,
  );
/** Nothing of a download is left, and nothing was ever given its name. */
const untilClean = (folder: string): Promise<readonly string[]> =>
  eventually(
    "nothing is left of the download",
    () => readdirSync(folder).filter((name) => !name.startsWith(".")),
    (names) => names.length === 0,
  );

if (canMount) {
  test("a disk that others fill in the middle of a download: its own files go, nobody else's, others go on, and it comes by itself when there is room [80.A15]", async () => {
    using disk = smallDisk("size=4m");
    assert.ok(disk !== null);
    await using server = await FakeFileServer.start();
    const [large, small] = [someBytes(3 * MB), someBytes(100_000, 2)];
    server.files.set("/large.gguf", { bytes: large, stalls: [1 * MB] });
    server.files.set("/small.gguf", { bytes: small });
    const cache = join(disk.folder, "cache");
    await using world = await cacheWorld({ folder: cache });
    const [first, second] = [`${server.origin}/large.gguf`, `${server.origin}/small.gguf`];
    world.view(first, { holder: "r1" });
    await eventually(
      "a part is there",
      () => world.view(first, { holder: "r1" }),
      (view) => view.kind === "fetching" && view.fetch?.bytes === 1 * MB,
    );
    writeFileSync(join(disk.folder, "others"), Buffer.alloc(2_900_000));
    server.release();
    await troubled(world, first, "r1", /no space/);
    await untilClean(cache);
    assert.equal((await world.fetched(second, { holder: "r2" })).kind, "present");
    assert.equal(world.view(first, { holder: "r1" }).kind, "fetching");
    rmSync(join(disk.folder, "others"));
    const view = await world.fetched(first, { holder: "r1" });
    assert.deepEqual(await readFile(view.kind === "present" ? view.path : ""), large);
  });

  test("a download that does not fit is not begun, nor a second that fits alone beside one that is under way [80.A15]", async () => {
    using disk = smallDisk("size=4m");
    assert.ok(disk !== null);
    await using server = await FakeFileServer.start();
    server.files.set("/huge.gguf", { bytes: someBytes(6 * MB) });
    server.files.set("/a.gguf", { bytes: someBytes(2_500_000, 2), stalls: [10_000] });
    server.files.set("/b.gguf", { bytes: someBytes(2_500_000, 3) });
    await using world = await cacheWorld({ folder: disk.folder, weights: { parallel: 3 } });
    const [huge, a, b] = ["huge", "a", "b"].map((name) => `${server.origin}/${name}.gguf`) as [string, string, string];
    await troubled(world, huge, "r0", /no space: 6\.0 MB are needed/);
    world.view(a, { holder: "r1" });
    await server.until("the first is under way", () => server.stalled === 1);
    await troubled(world, b, "r2", /no space: 2\.5 MB are needed, .* after 2\.5 MB that other downloads will take/);
    server.release();
    assert.equal((await world.fetched(a, { holder: "r1" })).kind, "present");
    assert.equal(world.view(b, { holder: "r2" }).kind, "fetching");
    world.cache.release("r1");
    assert.equal((await world.cache.collect([weightsName(a)]))[0]?.freedBytes, 2_500_000);
    assert.equal((await world.fetched(b, { holder: "r2" })).kind, "present");
  });

  test("a disk that takes no more files is told as full, and weights come when it does again [80.A15]", async () => {
    using disk = smallDisk("size=4m,nr_inodes=12");
    assert.ok(disk !== null);
    await using server = await FakeFileServer.start();
    server.files.set("/a.gguf", { bytes: someBytes(10_000) });
    const cache = join(disk.folder, "cache");
    await using world = await cacheWorld({ folder: cache });
    const others = join(disk.folder, "others");
    mkdirSync(others);
    let made = 0;
    try {
      for (; made < 100; made += 1) writeFileSync(join(others, String(made)), "");
    } catch {
      // The disk takes no more.
    }
    const source = `${server.origin}/a.gguf`;
    await troubled(world, source, "r1", /no space/);
    await untilClean(cache);
    rmSync(others, { recursive: true });
    assert.equal((await world.fetched(source)).kind, "present");
  });

  test("a disk that becomes read-only is told, takes no other download with it, and the download goes on when it can be written again [80.A15]", async () => {
    using disk = smallDisk("size=8m");
    assert.ok(disk !== null);
    await using server = await FakeFileServer.start();
    const bytes = someBytes(2 * MB);
    server.files.set("/a.gguf", { bytes });
    server.files.set("/there.gguf", { bytes: someBytes(5_000, 2) });
    await using world = await cacheWorld({ folder: disk.folder });
    const there = `${server.origin}/there.gguf`;
    await world.fetched(there, { holder: "r2" });
    disk.remount("ro");
    const source = `${server.origin}/a.gguf`;
    await troubled(world, source, "r1", /can't be written \(EROFS\)/);
    world.cache.release("r2");
    assert.equal((await world.fetched(there, { holder: "r3" })).kind, "present");
    disk.remount("rw");
    const view = await world.fetched(source, { holder: "r1" });
    assert.deepEqual(await readFile(view.kind === "present" ? view.path : ""), bytes);
  });
}

test("a cache that can't be made is the trouble of its downloads alone [80.A15]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: someBytes(10) });
  const folder = mkdtempSync(join(tmpdir(), "yardmaster-disk-"));
  writeFileSync(join(folder, "file"), "in the way");
  await using world = await cacheWorld({ folder: join(folder, "file/cache") });
  await troubled(world, `${server.origin}/a.gguf`, "r1", /ENOTDIR/);
  assert.deepEqual(world.cache.held, []);
  rmSync(join(folder, "file"));
  assert.equal((await world.fetched(`${server.origin}/a.gguf`)).kind, "present");
  rmSync(folder, { recursive: true });
});
