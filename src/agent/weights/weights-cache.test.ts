import assert from "node:assert/strict";
import { mkdir, readFile, rename, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { test } from "node:test";
import { weightsName } from "../../contract/resolve-catalog.ts";
import { aSelfSignedCertificate } from "../../testing/self-signed-certificate.ts";
import { eventually } from "../../testing/wait-for.ts";
import { cacheWorld, sha256Of, someBytes, type CacheWorld } from "../../testing/weights/cache-world.ts";
import { FakeFileServer } from "../../testing/weights/fake-file-server.ts";
import type { WeightsView } from "./weights-cache.ts";

const BYTES = someBytes(300_000);

const pathOf = (view: WeightsView): string => {
  assert.equal(view.kind, "present", JSON.stringify(view));
  return view.kind === "present" ? view.path : "";
};
const whyNot = (view: WeightsView): string => {
  assert.equal(view.kind, "missing", JSON.stringify(view));
  return view.kind === "missing" ? view.why : "";
};

/** Waits until so many bytes have come. */
const untilFetched = (
  world: CacheWorld,
  source: string,
  bytes: number,
  sha256: string | null = null,
): Promise<WeightsView> =>
  eventually(
    `${bytes} bytes`,
    () => world.view(source, { sha256 }),
    (view) => view.kind === "fetching" && view.fetch?.bytes === bytes,
  );

test("a file is fetched under a name that is a hash of its source, and is given out only whole [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/m/model.gguf", { bytes: BYTES, stalls: [100_000] });
  await using world = await cacheWorld();
  const source = `${server.origin}/m/model.gguf`;
  assert.equal(world.view(source).kind, "fetching");
  await server.until("a part was sent", () => server.stalled === 1);
  const told = await untilFetched(world, source, 100_000);
  assert.deepEqual(told.kind === "fetching" && [told.fetch?.totalBytes, told.why], [300_000, null]);
  assert.deepEqual(world.cache.held, []);
  assert.ok((await world.names()).every((name) => name.endsWith(".part")));
  server.release();
  const path = pathOf(await world.fetched(source));
  assert.equal(path, join(world.folder, weightsName(source), "model.gguf"));
  assert.deepEqual(await readFile(path), BYTES);
  assert.deepEqual(await world.names(), [weightsName(source)]);
  assert.deepEqual(world.cache.held, [{ name: weightsName(source), bytes: 300_000, inUse: true }]);
});

test("a download that breaks off goes on where it was, by If-Range, and is right to the last byte [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES, stalls: [120_000, 80_000], statuses: [503] });
  await using world = await cacheWorld();
  const [source, sha256] = [`${server.origin}/a.gguf`, sha256Of(BYTES)];
  for (const there of [120_000, 200_000]) {
    await untilFetched(world, source, there, sha256);
    server.breakOff();
  }
  assert.deepEqual(await readFile(pathOf(await world.fetched(source, { sha256 }))), BYTES);
  assert.deepEqual(
    server.ledger.map(({ headers }) => [headers.range, headers["if-range"]]),
    [
      [undefined, undefined],
      [undefined, undefined],
      ["bytes=120000-", '"v1"'],
      ["bytes=200000-", '"v1"'],
    ],
  );
});

