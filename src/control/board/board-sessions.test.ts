import assert from "node:assert/strict";
import { inspect } from "node:util";
import { test } from "node:test";
import { KeyRing } from "../../access/key-ring.ts";
import { NO_LIMITS, type ApiKey } from "../../contract/gateway-config.ts";
import { hashKey } from "../../contract/key-hash.ts";
import { asEpoch } from "../../kernel/clock.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { BoardSessions, ONCE_MS, SESSION_IDLE_MS, SESSION_MS_MAX } from "./board-sessions.ts";

const aKey = (id: string, over: Partial<ApiKey> = {}): ApiKey => ({
  id,
  hash: hashKey(`key of ${id}`),
  role: "operator",
  classes: ["interactive"],
  models: null,
  weight: 1,
  limits: NO_LIMITS,
  allowExternal: false,
  expiresAt: null,
  ...over,
});

function world(...keys: readonly ApiKey[]) {
  const clock = new VirtualClock();
  const ring = new KeyRing(clock, { config: keys });
  return { clock, ring, sessions: new BoardSessions(clock, ring) };
}

test("a session ends when nobody uses it, and after its time however much it is used", async () => {
  const { clock, sessions } = world(aKey("a"));
  const idle = sessions.open(aKey("a")).token.reveal();
  await clock.advance(SESSION_IDLE_MS - 1);
  assert.equal(sessions.use(idle)?.keyId, "a");
  await clock.advance(SESSION_IDLE_MS);
  assert.equal(sessions.use(idle), undefined);
  const used = sessions.open(aKey("a")).token.reveal();
  for (let ms = 0; ms < SESSION_MS_MAX; ms += SESSION_IDLE_MS / 2) {
    assert.ok(sessions.use(used) !== undefined);
    await clock.advance(SESSION_IDLE_MS / 2);
  }
  assert.equal(sessions.use(used), undefined);
});

test("a session ends with its key, whatever became of it [80.D12]", async () => {
  const { clock, ring, sessions } = world(aKey("a"));
  const open = (): string => sessions.open(aKey("a")).token.reveal();
  for (const after of [
    [],
    [aKey("b")],
    [aKey("a", { hash: hashKey("rotated") })],
    [aKey("a", { role: "admin" })],
    [aKey("a", { expiresAt: asEpoch(clock.wall() - 1) })],
  ]) {
    ring.replace("config", [aKey("a")]);
    const token = open();
    assert.ok(sessions.use(token) !== undefined);
    ring.replace("config", after);
    assert.equal(sessions.use(token), undefined);
    ring.replace("config", [aKey("a")]);
    assert.equal(sessions.use(token), undefined, "it does not come back to life");
  }
  const token = open();
  sessions.close(token);
  assert.equal(sessions.use(token), undefined);
});

test("a link works once, for a quarter of an hour, while its key does", async () => {
  const { clock, ring, sessions } = world(aKey("a"));
  const once = sessions.makeOnce(aKey("a")).reveal();
  assert.equal(sessions.takeOnce(once)?.id, "a");
  assert.equal(sessions.takeOnce(once), undefined);
  const late = sessions.makeOnce(aKey("a")).reveal();
  await clock.advance(ONCE_MS);
  assert.equal(sessions.takeOnce(late), undefined);
  const orphan = sessions.makeOnce(aKey("a")).reveal();
  ring.replace("config", []);
  assert.equal(sessions.takeOnce(orphan), undefined);
});

test("sessions are bounded, the one that was used longest ago goes first, and no token is held", async () => {
  const { clock, sessions } = world(aKey("a"));
  const first = sessions.open(aKey("a")).token.reveal();
  await clock.advance(1);
  const second = sessions.open(aKey("a")).token.reveal();
  await clock.advance(1);
  assert.ok(sessions.use(first) !== undefined);
  for (let at = 0; at < 999; at += 1) sessions.open(aKey("a"));
  assert.equal(sessions.size, 1_000);
  assert.ok(sessions.use(first) !== undefined && sessions.use(second) === undefined);
  assert.ok(!inspect(sessions, { depth: 9, showHidden: true }).includes(first));
});
