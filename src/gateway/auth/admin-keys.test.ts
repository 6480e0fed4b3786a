import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { NO_LIMITS, type ApiKey } from "../../contract/gateway-config.ts";
import { hashKey } from "../../contract/key-hash.ts";
import { hasErrorCode } from "../../kernel/errors.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import {
  createKey as mayCreate,
  listKeys,
  loadStoredKeys,
  revokeKey as mayRevoke,
  rotateKey as mayRotate,
} from "./admin-keys.ts";
import type { KeyAdmin } from "./admin-keys.ts";
import { KeyRing } from "../../access/key-ring.ts";
import { StoredKeys } from "./stored-keys.ts";

const createKey = (...args: Parameters<typeof mayCreate>) => withKey(mayCreate(...args).act());
const revokeKey = (...args: Parameters<typeof mayRevoke>) => mayRevoke(...args).act();
const rotateKey = (...args: Parameters<typeof mayRotate>) => withKey(mayRotate(...args).act());

function withKey<T extends { readonly key: string | null }>(issued: T): T & { readonly key: string } {
  assert.ok(issued.key !== null, "a key was made");
  return { ...issued, key: issued.key };
}

const FROM_FILE: ApiKey = {
  id: "file-key",
  hash: hashKey("kf"),
  role: "admin",
  classes: ["interactive"],
  models: null,
  weight: 1,
  limits: NO_LIMITS,
  allowExternal: false,
  expiresAt: null,
};

function open(
  t: TestContext,
  folder = mkdtempSync(join(tmpdir(), "yardmaster-keys-")),
  clock = new VirtualClock(),
): KeyAdmin & { readonly folder: string; readonly clock: VirtualClock } {
  const stored = new StoredKeys(folder);
  t.after(() => stored.close());
  const admin = { ring: new KeyRing(clock, { config: [FROM_FILE] }), stored, clock, folder };
  loadStoredKeys(admin);
  return admin;
}

const code = (work: () => unknown, expected: ErrorCode): void =>
  assert.throws(work, (err) => hasErrorCode(err, expected));

test("a key that is made works at once and after a restart, and only its hash is kept [60.K1 80.D32]", (t) => {
  const admin = open(t);
  const issued = createKey(admin, { id: "chat", classes: ["batch"], models: ["qwen*"], limits: { max_in_flight: 3 } });
  const checked = admin.ring.check(issued.key, "p");
  assert.ok(
    checked.kind === "ok" &&
      checked.key.id === "chat" &&
      checked.key.limits.inFlightMax === 3 &&
      checked.key.classes[0] === "batch",
  );
  assert.equal(open(t, admin.folder).ring.check(issued.key, "p").kind, "ok");
  for (const file of readdirSync(admin.folder)) {
    assert.ok(!readFileSync(join(admin.folder, file)).includes(issued.key.slice(3)), file);
    assert.equal(statSync(join(admin.folder, file)).mode & 0o077, 0, file);
  }
  assert.ok(!JSON.stringify(listKeys(admin)).includes(issued.key));
});

test("a revoked key is refused at once, and its id is free again [60.K1]", (t) => {
  const admin = open(t);
  const issued = createKey(admin, { id: "chat" });
  revokeKey(admin, "chat");
  assert.equal(admin.ring.check(issued.key, "p").kind, "wrong");
  assert.notEqual(createKey(admin, { id: "chat" }).key, issued.key);
});

test("a rotated key gives way at once, or after its overlap; a later rotation does not prolong it", async (t) => {
  const admin = open(t);
  const first = createKey(admin, { id: "chat", role: "operator" });
  const second = rotateKey(admin, "chat", undefined);
  assert.equal(second.old_valid_until, null);
  assert.equal(admin.ring.check(first.key, "p").kind, "wrong");
  const third = rotateKey(admin, "chat", { overlap_s: 60 });
  rotateKey(admin, "chat", { overlap_s: 3600 });
  assert.equal(admin.ring.check(second.key, "p").kind, "ok");
  await admin.clock.advance(60_000);
  assert.equal(admin.ring.check(second.key, "p").kind, "expired");
  const checked = admin.ring.check(third.key, "p");
  assert.ok(checked.kind === "ok" && checked.key.role === "operator");
});