const awkward: readonly {
  readonly name: string;
  readonly file: object;
  readonly then?: (server: FakeFileServer) => void;
  readonly sha256?: string;
  readonly expect: RegExp | "whole";
}[] = [
  { name: "knows no ranges", file: { ignoresRange: true, breaks: [50_000] }, expect: "whole" },
  { name: "claims another part", file: { wrongRange: true, breaks: [50_000] }, expect: "whole" },
  { name: "tells no part", file: { range: "", breaks: [50_000] }, expect: "whole" },
  { name: "tells no length with a part", file: { range: "bytes 50000-299999/*", breaks: [50_000] }, expect: "whole" },
  { name: "tells no tag", file: { etag: null, breaks: [50_000] }, expect: "whole" },
  { name: "tells a weak tag", file: { etag: 'W/"v1"', breaks: [50_000] }, expect: "whole" },
  { name: "tells no length", file: { noLength: true }, expect: /does not tell how long/ },
  {
    name: "tells no length, of a file whose digest is known",
    file: { noLength: true },
    sha256: sha256Of(BYTES),
    expect: "whole",
  },
  {
    name: "has another content than the catalog wants",
    file: {},
    sha256: "0".repeat(64),
    expect: /sha256 is .*, not 0{64}, 2 times/,
  },
  { name: "packs the file", file: { headers: { "content-encoding": "gzip" } }, expect: /as gzip/ },
  { name: "is busy", file: { statuses: [503, 429] }, expect: "whole" },
  { name: "locks it", file: { needs: "Bearer other" }, expect: /credential/ },
];
for (const { name, file, sha256 = null, expect } of awkward) {
  test(`a server that ${name}: ${expect === "whole" ? "the file is whole" : "it is refused in words"} [40.W1]`, async () => {
    await using server = await FakeFileServer.start();
    server.files.set("/a.gguf", { bytes: BYTES, ...file });
    await using world = await cacheWorld();
    const view = await world.fetched(`${server.origin}/a.gguf`, { sha256 });
    if (expect === "whole") assert.deepEqual(await readFile(pathOf(view)), BYTES);
    else {
      assert.match(whyNot(view), expect);
      assert.deepEqual(world.cache.held, []);
    }
  });
}

type ServedFile = Parameters<FakeFileServer["files"]["set"]>[1];

/** What is there in the end where a file becomes another one when a part of it was sent. */
async function fetchedThrough(first: ServedFile, second: ServedFile): Promise<Buffer> {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { ...first, breaks: [90_000] });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  world.view(source);
  await server.until(
    "the first answer broke off",
    () => server.ledger.length === 1 && server.files.get("/a.gguf")?.breaks?.length === 0,
  );
  server.files.set("/a.gguf", second);
  return readFile(pathOf(await world.fetched(source)));
}

test("a file that changes while it is fetched is fetched anew, never mixed [40.W1]", async () => {
  const [first, second] = [someBytes(200_000, 5), someBytes(250_000, 6)];
  assert.deepEqual(await fetchedThrough({ bytes: first, etag: '"one"' }, { bytes: second, etag: '"two"' }), second);
});

test("a file that grows or shrinks under the tag that it had is fetched anew, never mixed [40.W1]", async () => {
  for (const size of [150_000, 90_000, 250_000]) {
    const [first, second] = [someBytes(200_000, 5), someBytes(size, 6)];
    assert.deepEqual(await fetchedThrough({ bytes: first }, { bytes: second }), second, `${size} bytes`);
  }
});

test("a server that sends more than the part that it tells: nothing of it is used, and the file is fetched anew [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES, stalls: [50_000] });
  let tooMuch = 1;
  server.handlers.push(({ headers: { range } }, _url, response) => {
    if (range !== "bytes=50000-" || tooMuch === 0) return false;
    tooMuch -= 1;
    const told = { etag: '"v1"', "content-range": `bytes 50000-149999/${BYTES.length}` };
    response.writeHead(206, told).end(Buffer.concat([BYTES.subarray(50_000, 150_000), someBytes(50_000, 9)]));
    return true;
  });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  await untilFetched(world, source, 50_000);
  server.breakOff();
  assert.deepEqual(await readFile(pathOf(await world.fetched(source))), BYTES);
  assert.deepEqual(
    [tooMuch, server.ledger.map(({ headers }) => headers.range)],
    [0, [undefined, "bytes=50000-", undefined]],
  );
});

test("two replicas that want one source cause one download, and both get it [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES, stalls: [10] });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  for (const holder of ["r1", "r2", "r3"]) assert.equal(world.view(source, { holder }).kind, "fetching");
  await server.until("a part was sent", () => server.stalled === 1);
  world.cache.release("r1");
  server.release();
  const path = pathOf(await world.fetched(source, { holder: "r2" }));
  assert.equal(pathOf(await world.fetched(source, { holder: "r3" })), path);
  assert.equal(server.ledger.length, 1);
});

test("a download that nobody wants any more ends, and goes on where it was when it is wanted again [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES, stalls: [150_000] });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  world.view(source);
  await untilFetched(world, source, 150_000);
  world.cache.release("r1");
  await server.until("the connection is closed", () => server.serving === 0);
  assert.deepEqual(await readFile(pathOf(await world.fetched(source))), BYTES);
  assert.equal(server.ledger[1]?.headers.range, "bytes=150000-");
});

