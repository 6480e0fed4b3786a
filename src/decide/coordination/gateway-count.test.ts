import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono } from "../../kernel/clock.ts";
import { GatewayCount } from "./gateway-count.ts";

const TTL_MS = 15_000;

test("a store never seen leaves a gateway with the guess that it has one neighbour", () => {
  assert.equal(new GatewayCount(TTL_MS).gateways(asMono(0)), 2);
});

test("after a store was emptied those seen before count until as many are back, or one lease's time has passed [80.R4]", () => {
  const count = new GatewayCount(TTL_MS);
  assert.equal(count.heard({ nonce: "a", ageMs: 9e9, gateways: 3 }, undefined, asMono(0)), false);
  assert.equal(count.heard({ nonce: "b", ageMs: 0, gateways: 1 }, undefined, asMono(100)), true);
  assert.equal(count.gateways(asMono(100)), 3);
  assert.equal(count.heard({ nonce: "b", ageMs: 500, gateways: 2 }, undefined, asMono(600)), false);
  assert.equal(count.gateways(asMono(600)), 3);
  count.heard({ nonce: "b", ageMs: 700, gateways: 3 }, undefined, asMono(800));
  assert.equal(count.complete(asMono(800)), true);
  count.heard({ nonce: "c", ageMs: 0, gateways: 1 }, undefined, asMono(1_000));
  assert.equal(count.gateways(asMono(1_000 + TTL_MS - 1)), 3);
  assert.equal(count.gateways(asMono(1_000 + TTL_MS)), 1);
});

test("a store is settled when it is old, or new on a server that has long been up, and not while another may be behind the address", () => {
  const count = new GatewayCount(TTL_MS);
  count.heard({ nonce: "a", ageMs: 100, gateways: 1 }, 5_000, asMono(0));
  assert.equal(count.settled, false, "a server that was just started");
  count.heard({ nonce: "a", ageMs: 3_000, gateways: 1 }, 8_000, asMono(3_000));
  assert.equal(count.settled, true);
  count.reconnected();
  assert.equal(count.settled, false);
  count.heard({ nonce: "b", ageMs: 0, gateways: 1 }, 9e9, asMono(4_000));
  assert.equal(count.settled, false, "emptied on a server that went on");
  const fresh = new GatewayCount(TTL_MS);
  fresh.heard({ nonce: "a", ageMs: 0, gateways: 1 }, 9e9, asMono(0));
  assert.equal(fresh.settled, true, "the first use of a server that is used for other things");
});