test("a key that another gateway has made is taken by its hash, is the same key, and is made by nobody a second time [60.K1]", (t) => {
  const [one, two] = [open(t), open(t)];
  const issued = createKey(one, { id: "chat", models: ["qwen*"] });
  const taken = mayCreate(two, { id: "chat", models: ["qwen*"], hash: issued.hash }).act();
  assert.deepEqual([taken.key, taken.hash], [null, issued.hash]);
  assert.equal(two.ring.check(issued.key, "p").kind, "ok");
  assert.equal(open(t, two.folder).ring.check(issued.key, "p").kind, "ok");
  code(() => mayCreate(two, { id: "other", hash: issued.hash }), "KEY_EXISTS");
  code(() => mayCreate(two, { id: "other", hash: "sha256:0" }), "BAD_REQUEST");
  code(() => mayRotate(two, "chat", { hash: issued.hash }), "KEY_EXISTS");
  const next = rotateKey(one, "chat", {});
  mayRotate(two, "chat", { hash: next.hash }).act();
  for (const admin of [one, two])
    assert.deepEqual([admin.ring.check(issued.key, "p").kind, admin.ring.check(next.key, "p").kind], ["wrong", "ok"]);
});

test("a key is revoked also where the file can't be read afterwards, and the others stay [60.K1]", (t) => {
  const admin = open(t);
  const [one, two] = [createKey(admin, { id: "one" }), createKey(admin, { id: "two" })];
  const { stored } = admin;
  t.mock.method(stored, "list", () => {
    throw new Error("it can't be read");
  });
  assert.throws(() => revokeKey(admin, "one"), /can't be read/);
  assert.deepEqual([admin.ring.check(one.key, "p").kind, admin.ring.check(two.key, "p").kind], ["wrong", "ok"]);
});

test("what can't be done is said by its code", (t) => {
  const admin = open(t);
  createKey(admin, { id: "chat" });
  code(() => createKey(admin, { id: "chat" }), "KEY_EXISTS");
  code(() => createKey(admin, { id: "file-key" }), "KEY_EXISTS");
  code(() => revokeKey(admin, "file-key"), "KEY_IN_FILE");
  code(() => rotateKey(admin, "file-key", {}), "KEY_IN_FILE");
  code(() => revokeKey(admin, "nobody"), "KEY_UNKNOWN");
  code(() => rotateKey(admin, "nobody", {}), "KEY_UNKNOWN");
  for (const body of [
    undefined,
    null,
    [],
    {},
    { id: "a b" },
    { id: "x", role: "root" },
    { id: "x", hash: "sha256:0" },
    { id: "x", source: "config" },
    JSON.parse('{"id":"x","__proto__":{"role":"admin"}}'),
  ]) {
    code(() => createKey(admin, body), "BAD_REQUEST");
  }
  code(() => rotateKey(admin, "chat", { overlap_s: -1 }), "BAD_REQUEST");
});

test("a row that something else wrote lets nobody in and breaks nothing", (t) => {
  const admin = open(t);
  const issued = createKey(admin, { id: "chat" });
  const db = new DatabaseSync(join(admin.folder, "keys.db"));
  db.prepare("INSERT INTO stored_keys VALUES (?, 'x', ?, 1, NULL)").run(hashKey("kx"), '{"id":"x","role":"god"}');
  db.prepare("INSERT INTO stored_keys VALUES (?, 'y', 'not json', 1, NULL)").run(hashKey("ky"));
  db.close();
  loadStoredKeys(admin);
  assert.deepEqual(
    ["kx", "ky"].map((plain) => admin.ring.check(plain, "p").kind),
    ["wrong", "wrong"],
  );
  assert.equal(admin.ring.check(issued.key, "p").kind, "ok");
});