test("an agent that starts again goes on with a download; after another start of the machine only with what was seen on the disk [40.W1]", async () => {
  for (const [bootId, range] of [
    ["boot-1", "bytes=150000-"],
    ["boot-2", undefined],
  ]) {
    await using server = await FakeFileServer.start();
    server.files.set("/a.gguf", { bytes: BYTES, stalls: [150_000] });
    await using world = await cacheWorld();
    const source = `${server.origin}/a.gguf`;
    world.view(source);
    await untilFetched(world, source, 150_000);
    await world.reopen({ bootId: bootId ?? "" });
    assert.deepEqual(await readFile(pathOf(await world.fetched(source))), BYTES);
    assert.equal(server.ledger[1]?.headers.range, range);
  }
});

test("no more models and files are fetched at once than configured, and those that wait say so [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  const sources = [1, 2, 3, 4].map((seed) => {
    server.files.set(`/${seed}.gguf`, { bytes: someBytes(1_000, seed), stalls: [10] });
    return `${server.origin}/${seed}.gguf`;
  });
  await using world = await cacheWorld({ weights: { parallel: 2 } });
  const ask = (): WeightsView[] => sources.map((source, at) => world.view(source, { holder: `r${at}` }));
  ask();
  await server.until("two are under way", () => server.stalled === 2);
  assert.deepEqual(
    ask().map((view) => view.kind === "fetching" && view.isQueued),
    [false, false, true, true],
  );
  server.release();
  await server.until("the others are", () => server.stalled === 2);
  server.release();
  for (const [at, source] of sources.entries()) pathOf(await world.fetched(source, { holder: `r${at}` }));
  assert.equal(server.mostAtOnce, 2);
});

const damages: readonly {
  readonly name: string;
  readonly hurt: (path: string) => Promise<void>;
  readonly refetched: boolean;
}[] = [
  { name: "is shorter", hurt: (path) => truncate(path, 100_000), refetched: true },
  {
    name: "has the right length and a tail of zeros",
    hurt: async (path) => {
      await truncate(path, 100_000);
      await truncate(path, BYTES.length);
    },
    refetched: true,
  },
  {
    name: "has one flipped bit",
    hurt: async (path) => {
      const bytes = await readFile(path);
      bytes[1_000] = (bytes[1_000] ?? 0) ^ 1;
      await writeFile(path, bytes);
    },
    refetched: true,
  },
  { name: "is gone", hurt: (path) => rename(path, `${path}.away`), refetched: true },
  { name: "was only touched", hurt: (path) => utimes(path, 1, 1), refetched: false },
];
for (const { name, hurt, refetched } of damages) {
  test(`a kept file that ${name} is ${refetched ? "fetched anew" : "read again, and used"} before an engine gets it [40.W1]`, async () => {
    await using server = await FakeFileServer.start();
    server.files.set("/a.gguf", { bytes: BYTES });
    await using world = await cacheWorld();
    const source = `${server.origin}/a.gguf`;
    await hurt(pathOf(await world.fetched(source)));
    await world.reopen();
    assert.deepEqual(await readFile(pathOf(await world.fetched(source))), BYTES);
    assert.equal(server.ledger.length, refetched ? 2 : 1);
  });
}

test("what a person has put where weights would go is neither used nor overwritten [40.W2]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  const place = join(world.folder, weightsName(source));
  await mkdir(place);
  await writeFile(join(place, "a.gguf"), "mine");
  assert.match(whyNot(await world.fetched(source)), /not put there by this node: move it away/);
  assert.equal(await readFile(join(place, "a.gguf"), "utf8"), "mine");
  assert.equal(server.ledger.length, 0);
});

test("an agent that ends between a record and its rename finishes it, and forgets what has vanished [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES });
  await using world = await cacheWorld();
  const source = `${server.origin}/a.gguf`;
  const path = pathOf(await world.fetched(source));
  const name = weightsName(source);
  const record = join(world.folder, "../state", `${name}.json`);
  const { nonce } = JSON.parse(await readFile(record, "utf8")) as { nonce: string };
  await rename(join(world.folder, name), join(world.folder, `${name}.${nonce}.part`));
  await world.reopen();
  assert.equal(pathOf(await world.fetched(source)), path);
  assert.equal(server.ledger.length, 1);
  await rename(join(world.folder, name), join(world.folder, "away"));
  await world.reopen();
  assert.deepEqual(world.cache.held, []);
});

