import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { ChainEntry } from "../contract/audit-chain.ts";
import { ChainCheck } from "../decide/audit/chain-lines.ts";
import { systemClock } from "../kernel/clock.ts";
import { openChain } from "./audit-chain.ts";
import { checkWith, sha256 } from "./chain-tables.ts";
import { lazySigner } from "./open-signer.ts";

const entry = (request: string): ChainEntry => ({
  time: 1,
  request,
  who: null,
  act: "POST /v1/rollout",
  upstream: null,
  status: 200,
  outcome: "ok",
  code: null,
  detail: null,
});

test("a gateway and a control plane that share a data folder write one chain, whole and without a gap [80.C47 80.I10]", async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "yardmaster-chain-"));
  t.after(() => rm(dataDir, { recursive: true, force: true }));
  const signer = lazySigner(dataDir, null);
  const writers = ["gateway", "control"].map((name) => ({
    name,
    chain: openChain({ clock: systemClock, dataDir, signer: lazySigner(dataDir, null) }),
  }));
  t.after(() => Promise.all(writers.map(({ chain }) => chain.close())));
  await Promise.all(
    writers.map(async ({ name, chain }) => {
      for (let ordinal = 1; ordinal <= 40; ordinal += 1) await chain.append(ordinal, [entry(`${name} ${ordinal}`)]);
    }),
  );
  const [first] = writers;
  const { lines, seal } = (await first?.chain.page(0, 1_000, null)) ?? assert.fail();
  const check = new ChainCheck(sha256, checkWith((await signer()).keysFor("audit chain")));
  for (const line of [...lines, seal ?? ""]) check.push(line);
  assert.deepEqual({ ...check.end(), chain: "" }, { kind: "whole", chain: "", first: 1, last: 80, signed: true });
  const requests = lines.map((line) => (JSON.parse(line) as ChainEntry).request);
  for (const { name } of writers)
    assert.deepEqual(
      requests.filter((request) => request.startsWith(name)),
      Array.from({ length: 40 }, (_, index) => `${name} ${index + 1}`),
    );
});
