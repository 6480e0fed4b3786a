import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { appendFile, link, mkdir, readFile, rename, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { weightsName } from "../../contract/resolve-catalog.ts";
import type { RemovedWeights } from "../../contract/fleet.ts";
import { type CacheWorld, cacheWorld, someBytes } from "../../testing/weights/cache-world.ts";
import { FakeFileServer } from "../../testing/weights/fake-file-server.ts";

// Weights that somebody has changed: they are set aside, and the node may be asked to remove what of it is its own.

const BYTES = someBytes(20_000);

interface Damaged extends AsyncDisposable {
  readonly world: CacheWorld;
  readonly name: string;
  readonly path: string;
  /** What was set aside, in the cache; undefined: nothing was. */
  aside(): string | undefined;
  collect(): Promise<RemovedWeights | undefined>;
}

/** Fetched once, hurt, and fetched anew by an agent that has started again. */
async function damaged(hurt: (file: string, folder: string) => Promise<void>): Promise<Damaged> {
  const server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES });
  const world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  const first = await world.fetched(source);
  assert.equal(first.kind, "present");
  const name = weightsName(source);
  await hurt(join(world.folder, name, "a.gguf"), join(world.folder, name));
  await world.reopen();
  const path = join(world.folder, name, "a.gguf");
  await world.fetched(source);
  assert.deepEqual(await readFile(path), BYTES, "an engine is given what the server has");
  const aside = (): string | undefined => readdirSync(world.folder).find((entry) => entry.endsWith(".damaged"));
  return {
    world,
    name,
    path,
    aside,
    collect: async () => (await world.cache.collect([aside() ?? "none"]))[0],
    [Symbol.asyncDispose]: async () => {
      await world[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}
const told = async ({ world }: Damaged): Promise<unknown[]> =>
  (await world.cache.leftovers()).map(({ name, bytes, kind, damaged: isDamaged }) => [
    name.slice(64),
    bytes,
    isDamaged === true ? "damaged" : kind,
  ]);

test("a file of the node's own that was written to is set aside, told as damaged with its size, and goes when an operator asks, by an agent that has started again too [40.W2 40.W3]", async () => {
  for (const hurt of [
    (file: string) => truncate(file, 7_000),
    (file: string) => appendFile(file, "more"),
    (file: string) => writeFile(file, someBytes(20_000, 2)),
  ])
    for (const again of [false, true]) {
      await using hurtOnce = await damaged(hurt);
      const { world, name, aside } = hurtOnce;
      if (again) await world.reopen();
      const bytes = readFileSync(join(world.folder, aside()!, "a.gguf")).length;
      assert.match(aside()!, new RegExp(`^${name}\\.[0-9a-f]{16}\\.damaged$`));
      assert.deepEqual(await told(hurtOnce), [[aside()!.slice(64), bytes, "damaged"]]);
      const result = await hurtOnce.collect();
      assert.deepEqual([result?.outcome, result?.freedBytes, result?.why], ["removed", bytes, null]);
      assert.equal(aside(), undefined);
      assert.deepEqual(await told(hurtOnce), []);
      assert.deepEqual(await readFile(hurtOnce.path), BYTES, "the good ones stay");
    }
});

const foreign: readonly { readonly name: string; readonly hurt: (file: string, folder: string) => Promise<void> }[] = [
  {
    name: "was put in the place of one of the node's",
    hurt: async (file) => {
      await rename(file, `${file}.away`);
      await writeFile(file, "put here by a person");
      await rm(`${file}.away`);
    },
  },
  {
    name: "was made anew under a name of the node's",
    hurt: async (file) => {
      await rm(file);
      await writeFile(file, "copied by a person");
    },
  },
  {
    name: "is a link to a person's",
    hurt: async (file, folder) => {
      await writeFile(join(folder, "../../mine"), "a person's own");
      await rm(file);
      await symlink(join(folder, "../../mine"), file);
    },
  },
  {
    name: "is another name of a person's",
    hurt: async (file, folder) => {
      await writeFile(join(folder, "../../mine"), "a person's own");
      await rm(file);
      await link(join(folder, "../../mine"), file);
    },
  },
];
for (const { name, hurt } of foreign)
  test(`a file that ${name} is nobody's but theirs: it is set aside, told as foreign, and no request removes it [40.W2 40.W3 80.A16]`, async () => {
    await using hurtOnce = await damaged(hurt);
    const { world, aside } = hurtOnce;
    const before = readFileSync(join(world.folder, aside()!, "a.gguf"), "utf8");
    assert.deepEqual(await told(hurtOnce), [[aside()!.slice(64), null, "foreign"]]);
    const result = await hurtOnce.collect();
    assert.deepEqual([result?.outcome, result?.freedBytes], ["refused", 0]);
    assert.equal(readFileSync(join(world.folder, aside()!, "a.gguf"), "utf8"), before);
  });

test("a person's file beside a damaged one stays, with the folders above it; the rest goes [40.W3 80.A16]", async () => {
  await using hurtOnce = await damaged(async (file, folder) => {
    await truncate(file, 7_000);
    await mkdir(join(folder, "mine"));
    await writeFile(join(folder, "mine/notes.txt"), "notes");
  });
  const { world, aside } = hurtOnce;
  const folder = join(world.folder, aside()!);
  const result = await hurtOnce.collect();
  assert.deepEqual([result?.outcome, result?.freedBytes], ["kept", 7_000]);
  assert.match(result?.why ?? "", /holds 1 that this node did not put there/);
  assert.deepEqual(readdirSync(folder, { recursive: true }).toSorted(), ["mine", "mine/notes.txt"]);
  assert.deepEqual(await told(hurtOnce), [[aside()!.slice(64), null, "foreign"]], "what is left is a person's");
  assert.equal((await hurtOnce.collect())?.outcome, "refused");
});

const second: readonly { readonly name: string; readonly act: (file: string, folder: string) => Promise<void> }[] = [
  { name: "written to again", act: (file) => appendFile(file, "saved by a person") },
  {
    name: "another file by now",
    act: async (file) => {
      await rm(file);
      await writeFile(file, "saved by a person");
    },
  },
  {
    name: "in a folder that is another one by now",
    act: async (file, folder) => {
      await rename(folder, `${folder}.away`);
      await mkdir(folder);
      await writeFile(file, "saved by a person");
      await rm(`${folder}.away`, { recursive: true });
    },
  },
];
for (const { name, act } of second)
  test(`the node looks again before it removes what was set aside: what is ${name} stays [40.W3 80.A16]`, async () => {
    await using hurtOnce = await damaged((file) => truncate(file, 7_000));
    const { world, aside } = hurtOnce;
    const folder = join(world.folder, aside()!);
    await act(join(folder, "a.gguf"), folder);
    const before = readFileSync(join(folder, "a.gguf"));
    const result = await hurtOnce.collect();
    assert.deepEqual([result?.outcome, result?.freedBytes], ["kept", 0]);
    assert.deepEqual(readFileSync(join(folder, "a.gguf")), before);
  });

test("weights are looked at again for each replica that starts with them, though another one of the node has held them since they were fetched [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  const path = join(world.folder, weightsName(source), "a.gguf");
  assert.equal((await world.fetched(source, { holder: "r1" })).kind, "present");
  await writeFile(path, someBytes(20_000, 2));
  assert.equal((await world.fetched(source, { holder: "r2" })).kind, "present");
  assert.deepEqual(await readFile(path), BYTES);
  assert.ok(readdirSync(world.folder).some((entry) => entry.endsWith(".damaged")));
  for (const holder of ["r1", "r2", "r1"])
    assert.equal(world.view(source, { holder }).kind, "present", "who was told is told the same again");
  assert.equal(server.ledger.length, 2);
});

test("a replica that comes later is not told what an earlier one was told that still holds on to the source [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  assert.equal((await world.fetched(source, { holder: "r1" })).kind, "missing");
  server.files.set("/a.gguf", { bytes: BYTES });
  assert.equal((await world.fetched(source, { holder: "r2" })).kind, "present");
});

test("an agent that ended between the record of what it sets aside and its new name goes on as if nothing had been [40.W2]", async () => {
  await using hurtOnce = await damaged((file) => truncate(file, 7_000));
  const { world, aside } = hurtOnce;
  await rm(join(world.folder, aside()!), { recursive: true });
  await world.reopen();
  assert.deepEqual(await told(hurtOnce), []);
  assert.ok(existsSync(hurtOnce.path));
  const result = await world.cache.collect([`${"a".repeat(64)}.${"0".repeat(16)}.damaged`]);
  assert.deepEqual(
    [result[0]?.outcome, result[0]?.why],
    ["refused", "this node has put nothing of that name into its cache"],
  );
});
