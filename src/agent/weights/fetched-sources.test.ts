import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { weightsName } from "../../contract/resolve-catalog.ts";
import { cacheWorld, someBytes, type CacheWorld } from "../../testing/weights/cache-world.ts";
import { FakeFileServer } from "../../testing/weights/fake-file-server.ts";
import { serveHub, type FakeRepository } from "../../testing/weights/fake-hub.ts";
import { serveS3 } from "../../testing/weights/fake-s3.ts";

const COMMIT = "4f".repeat(20);
const FILES = {
  "config.json": Buffer.from('{"model_type":"x"}'),
  "sub dir/notes+more.txt": Buffer.from("notes"),
  "model-00001-of-00002.safetensors": someBytes(200_000, 2),
  "model-00002-of-00002.safetensors": someBytes(150_000, 3),
};
const hub = (over: Partial<FakeRepository> = {}): FakeRepository => ({
  repo: "org/model",
  revision: "main",
  commit: COMMIT,
  files: FILES,
  large: /\.safetensors$/,
  token: "CANARY-hub-token",
  ...over,
});

interface HubWorld extends AsyncDisposable {
  readonly server: FakeFileServer;
  readonly cdn: FakeFileServer;
  readonly world: CacheWorld;
}
async function hubWorld(): Promise<HubWorld> {
  const [server, cdn] = [await FakeFileServer.start(), await FakeFileServer.start()];
  const world = await cacheWorld({
    weights: { hub: { endpoint: server.origin }, redirect_to: [`127.0.0.1:${cdn.port}`] },
    ports: { env: { HF_TOKEN: "CANARY-hub-token" } },
  });
  return {
    server,
    cdn,
    world,
    [Symbol.asyncDispose]: async () => {
      for (const part of [world, server, cdn]) await part[Symbol.asyncDispose]();
    },
  };
}

test("a hub's repository is fetched at the commit of its revision, in the hub's own layout, with the token for the hub alone [40.W1]", async () => {
  await using made = await hubWorld();
  const { server, cdn, world } = made;
  serveHub(server, hub({ cdn }));
  const view = await world.fetched("hf://org/model");
  const root = join(world.folder, weightsName("hf://org/model"), "models--org--model");
  assert.deepEqual(view, { kind: "present", path: join(root, "snapshots", COMMIT) });
  for (const [path, bytes] of Object.entries(FILES))
    assert.deepEqual(await readFile(join(root, "snapshots", COMMIT, path)), bytes);
  assert.equal(await readFile(join(root, "refs/main"), "utf8"), COMMIT);
  assert.ok(server.ledger.every(({ headers }) => headers.authorization === "Bearer CANARY-hub-token"));
  assert.deepEqual(
    [cdn.ledger.length, cdn.ledger.map(({ headers }) => headers.authorization)],
    [2, [undefined, undefined]],
  );
  assert.doesNotMatch(world.log(), /CANARY/);
  await world.reopen();
  assert.deepEqual(await world.fetched("hf://org/model"), view);
  assert.equal(server.askedFor("/api/models/org/model/revision/main").length, 1);
});

test("pickle is fetched for a model that may have it alone: beside safetensors it is left out, without them the start fails and says why [80.C43]", async () => {
  await using made = await hubWorld();
  const { server, world } = made;
  const old = { "config.json": Buffer.from("{}"), "pytorch_model.bin": someBytes(9_000, 5) };
  serveHub(server, hub({ files: { ...FILES, ...old } }));
  serveHub(server, hub({ repo: "org/old", commit: "5a".repeat(20), files: old }));
  const safe = await world.fetched("hf://org/model");
  assert.ok(safe.kind === "present");
  assert.ok(!(await readdir(safe.path)).includes("pytorch_model.bin"));
  const refused = await world.fetched("hf://org/old");
  assert.match(refused.kind === "missing" ? refused.why : "", /pytorch_model\.bin.*runs code.*allow_pickle/);
  const allowed = await world.fetched("hf://org/old", { holder: "r2", allowPickle: true });
  assert.ok(allowed.kind === "present");
  assert.deepEqual((await readdir(allowed.path)).toSorted(), ["config.json", "pytorch_model.bin"]);
  // What the other model was given is not there for one that may not have it.
  assert.equal((await world.fetched("hf://org/old", { holder: "r3" })).kind, "missing");
});

test("one file of a repository is fetched alone, and is what the engine gets", async () => {
  await using made = await hubWorld();
  const { server, cdn, world } = made;
  serveHub(server, hub({ cdn, revision: COMMIT, files: { ...FILES, "gguf/model-q4.gguf": someBytes(10_000, 4) } }));
  const source = `hf://org/model@${COMMIT}/gguf/model-q4.gguf`;
  const view = await world.fetched(source);
  const snapshot = join(world.folder, weightsName(source), "models--org--model/snapshots", COMMIT);
  assert.deepEqual(view, { kind: "present", path: join(snapshot, "gguf/model-q4.gguf") });
  assert.deepEqual(await readdir(snapshot), ["gguf"]);
});

