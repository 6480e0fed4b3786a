import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openRedisLink } from "../../testing/redis-links.ts";
import { OwnRedis, startRedis } from "../../testing/servers/redis-server.ts";
import { aLedger, aMemory, anAsk, ledgerSuite } from "../overflow/ledger.conformance.ts";
import type { DocStore } from "../overflow/doc-store.ts";
import { RedisDocs } from "./redis-docs.ts";
import type { RedisLink } from "./redis-link.ts";

const server = await startRedis();
const links: RedisLink[] = [];
after(async () => {
  for (const link of links) link.close();
  await server.close();
});

let prefixes = 0;
async function openDocs(url: string, keyPrefix: string): Promise<DocStore> {
  const link = await openRedisLink(url, keyPrefix, 2_000);
  links.push(link);
  return new RedisDocs(link);
}
const placeAt = (url: string) => {
  const keyPrefix = `l${process.pid}-${(prefixes += 1)}`;
  return { open: () => openDocs(url, keyPrefix) };
};

ledgerSuite("a real Redis", true, () => Promise.resolve(placeAt(server.url)));

test("a Redis that is away refuses every reservation and every call, and the ledger goes on when it is back [80.O6]", async () => {
  await using own = await OwnRedis.start();
  const ledger = await aLedger(placeAt(own.url), aMemory());
  assert.equal((await ledger.reserve(anAsk("a"))).kind, "done");
  own.pause();
  const begun = await ledger.begin(anAsk("a"));
  assert.equal(begun.kind === "refused" && begun.lack, "ledger_away");
  const reserved = await ledger.reserve(anAsk("b"));
  assert.equal(reserved.kind === "refused" && reserved.lack, "ledger_away");
  own.resume();
});
