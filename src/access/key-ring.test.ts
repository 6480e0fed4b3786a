import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { NO_LIMITS, type ApiKey } from "../contract/gateway-config.ts";
import { hashKey, newKey } from "../contract/key-hash.ts";
import { asEpoch } from "../kernel/clock.ts";
import { VirtualClock } from "../testing/virtual-clock.ts";
import { KeyRing } from "./key-ring.ts";
import { WRONG_KEYS_BURST, WrongKeyLimit, peerGroup } from "./wrong-key-limit.ts";

const aKey = (id: string, plain: string, change: Partial<ApiKey> = {}): ApiKey => ({
  id,
  hash: hashKey(plain),
  role: "client",
  classes: ["interactive"],
  models: null,
  weight: 1,
  limits: NO_LIMITS,
  allowExternal: false,
  expiresAt: null,
  ...change,
});

const PEER = "192.0.2.1";

test("a new key has 256 random bits, and its hash lets it in and nothing near it [80.C38 60.K1]", () => {
  const made = newKey();
  const plain = made.key.reveal();
  assert.equal(Buffer.from(plain.slice("ym_".length), "base64url").length, 32);
  assert.notEqual(newKey().hash, made.hash);
  const ring = new KeyRing(new VirtualClock(), { config: [{ ...aKey("k", "x"), hash: made.hash }] });
  assert.equal(ring.check(plain, PEER).kind, "ok");
  for (const wrong of [
    "",
    made.hash,
    plain.slice(0, -1),
    `${plain} `,
    plain.toUpperCase(),
    "' OR 1=1 --",
    "x".repeat(10_000),
  ])
    assert.equal(ring.check(wrong, PEER).kind, "wrong");
});

test("keys of all sources are let in, and the file's word goes before the store's", () => {
  const ring = new KeyRing(new VirtualClock(), {
    config: [aKey("a", "ka", { role: "client" })],
    stored: [aKey("b", "kb"), aKey("a2", "ka", { role: "admin" })],
    session: [aKey("s", "ks", { role: "operator" })],
  });
  const of = (plain: string): string => {
    const checked = ring.check(plain, PEER);
    return checked.kind === "ok" ? `${checked.key.id} ${checked.key.role} ${checked.key.source}` : checked.kind;
  };
  assert.deepEqual(["ka", "kb", "ks"].map(of), ["a client config", "b client stored", "s operator session"]);
  assert.equal(ring.list().length, 3);
});

test("a revoked key is refused at the next check, and the keys of other sources stay [60.K1]", () => {
  const ring = new KeyRing(new VirtualClock(), { config: [aKey("a", "ka")], stored: [aKey("b", "kb")] });
  ring.replace("stored", []);
  assert.equal(ring.check("kb", PEER).kind, "wrong");
  ring.replace("config", []);
  assert.equal(ring.check("ka", PEER).kind, "wrong");
});

test("a key ends at its date, and says when it was last used [80.C38]", async () => {
  const clock = new VirtualClock();
  const ring = new KeyRing(clock, { config: [aKey("a", "ka", { expiresAt: asEpoch(clock.wall() + 1000) })] });
  assert.equal(ring.list()[0]?.lastUsedAt, null);
  await clock.advance(999);
  assert.equal(ring.check("ka", PEER).kind, "ok");
  assert.equal(ring.list()[0]?.lastUsedAt, clock.wall());
  await clock.advance(1);
  assert.equal(ring.check("ka", PEER).kind, "expired");
});

test("a key's models are globs", () => {
  const ring = new KeyRing(new VirtualClock(), { config: [aKey("a", "ka", { models: ["qwen*"] }), aKey("b", "kb")] });
  const check = ring.check("ka", PEER);
  const open = ring.check("kb", PEER);
  assert.ok(check.kind === "ok" && check.key.allowsModel("qwen3") && !check.key.allowsModel("QWEN3"));
  assert.ok(open.kind === "ok" && open.key.allowsModel("anything"));
});

test("a thousand wrong keys from one peer are slowed down, and valid ones pass, from there and elsewhere [80.D11 60.K1]", async () => {
  const clock = new VirtualClock();
  const ring = new KeyRing(clock, { config: [aKey("a", "ka")] });
  const kinds = Array.from({ length: 1000 }, (_, index) => ring.check(`wrong-${index}`, PEER).kind);
  assert.equal(kinds.filter((kind) => kind === "wrong").length, WRONG_KEYS_BURST);
  assert.equal(kinds.filter((kind) => kind === "throttled").length, 1000 - WRONG_KEYS_BURST);
  assert.equal(ring.check("ka", PEER).kind, "ok");
  assert.equal(ring.check("ka", "192.0.2.2").kind, "ok");
  assert.equal(ring.check("typo", "192.0.2.2").kind, "wrong");
  const throttled = ring.check("wrong", PEER);
  assert.ok(throttled.kind === "throttled" && throttled.retryAfterMs > 0 && throttled.retryAfterMs <= 3000);
  await clock.advance(throttled.kind === "throttled" ? throttled.retryAfterMs : 0);
  assert.equal(ring.check("wrong", PEER).kind, "wrong");
});

test("an IPv6 peer is its /64, a mapped IPv4 one is itself", () => {
  assert.equal(peerGroup("2001:db8:1:2:3:4:5:6"), peerGroup("2001:0db8:0001:0002::9"));
  assert.notEqual(peerGroup("2001:db8:1:2::1"), peerGroup("2001:db8:1:3::1"));
  assert.equal(peerGroup("::ffff:192.0.2.1"), "192.0.2.1");
  assert.equal(peerGroup("fe80::1%eth0"), peerGroup("fe80::2%eth0"));
  assert.equal(peerGroup("::1"), peerGroup("::2"));
  assert.equal(peerGroup(""), "");
});

test("the memory for wrong keys is bounded however many peers there are", () => {
  const clock = new VirtualClock();
  const limit = new WrongKeyLimit();
  for (let peer = 0; peer < 30_000; peer += 1)
    limit.spend(`10.${peer >> 16}.${(peer >> 8) & 255}.${peer & 255}`, clock.mono());
  assert.equal(limit.size, 10_000);
});

test("no plain key stays in the ring", () => {
  const ring = new KeyRing(new VirtualClock(), { config: [aKey("a", "CANARY-key")] });
  ring.check("CANARY-key", PEER);
  ring.check("CANARY-wrong", PEER);
  assert.ok(
    !inspect(ring, { depth: 9, showHidden: true }).includes("CANARY") &&
      !JSON.stringify(ring.list()).includes("CANARY"),
  );
});
