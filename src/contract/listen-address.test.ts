import assert from "node:assert/strict";
import { test } from "node:test";
import { formatListen, isLoopback, parseListen } from "./listen-address.ts";

test("an address is a named host and a port", () => {
  assert.deepEqual(parseListen("127.0.0.1:8200"), { host: "127.0.0.1", port: 8200 });
  assert.deepEqual(parseListen("[::1]:0"), { host: "::1", port: 0 });
  for (const text of [
    "",
    "8200",
    ":8200",
    "host",
    "host:",
    "host:65536",
    "host:-1",
    "::1:80",
    "[::1]",
    "a b:1",
    "http://a:1",
    "a:1/x",
  ])
    assert.equal(parseListen(text), undefined, text);
  for (const text of ["127.0.0.1:8200", "[::1]:1"])
    assert.equal(formatListen(parseListen(text) ?? { host: "", port: 0 }), text);
});

test("only addresses that surely stay on this machine count as loopback [80.C48]", () => {
  for (const host of ["127.0.0.1", "127.255.0.9", "localhost", "LOCALHOST", "::1", "::ffff:127.0.0.1"])
    assert.ok(isLoopback(host), host);
  for (const host of [
    "0.0.0.0",
    "::",
    "127.0.0.1.evil.example",
    "127.1",
    "2130706433",
    "localhost.evil.example",
    "10.0.0.1",
    "::ffff:10.0.0.1",
    "fe80::1",
    "",
  ])
    assert.ok(!isLoopback(host), host);
});
