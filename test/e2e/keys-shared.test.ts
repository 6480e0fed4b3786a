import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { cliCommands } from "../../src/cli/commands.ts";
import { dispatch } from "../../src/cli/dispatch.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { shareFile } from "./support/shared-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// Keys of several gateways that share a Redis: each gateway keeps its own, and `ctl` says and does what follows from that.

let server: OwnRedis;
let folder: string;
let gateways: readonly [TestGateway, TestGateway, TestGateway];
before(async () => {
  server = await OwnRedis.start();
  folder = await mkdtemp(join(tmpdir(), "yardmaster-keys-"));
  const start = (): Promise<TestGateway> => startTestGateway({ file: shareFile(server.url), upstreams: [] });
  gateways = [await start(), await start(), await start()];
  await eventually(
    "them to know of each other",
    async () => (await gateways[0].health()).coordination.gateways,
    (count) => count === 3,
  );
});
after(async () => {
  for (const gateway of gateways) await gateway.stop();
  await server[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function ctl(...words: readonly string[]): Promise<Ran> {
  const { io, output } = captureIo({ YARDMASTER_KEY: gateways[0].keys.admin });
  const code = await dispatch(["ctl", "key", ...words, "--data-dir", folder], cliCommands, "0", io);
  return { code, ...output() };
}
/** The status with which each gateway answers whoever shows the key. */
const statuses = (key: string): Promise<number[]> =>
  Promise.all(
    gateways.map(
      async ({ url }) => (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).status,
    ),
  );
const keyIn = ({ out }: Ran): string => /^ {4}(\S+)$/m.exec(out)?.[1] ?? "";

test("a key that one gateway made is told to hold there alone, with how many others there are and what to do about them [60.K1]", async () => {
  const made = await ctl("new", "--id", "alone", "--url", gateways[0].url);
  assert.equal(made.code, 0, made.err);
  assert.deepEqual(await statuses(keyIn(made)), [200, 401, 401]);
  assert.match(made.err, new RegExp(`^done at ${gateways[0].url}$`, "m"));
  assert.match(
    made.err,
    /2 more gateways share its Redis and know nothing of it: name each with --also, or put .*sha256:[0-9a-f]{64}/,
  );
});

test("with --also a key is made, rotated and revoked at several gateways in one go [60.K1]", async () => {
  const also = ["--url", gateways[0].url, "--also", gateways[1].url, "--also", gateways[2].url];
  const made = await ctl("new", "--id", "all", ...also);
  assert.equal(made.code, 0, made.err);
  assert.deepEqual(await statuses(keyIn(made)), [200, 200, 200]);
  assert.doesNotMatch(made.err, /share its Redis/);
  const rotated = await ctl("rotate", "all", ...also);
  assert.equal(rotated.code, 0, rotated.err);
  assert.deepEqual(await statuses(keyIn(made)), [401, 401, 401]);
  assert.deepEqual(await statuses(keyIn(rotated)), [200, 200, 200]);
  const gone = await ctl("revoke", "all", ...also, "--json");
  assert.deepEqual(
    (JSON.parse(gone.out) as { done_at: string[] }).done_at,
    gateways.map(({ url }) => url),
  );
  assert.deepEqual(await statuses(keyIn(rotated)), [401, 401, 401]);
});

test("a gateway that refuses is named, the key is shown all the same, and the command does not end with 0 [60.K1]", async () => {
  assert.equal((await ctl("new", "--id", "half", "--url", gateways[1].url)).code, 0);
  const made = await ctl("new", "--id", "half", "--url", gateways[0].url, "--also", gateways[1].url);
  assert.equal(made.code, 1);
  assert.deepEqual(await statuses(keyIn(made)), [200, 401, 401]);
  assert.match(made.err, new RegExp(`not done at ${gateways[1].url}: KEY_EXISTS: `));
  const before = await ctl("new", "--id", "none", "--url", gateways[0].url, "--also", "no address");
  assert.deepEqual([before.code, before.out], [2, ""]);
  assert.equal((await ctl("revoke", "none", "--url", gateways[0].url)).code, 1, "nothing was made");
});

test("a key is ended at every gateway that is named, also where the first one is away or has ended it before; one that is named twice counts once [60.K1]", async () => {
  const at = (...urls: readonly string[]): string[] => urls.flatMap((url, i) => [i === 0 ? "--url" : "--also", url]);
  const [first, second, third] = gateways.map(({ url }) => url) as [string, string, string];
  const away = "http://127.0.0.1:9";
  const made = await ctl("new", "--id", "leaked", ...at(first, second, third, second, first));
  assert.equal(made.code, 0, made.err);
  const some = await ctl("revoke", "leaked", ...at(first, second, second, away));
  assert.equal(some.code, 1);
  assert.match(some.err, new RegExp(`^not done at ${away}: UNREACHABLE: `, "m"));
  assert.match(some.err, /^1 more gateway shares its Redis/m);
  assert.deepEqual(await statuses(keyIn(made)), [401, 401, 200]);
  const again = await ctl("revoke", "leaked", ...at(first, second, third));
  assert.equal(again.code, 0, again.err);
  assert.match(again.err, new RegExp(`^done at ${third}\nnot known at ${first}\nnot known at ${second}\n$`));
  assert.deepEqual(await statuses(keyIn(made)), [401, 401, 401]);
  const over = await ctl("revoke", "leaked", ...at(first, third));
  assert.deepEqual([over.code, over.out], [1, ""]);
  const remade = await ctl("new", "--id", "leaked", ...at(third));
  const behind = await ctl("revoke", "leaked", ...at(away, third));
  assert.equal(behind.code, 1);
  assert.deepEqual(await statuses(keyIn(remade)), [401, 401, 401]);
});
