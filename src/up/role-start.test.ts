import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";
import { whyNotStarted } from "./role-start.ts";

test("a start in vain on an address that another program has says so, and how to choose another one", async () => {
  const first = createServer().listen(0, "127.0.0.1");
  await once(first, "listening");
  const { port } = first.address() as AddressInfo;
  try {
    const second = createServer().listen(port, "127.0.0.1");
    const [error] = (await once(second, "error")) as [unknown];
    assert.match(whyNotStarted(error), new RegExp(`127\\.0\\.0\\.1:${port}: another program has .* with --listen`));
  } finally {
    first.close();
  }
  assert.equal(whyNotStarted(new Error("no")), "no");
});