async function redirected(over: {
  readonly to: (other: FakeFileServer) => string;
  readonly listed: boolean;
  readonly world?: Parameters<typeof cacheWorld>[0];
}): Promise<{
  readonly view: WeightsView;
  readonly first: FakeFileServer;
  readonly other: FakeFileServer;
  readonly world: CacheWorld;
}> {
  const [first, other] = [await FakeFileServer.start(), await FakeFileServer.start()];
  other.files.set("/x", { bytes: BYTES });
  first.files.set("/a.gguf", { bytes: BYTES, redirect: over.to(other), needs: "Bearer CANARY-token" });
  const world = await cacheWorld({
    weights: {
      token_envs: { "127.0.0.1": "TOKEN" },
      redirect_to: over.listed ? [`127.0.0.1:${other.port}`] : [],
    },
    ports: { env: { TOKEN: "CANARY-token" } },
  });
  return { view: await world.fetched(`${first.origin}/a.gguf?signature=CANARY-query`), first, other, world };
}

test("a redirect to a listed server is followed without the credential, and no log holds a secret [40.W1]", async () => {
  const { view, first, other, world } = await redirected({ to: ({ origin }) => `${origin}/x`, listed: true });
  await using _held = world;
  await using _first = first;
  await using _other = other;
  assert.deepEqual(await readFile(pathOf(view)), BYTES);
  assert.equal(first.ledger[0]?.headers.authorization, "Bearer CANARY-token");
  assert.equal(other.ledger[0]?.headers.authorization, undefined);
  assert.doesNotMatch(world.log(), /CANARY/);
});

test("a redirect into the house that nobody listed reaches nobody, by address or by name [40.W1]", async () => {
  for (const host of ["127.0.0.1", "localhost"]) {
    const { view, first, other, world } = await redirected({
      to: ({ port }) => `http://${host}:${port}/x`,
      listed: false,
    });
    await using _held = world;
    await using _first = first;
    await using _other = other;
    assert.match(whyNot(view), /redirects to (?:an address that is not public|another server in plain text)/);
    assert.equal(other.ledger.length, 0);
  }
});

test("a name that a redirect leads to is judged in the look-up that the connection uses [40.W1]", async () => {
  const tls = aSelfSignedCertificate("localhost");
  await using first = await FakeFileServer.start(tls);
  await using other = await FakeFileServer.start(tls);
  first.files.set("/a.gguf", { bytes: BYTES, redirect: `https://public.example:${other.port}/x` });
  let asked = 0;
  await using world = await cacheWorld({
    ports: {
      ca: tls.cert,
      resolve: (_host, done) => {
        asked += 1;
        done(null, ["127.0.0.1"]);
      },
    },
  });
  const view = world.view(`https://localhost:${first.port}/a.gguf`);
  assert.equal(view.kind, "fetching");
  const stuck = await eventually(
    "the trouble is told",
    () => world.view(`https://localhost:${first.port}/a.gguf`),
    (seen) => seen.kind === "fetching" && seen.why !== null,
  );
  assert.match(stuck.kind === "fetching" ? (stuck.why ?? "") : "", /not public/);
  assert.ok(asked > 0);
  assert.equal(other.ledger.length, 0);
});

test("a server whose certificate is not known is not believed [40.W1]", async () => {
  await using server = await FakeFileServer.start(aSelfSignedCertificate("localhost"));
  server.files.set("/a.gguf", { bytes: BYTES });
  await using world = await cacheWorld();
  const source = `https://localhost:${server.port}/a.gguf`;
  world.view(source);
  await eventually(
    "the trouble is told",
    () => world.view(source),
    (seen) => seen.kind === "fetching" && /certificate/.test(seen.why ?? ""),
  );
  assert.equal(server.ledger.length, 0);
});

test("a kept file has the content that the server had, and a fixed name for each source", async () => {
  await using server = await FakeFileServer.start();
  server.files.set("/a.gguf", { bytes: BYTES });
  await using world = await cacheWorld();
  const path = pathOf(await world.fetched(`${server.origin}/a.gguf`));
  assert.equal(basename(path), "a.gguf");
  assert.equal((await stat(path)).size, BYTES.length);
});