test("shards of a repository whose digest is wrong, or that hold another revision's bytes under the same name, reach no engine [40.W1]", async () => {
  await using made = await hubWorld();
  const { server, cdn, world } = made;
  const places = serveHub(server, hub({ cdn }));
  const shard = places.get("model-00002-of-00002.safetensors");
  assert.ok(shard !== undefined);
  shard.bytes = someBytes(150_000, 9);
  const view = await world.fetched("hf://org/model");
  assert.match(view.kind === "missing" ? view.why : "", /sha256 is/);
  assert.deepEqual(world.cache.held, []);
});

test("a revision that moves on while it is fetched is fetched as a whole at its new commit [40.W1]", async () => {
  await using made = await hubWorld();
  const { server, cdn, world } = made;
  const places = serveHub(server, hub({ cdn }));
  Object.assign(places.get("model-00001-of-00002.safetensors") ?? {}, { stalls: [50_000] });
  world.view("hf://org/model");
  await server.until("the listing was read", () => server.askedFor("/api/models/org/model/revision/main").length === 1);
  await cdn.until("the first shard is under way", () => cdn.stalled === 1);
  await world.reopen();
  const next = { ...FILES, "model-00001-of-00002.safetensors": someBytes(200_000, 7) };
  serveHub(server, hub({ cdn, commit: "ab".repeat(20), files: next }));
  const view = await world.fetched("hf://org/model");
  assert.equal(view.kind, "present");
  const path = view.kind === "present" ? view.path : "";
  assert.match(path, /snapshots\/(?:ab){20}$/);
  for (const [name, bytes] of Object.entries(next)) assert.deepEqual(await readFile(join(path, name)), bytes);
  assert.deepEqual(await readdir(join(path, "..")), ["ab".repeat(20)]);
});

for (const [name, status, why] of [
  ["is not let in", 401, /answered 401 for the list/],
  ["names a revision that is not there", 404, /answered 404 for the list/],
] as const) {
  test(`a repository to which this node ${name} is a start that failed, in words`, async () => {
    await using made = await hubWorld();
    const { server, cdn, world } = made;
    serveHub(server, hub({ cdn }));
    server.files.set("/api/models/org/model/revision/main", { bytes: Buffer.alloc(0), statuses: [status] });
    const view = await world.fetched("hf://org/model");
    assert.match(view.kind === "missing" ? view.why : "", why);
  });
}

const BUCKET = { bucket: "weights-1", region: "eu-test-1", keyId: "AKIDTEST", secret: "CANARY/secret+key" };
const s3Env = { AWS_ACCESS_KEY_ID: BUCKET.keyId, AWS_SECRET_ACCESS_KEY: BUCKET.secret };

test("objects of a bucket are fetched with signatures that the server finds right, page by page, odd names included [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  const refusals = serveS3(server, { ...BUCKET, session: "CANARY-session", pageSize: 2 });
  const objects = {
    "config.json": someBytes(100),
    "a b+c(1)&d='~.gguf": someBytes(5_000, 2),
    "sub/ü.gguf": someBytes(6_000, 3),
    "z.gguf": someBytes(7_000, 4),
  };
  for (const [key, bytes] of Object.entries(objects)) server.files.set(`/weights-1/models/m/${key}`, { bytes });
  server.files.set("/weights-1/models/m/", { bytes: Buffer.alloc(0) });
  server.files.set("/weights-1/models/other/x", { bytes: someBytes(10) });
  await using world = await cacheWorld({
    weights: { s3: { endpoint: server.origin, region: BUCKET.region } },
    ports: { env: { ...s3Env, AWS_SESSION_TOKEN: "CANARY-session" } },
  });
  const view = await world.fetched("s3://weights-1/models/m/");
  assert.deepEqual(refusals, []);
  const folder = join(world.folder, weightsName("s3://weights-1/models/m/"));
  assert.deepEqual(view, { kind: "present", path: folder });
  for (const [key, bytes] of Object.entries(objects)) assert.deepEqual(await readFile(join(folder, key)), bytes);
  assert.equal(server.askedFor("/weights-1/").length, 3);
  assert.doesNotMatch(world.log(), /CANARY/);
});

test("one object is fetched by its key, goes on where it broke off, and a wrong secret is told [40.W1]", async () => {
  await using server = await FakeFileServer.start();
  const refusals = serveS3(server, BUCKET);
  const bytes = someBytes(50_000);
  server.files.set("/weights-1/m/q4.gguf", { bytes, breaks: [0] });
  const weights = { s3: { endpoint: server.origin, region: BUCKET.region } };
  await using world = await cacheWorld({ weights, ports: { env: s3Env } });
  const view = await world.fetched("s3://weights-1/m/q4.gguf");
  assert.deepEqual(await readFile(view.kind === "present" ? view.path : ""), bytes);
  assert.deepEqual(refusals, []);
  await using other = await cacheWorld({
    weights,
    ports: { env: { ...s3Env, AWS_SECRET_ACCESS_KEY: "CANARY-wrong" } },
  });
  const refused = await other.fetched("s3://weights-1/m/q4.gguf");
  assert.match(refused.kind === "missing" ? refused.why : "", /credential/);
  assert.deepEqual(refusals, ["SignatureDoesNotMatch"]);
  assert.doesNotMatch(other.log(), /CANARY/);
});
