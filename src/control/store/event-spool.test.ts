import assert from "node:assert/strict";
import { appendFile, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import { systemClock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { Watched } from "../../testing/wait-for.ts";
import { EventSpool } from "./event-spool.ts";
import { StoreFault } from "./sql-driver.ts";

const folder = await mkdtemp(join(tmpdir(), "yardmaster-spool-"));
after(() => rm(folder, { recursive: true, force: true }));

class FakeStore {
  readonly got: string[] = [];
  readonly changed = new Watched();
  away = false;
  refused = 0;

  async addEvents(events: readonly NewEvent[]): Promise<void> {
    if (this.away) {
      this.refused += 1;
      this.changed.changed();
      throw new StoreFault("away", { applied: "no" });
    }
    this.got.push(...events.map(({ why }) => why));
    await Promise.resolve();
    this.changed.changed();
  }

  has(count: number): Promise<void> {
    return this.changed.until(`${count} events`, () => this.got.length >= count);
  }
}

let made = 0;
const open = (store: FakeStore, path = join(folder, `${(made += 1)}`, "events.spool")) => ({
  path,
  spool: new EventSpool({ store, path, clock: systemClock, log: silentLogger }),
});
const event = (why: string): NewEvent => controlEvent("modelRetried", why);
const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `e${index}`);

test("events reach the store in order", async () => {
  const store = new FakeStore();
  const { spool } = open(store);
  for (const name of names(450)) spool.tell(event(name));
  await store.has(450);
  assert.deepEqual(store.got, names(450));
  await spool.close();
});

test("events told while the store is away survive the process and follow when it is back, none lost [80.P1]", async () => {
  const store = new FakeStore();
  const { spool, path } = open(store);
  store.away = true;
  for (const name of names(300)) spool.tell(event(name));
  await store.changed.until("a refusal", () => store.refused > 0);
  await spool.close();
  assert.equal((await stat(path)).mode & 0o077, 0);
  // What a crash in the middle of a line leaves.
  await appendFile(path, '{"kind":"modelRet');
  const next = open(store, path).spool;
  next.tell(event("after the restart"));
  store.away = false;
  await store.has(301);
  assert.deepEqual(store.got, [...names(300), "after the restart"]);
  await next.close();
  await assert.rejects(stat(path));
});

test("a full spool loses what does not fit, counts it, and tells when the store is back", async () => {
  const store = new FakeStore();
  const { spool } = open(store);
  store.away = true;
  spool.tell(event("first"));
  await store.changed.until("a refusal", () => store.refused > 0);
  const large = "x".repeat(2_000_000);
  for (const name of ["kept", "kept too", "lost"]) {
    spool.tell(event(`${name} ${large}`));
    await spool.settled();
  }
  store.away = false;
  await store.changed.until("all", () => store.got.length >= 4);
  assert.deepEqual(
    store.got.map((why) => why.split(" x", 1)[0]),
    ["first", "kept", "kept too", "1 events could not be kept while the store was away"],
  );
  await spool.close();
});
