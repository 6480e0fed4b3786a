import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { patientClock } from "../../testing/patient-clock.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { CONFORMANCE_BYTES_MAX, replyStoreSuite } from "../reply-store.conformance.ts";
import { LocalReplies } from "./local-replies.ts";
import { MemoryShelf } from "./memory-shelf.ts";
import { SqliteShelf } from "./sqlite-shelf.ts";

const root = mkdtempSync(join(tmpdir(), "yardmaster-replies-"));
after(() => rmSync(root, { recursive: true, force: true }));
let files = 0;
const newPath = (): string => join(root, `case-${++files}`, "replies.db");
const aReply = (text: string) =>
  ({ kind: "answer", status: 200, headers: ["a", "b"], body: Buffer.from(text) }) as const;
const claim = (owner: string) => ({ key: "k", lane: "", owner });

replyStoreSuite("in memory", () => {
  const clock = new VirtualClock();
  const store = new LocalReplies(new MemoryShelf(CONFORMANCE_BYTES_MAX, clock), clock);
  return Promise.resolve({ one: store, other: store, pass: (ms) => clock.advance(ms), close: () => store.close() });
});

/** Deadlines of the worker run on real time; what a store calls now can be moved. */
class MovedClock implements Clock {
  #by = 0;
  mono = () => (systemClock.mono() + this.#by) as ReturnType<Clock["mono"]>;
  wall = () => (systemClock.wall() + this.#by) as ReturnType<Clock["wall"]>;
  sleep = systemClock.sleep;
  after = patientClock.after;
  move(ms: number): Promise<void> {
    this.#by += ms;
    return Promise.resolve();
  }
}

replyStoreSuite("in SQLite", () => {
  const clock = new MovedClock();
  const shelf = new SqliteShelf({ path: newPath(), bytesMax: CONFORMANCE_BYTES_MAX, clock, log: silentLogger });
  const store = new LocalReplies(shelf, clock);
  return Promise.resolve({ one: store, other: store, pass: (ms) => clock.move(ms), close: () => store.close() });
});

const openStore = (path: string): LocalReplies =>
  new LocalReplies(
    new SqliteShelf({ path, bytesMax: CONFORMANCE_BYTES_MAX, clock: systemClock, log: silentLogger }),
    systemClock,
  );

test("answers to idempotency keys survive a restart, claims do not [20.I1]", async () => {
  const path = newPath();
  const before = openStore(path);
  await before.begin(claim("a"), "f", 60_000);
  await before.finish(claim("a"), "f", aReply("kept"), 60_000);
  await before.begin({ ...claim("a"), key: "running" }, "f", 60_000);
  await before.close();
  const later = openStore(path);
  assert.equal((await later.begin(claim("b"), "f", 60_000)).kind, "found");
  assert.equal((await later.begin(claim("b"), "other", 60_000)).kind, "mismatch");
  assert.equal((await later.begin({ ...claim("b"), key: "running" }, "f", 60_000)).kind, "taken");
  await later.close();
});

test("a file that is locked, or is not ours, rejects within its time and works again when it is free [80.I9]", async () => {
  const path = newPath();
  const store = openStore(path);
  assert.equal((await store.begin(claim("a"), "f", 60_000)).kind, "taken");
  const locker = new DatabaseSync(path);
  locker.exec("BEGIN IMMEDIATE");
  await assert.rejects(store.finish(claim("a"), "f", aReply("x"), 60_000));
  locker.exec("COMMIT");
  locker.close();
  assert.equal(await store.finish(claim("a"), "f", aReply("x"), 60_000), "kept");
  await store.close();

  const foreign = newPath();
  const other = openStore(foreign);
  await other.close();
  const folder = join(foreign, "..");
  rmSync(folder, { recursive: true, force: true });
  const foreignFile = `${folder}.txt`;
  writeFileSync(
    foreignFile,
    "no database at all, only text that is longer than a header of one hundred bytes".repeat(3),
  );
  const refused = openStore(foreignFile);
  await assert.rejects(refused.begin(claim("a"), "f", 60_000));
  await refused.close();
});
