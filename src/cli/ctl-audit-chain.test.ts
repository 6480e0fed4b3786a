import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { ChainPage } from "../contract/audit-chain.ts";
import { ADDRESSES_FILE } from "../contract/local-addresses.ts";
import { linkEntry, NO_HASH, sealLine, type ChainEnd, type ChainMaker } from "../decide/audit/chain-lines.ts";
import { Secret } from "../kernel/secret.ts";
import { macOf, Signer } from "../kernel/signer.ts";
import { captureIo } from "../testing/capture-io.ts";
import { CTL_AUDIT_COMMANDS } from "./ctl-audit.ts";
import { dispatch } from "./dispatch.ts";

const SECRET = "CANARY-signing-0123456789abcdef0123456789abcdef";
const SIGNER = new Signer([new Secret(SECRET)]);
const [KEY] = SIGNER.keysFor("audit chain");
const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
const MAKER: ChainMaker = { keyId: KEY?.id ?? "", hash, mac: (text) => macOf(KEY?.hex ?? "", text) };

const folder = await mkdtemp(join(tmpdir(), "yardmaster-chain-"));
after(() => rm(folder, { recursive: true, force: true }));
await writeFile(join(folder, "signing.key"), `${SECRET}\n`);

function lines(count: number): { readonly entries: string[]; readonly end: ChainEnd } {
  let end: ChainEnd = { chain: "0123456789abcdef", seq: 0, hash: NO_HASH };
  const entries = Array.from({ length: count }, (_, index) => {
    const who = SIGNER.pseudonym(index % 2 === 0 ? "alice" : "bob");
    const entry = { time: 1, request: `r${index}`, who, act: "POST /x", upstream: null, status: 200, outcome: "ok" };
    const link = linkEntry({ ...entry, code: null, detail: null }, end, MAKER);
    end = link;
    return link.line;
  });
  return { entries, end };
}
const whole = (): string[] => {
  const { entries, end } = lines(6);
  return [...entries, sealLine(1, end, 5, MAKER)];
};

async function verify(
  text: string,
  ...args: readonly string[]
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const path = join(folder, "export.jsonl");
  await writeFile(path, text);
  const { io, output } = captureIo({ OTHER: "another-secret-0123456789abcdef0123456789" });
  const command = ["ctl", "audit", "verify", path, "--data-dir", folder, ...args];
  return { code: await dispatch(command, CTL_AUDIT_COMMANDS, "0", io), ...output() };
}
const textOf = (all: readonly string[]): string => all.map((line) => `${line}\n`).join("");

test("an export that is whole is told so without a gateway, and whose entries are whose to who has the secret [80.C47 80.D33]", async () => {
  const told = await verify(textOf(whole()), "--who", "bob");
  assert.deepEqual([told.code, told.err], [0, ""]);
  assert.match(told.out, /^whole: entries 1 to 6 of chain 0123456789abcdef, and signed\nentries of bob: 2, 4, 6\n$/);
  const json = await verify(textOf(whole()), "--json");
  assert.deepEqual(JSON.parse(json.out), { kind: "whole", chain: "0123456789abcdef", first: 1, last: 6, signed: true });
  assert.match((await verify(textOf(whole()), "--hashes")).out, /by its hashes alone; its signatures were not checked/);
  assert.ok(!told.out.includes("CANARY"));
});

const spoilt: readonly [name: string, spoil: (all: string[]) => string, seq: number][] = [
  ["changed", (all) => textOf(all.map((line, index) => (index === 2 ? line.replace('"r2"', '"rX"') : line))), 3],
  ["dropped", (all) => textOf(all.toSpliced(2, 1)), 3],
  ["moved", (all) => textOf(all.toSpliced(2, 2, all[3] ?? "", all[2] ?? "")), 3],
  ["cut off in the middle", (all) => textOf(all).slice(0, textOf(all.slice(0, 3)).length - 20), 3],
  ["the last one missing", (all) => textOf(all.toSpliced(5, 1)), 6],
  ["the end missing with its seal", (all) => textOf(all.slice(0, 4)), 5],
  ["garbage without an end", () => "x".repeat(3_000_000), 1],
];
for (const [name, spoil, seq] of spoilt)
  test(`an export with an entry ${name} is told with exit code 1 and the first bad number [80.D33]`, async () => {
    const told = await verify(spoil(whole()));
    assert.equal(told.code, 1);
    assert.match(told.out, new RegExp(`^NOT WHOLE: first bad sequence number ${seq}: `));
  });

test("without the right secret nothing is called signed, and what can't be read is a usage error [80.C47]", async () => {
  assert.equal((await verify(textOf(whole()), "--secret-env", "OTHER")).code, 1);
  assert.equal((await verify(textOf(whole()), "--secret-env", "NOT_SET")).code, 2);
  assert.equal((await verify(textOf(whole()), "--secret-file", join(folder, "none"))).code, 2);
  assert.equal((await verify(textOf(whole()), "--hashes", "--who", "bob")).code, 2);
  const { io } = captureIo();
  assert.equal(
    await dispatch(["ctl", "audit", "verify", join(folder, "none"), "--hashes"], CTL_AUDIT_COMMANDS, "0", io),
    2,
  );
  assert.equal(await dispatch(["ctl", "audit", "verify"], CTL_AUDIT_COMMANDS, "0", io), 2);
});

test("--control exports the chain of a control plane, by its own route and from its own address [80.C47]", async () => {
  const asked: string[] = [];
  const server = createServer((req, res) => {
    asked.push(req.url ?? "");
    res.end(JSON.stringify({ lines: [], last: null, seal: whole().at(-1) ?? null } satisfies ChainPage));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await writeFile(join(folder, ADDRESSES_FILE), JSON.stringify({ gateway: "http://127.0.0.1:1", control: address }));
  const { io } = captureIo();
  const command = ["ctl", "audit", "export", "--control", "--after", "6", "--data-dir", folder];
  assert.equal(await dispatch(command, CTL_AUDIT_COMMANDS, "0", io), 0);
  server.closeAllConnections();
  server.close();
  assert.deepEqual(asked, ["/v1/audit/chain?after_seq=6"]);
});

test("an export asks page after page until the seal, and is whole [80.C47]", async () => {
  const { entries, end } = lines(6);
  const asked: string[] = [];
  const pageOf = (url: URL): ChainPage => {
    const from = Number(url.searchParams.get("after_seq"));
    const part = entries.slice(from, from + 4);
    const last = from + part.length;
    const first = Number(url.searchParams.get("first") ?? from + 1);
    return { lines: part, last, seal: last < 6 ? null : sealLine(first, end, 5, MAKER) };
  };
  const server = createServer((req, res) => {
    asked.push(req.url ?? "");
    res.end(JSON.stringify(pageOf(new URL(req.url ?? "", "http://x"))));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { io, output } = captureIo({ YARDMASTER_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  const code = await dispatch(["ctl", "audit", "export", "--data-dir", "none"], CTL_AUDIT_COMMANDS, "0", io);
  server.closeAllConnections();
  server.close();
  assert.deepEqual([code, asked], [0, ["/admin/audit/chain?after_seq=0", "/admin/audit/chain?after_seq=4&first=1"]]);
  assert.equal((await verify(output().out)).code, 0);
});
