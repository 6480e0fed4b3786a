import assert from "node:assert/strict";
import { test } from "node:test";
import { readChainPage } from "./read-chain-page.ts";
import type { ChainStore } from "./audit-chain.ts";

const store = (page: ChainStore["page"]): ChainStore => ({
  append: () => Promise.resolve(),
  page,
  close: () => Promise.resolve(),
});
const EMPTY = { lines: [], last: null, seal: null };

test("a parameter of the chain that can't be read is the asker's mistake, and the store is not asked", async () => {
  const asked = store(() => assert.fail("the store was asked"));
  for (const query of ["first=1000000000000000", "first=x", "after_seq=1&after_seq=2", "limit=0", "what=1"])
    await assert.rejects(readChainPage(asked, new URLSearchParams(query)), { code: "BAD_REQUEST" }, query);
});

test("a store of the chain that fails is told as unavailable", async () => {
  const failing = store(() => Promise.reject(new Error("disk")));
  await assert.rejects(readChainPage(failing, new URLSearchParams()), { code: "AUDIT_UNAVAILABLE" });
  assert.deepEqual(
    await readChainPage(
      store(() => Promise.resolve(EMPTY)),
      new URLSearchParams("first=1"),
    ),
    EMPTY,
  );
});
