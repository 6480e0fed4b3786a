import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { link, mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { weightsName } from "../../contract/resolve-catalog.ts";
import { seededRandom } from "../../kernel/random.ts";
import { cacheWorld, someBytes } from "../../testing/weights/cache-world.ts";
import { FakeFileServer } from "../../testing/weights/fake-file-server.ts";

const BYTES = someBytes(20_000);

test("what nobody holds is removed with its record and as many bytes as it had; what is in use, being fetched or unknown is refused [40.W3 80.A16]", async () => {
  await using server = await FakeFileServer.start();
  for (const [path, stalls] of [
    ["/old.gguf", []],
    ["/used.gguf", []],
    ["/coming.gguf", [100]],
  ] as const)
    server.files.set(path, { bytes: BYTES, stalls: [...stalls] });
  await using world = await cacheWorld();
  const [old, used, coming] = ["old", "used", "coming"].map((name) => `${server.origin}/${name}.gguf`) as [
    string,
    string,
    string,
  ];
  for (const source of [old, used]) await world.fetched(source, { holder: source });
  world.view(coming, { holder: coming });
  await server.until("a part was sent", () => server.stalled === 1);
  world.cache.release(old);
  const names = [old, used, coming].map((source) => weightsName(source));
  const results = await world.cache.collect([...names, "f".repeat(64)]);
  assert.deepEqual(
    results.map(({ outcome, freedBytes, why }) => [outcome, freedBytes, why?.replace(/http\S+/, "a replica")]),
    [
      ["removed", 20_000, undefined],
      ["refused", 0, "in use by a replica"],
      ["refused", 0, "in use by a replica"],
      ["refused", 0, "this node has put nothing of that name into its cache"],
    ],
  );
  assert.deepEqual(
    world.cache.held.map(({ name }) => name),
    [weightsName(used)],
  );
  assert.ok(!existsSync(join(world.folder, weightsName(old))));
  server.release();
  await world.fetched(coming, { holder: coming });
  assert.equal((await world.fetched(old)).kind, "present");
});

test("a download that nobody wants any more is removed like what is whole; files of a person beside stay, and are told [40.W2 40.W3]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES, stalls: [5_000] });
  server.files.set("/b.gguf", { bytes: BYTES });
  await using world = await cacheWorld();
  const [partial, whole] = [`${server.origin}/a.gguf`, `${server.origin}/b.gguf`];
  world.view(partial);
  await server.until("a part was sent", () => server.stalled === 1);
  world.cache.release("r1");
  await server.until("the connection is closed", () => server.serving === 0);
  await world.fetched(whole, { holder: "r2" });
  world.cache.release("r2");
  await writeFile(join(world.folder, "mine.gguf"), "mine");
  await mkdir(join(world.folder, "my-model"));
  await writeFile(join(world.folder, weightsName(whole), "notes.txt"), "mine too");
  assert.deepEqual(
    (await world.cache.leftovers()).map(({ name, kind }) => [name, kind]).toSorted(),
    [
      ["mine.gguf", "foreign"],
      ["my-model", "foreign"],
      [weightsName(partial), "partial"],
    ].toSorted(),
  );
  const results = await world.cache.collect([partial, whole].map((source) => weightsName(source)));
  assert.deepEqual(
    results.map(({ outcome }) => outcome),
    ["removed", "kept"],
  );
  assert.match(results[1]?.why ?? "", /holds 1 that this node did not put there/);
  assert.equal(readFileSync(join(world.folder, weightsName(whole), "notes.txt"), "utf8"), "mine too");
  assert.deepEqual((await world.names()).toSorted(), ["mine.gguf", "my-model", weightsName(whole)].toSorted());
});

test("a control plane that asks for anything but the node's own names is refused 1 000 times, and nothing goes [80.A16 40.W3 80.D24]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  await world.fetched(source, { holder: "r1" });
  const own = weightsName(source);
  const [foreign, linked, hard] = ["1", "2", "3"].map((digit) => digit.repeat(64)) as [string, string, string];
  const user = join(world.folder, "../user");
  await mkdir(user);
  await writeFile(join(user, "thesis.txt"), "thesis");
  await mkdir(join(world.folder, foreign));
  await writeFile(join(world.folder, foreign, "a.gguf"), "copied by a person");
  await symlink(user, join(world.folder, linked));
  await link(join(user, "thesis.txt"), join(world.folder, hard));
  const before = readdirSync(join(world.folder, ".."), { recursive: true }).toSorted();

  const leads = [
    "",
    "../",
    "../../",
    "/",
    "./",
    `${own}/../`,
    `${own}/`,
    "..\\",
    "%2e%2e/",
    "~/",
    `${world.folder}/`,
    "\u0000",
    " ",
    `${"../".repeat(20)}`,
  ];
  const ends = ["", "/", "/.", "/..", "/../user", "/a.gguf", ".part", "\u0000", " ", "\n", "*", ".json"];
  const middles = [
    "",
    "user",
    `${own}.${"0".repeat(16)}.damaged`,
    `${foreign}.${"0".repeat(16)}.damaged`,
    "../user",
    "..",
    ".",
    own.toUpperCase(),
    own.slice(1),
    `${own}0`,
    foreign,
    linked,
    hard,
    ".yardmaster-trash",
    "etc/passwd",
    "ａ".repeat(64),
    "x".repeat(256),
  ];
  const variants = new Set<string>([own]);
  const random = seededRandom(7);
  const any = (from: readonly string[]): string => from[Math.floor(random.next() * from.length)] ?? "";
  while (variants.size < 1_000) variants.add(`${any(leads)}${any(middles)}${any(ends)}`.slice(0, 256));
  const results = await world.cache.collect([...variants]);
  assert.equal(results.length, 1_000);
  assert.deepEqual(
    results.filter(({ outcome, freedBytes }) => outcome !== "refused" || freedBytes > 0),
    [],
  );
  assert.deepEqual(readdirSync(join(world.folder, ".."), { recursive: true }).toSorted(), before);
  assert.equal(readFileSync(join(user, "thesis.txt"), "utf8"), "thesis");
  assert.deepEqual(world.cache.held, [{ name: own, bytes: 20_000, inUse: true }]);
});
