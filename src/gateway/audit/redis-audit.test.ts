import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { RedisLink } from "../../coord/redis/redis-link.ts";
import { systemClock, type Clock } from "../../kernel/clock.ts";
import { silentLogger } from "../../kernel/log.ts";
import { seededRandom } from "../../kernel/random.ts";
import { Secret } from "../../kernel/secret.ts";
import { OwnRedis } from "../../testing/servers/redis-server.ts";
import { eventually } from "../../testing/wait-for.ts";
import { AUDIT_MAX, auditSuite, recordMany, seqs } from "./audit-sink.conformance.ts";
import type { AuditSink } from "./audit-sink.ts";
import { openRedisAudit, type RedisAuditOptions } from "./redis-audit.ts";

let server: OwnRedis;
before(async () => {
  server = await OwnRedis.start();
});
after(() => server.close());

let prefixes = 0;
const newPrefix = (): string => `t${++prefixes}`;

/** A link as each gateway has one of its own. */
async function openLink(keyPrefix: string, url = server.url): Promise<RedisLink> {
  const link = new RedisLink(
    { url: new Secret(url), timeoutMs: 3_000, keyPrefix },
    { clock: systemClock, random: seededRandom(1), log: silentLogger },
  );
  await link.open();
  return link;
}

const open = (link: RedisLink, over: Partial<RedisAuditOptions> = {}): AuditSink =>
  openRedisAudit({ link, max: AUDIT_MAX, clock: systemClock, log: silentLogger, ...over });

auditSuite("in Redis", async () => {
  const prefix = newPrefix();
  const links: RedisLink[] = [];
  return {
    open: async (over = {}) => {
      const link = await openLink(prefix);
      links.push(link);
      return open(link, over);
    },
    close: () => Promise.resolve(links.forEach((link) => link.close())),
  };
});

const from = (first: number, last: number): number[] => Array.from({ length: last - first + 1 }, (_, i) => first + i);

test("the stream keeps about as many events as it may, and what left shows as numbers that are not there [10.O1 80.I9]", async () => {
  const link = await openLink(newPrefix());
  const sink = open(link, { max: 500 });
  for (let round = 0; round < 20; round += 1) {
    recordMany(sink, round * 100 + 1, round * 100 + 100);
    await sink.query({ limit: 1 });
  }
  const page = await sink.query({ limit: 10_000 });
  const kept = seqs(page);
  assert.ok(kept.length >= 500 && kept.length <= 620, `${kept.length} kept`);
  assert.deepEqual(kept, from(2_001 - kept.length, 2_000));
  assert.equal(page.lastSeq, 2_000);
  assert.deepEqual(seqs(await sink.query({ limit: 2, afterSeq: 1_990 })), [1_991, 1_992]);
  await sink.close();
  link.close();
});

test("a gateway that starts without the server keeps its events and stores them when it comes, without a restart [10.O1 80.G18]", async () => {
  await using own = await OwnRedis.start();
  await own.kill();
  const link = await openLink("early", own.url);
  const sink = open(link, { limits: { eventsMax: 300, bytesMax: 10_000_000 } });
  recordMany(sink, 1, 400);
  assert.deepEqual(sink.stats(), { recorded: 400, dropped: 100, pending: 300 });
  await own.again();
  await eventually(
    "the events to be stored",
    () => sink.stats().pending,
    (pending) => pending === 0,
  );
  recordMany(sink, 401, 410);
  const page = await sink.query({ limit: 1_000 });
  assert.deepEqual(seqs(page), [...from(1, 300), ...from(401, 410)]);
  assert.deepEqual(
    page.gaps.map(({ afterSeq, missing, why }) => ({ afterSeq, missing, why })),
    [{ afterSeq: 300, missing: 100, why: "dropped" }],
  );
  await sink.close();
  link.close();
});

test("a batch whose answer was lost is stored once, and a frozen server delays no caller [10.O1]", async () => {
  await using own = await OwnRedis.start();
  const link = await openLink("frozen", own.url);
  const sink = open(link);
  recordMany(sink, 1, 10);
  await sink.query({ limit: 1 });
  own.pause();
  recordMany(sink, 11, 700);
  await eventually(
    "the link to give up",
    () => link.state,
    (state) => state !== "closed",
  );
  const started = systemClock.mono();
  recordMany(sink, 701, 1_000);
  assert.ok(systemClock.mono() - started < 1_000);
  own.resume();
  await eventually(
    "the events to be stored",
    () => sink.stats().pending,
    (pending) => pending === 0,
  );
  const page = await sink.query({ limit: 10_000 });
  assert.deepEqual(seqs(page), from(1, 1_000));
  assert.equal(new Set(page.records.map(({ requestId }) => requestId)).size, 1_000);
  assert.deepEqual(page.gaps, []);
  await sink.close();
  link.close();
});

test("a server that forgot everything shows what it lost as a gap, and goes on [10.O1 80.G18]", async () => {
  await using own = await OwnRedis.start();
  const link = await openLink("forgetful", own.url);
  const sink = open(link);
  recordMany(sink, 1, 20);
  await sink.query({ limit: 1 });
  await link.command("FLUSHALL", []);
  recordMany(sink, 21, 25);
  const page = await sink.query({ limit: 100 });
  assert.deepEqual(
    page.records.map(({ requestId }) => requestId),
    ["req-21", "req-22", "req-23", "req-24", "req-25"],
  );
  assert.deepEqual(
    page.gaps.map(({ missing, why }) => ({ missing, why })),
    [{ missing: 20, why: "dropped" }],
  );
  await sink.close();
  link.close();
});

/** Calls back what is due when it is told to, and waits for what it waits for in real time. */
class PushedClock implements Clock {
  readonly #due: (() => void)[] = [];
  mono = systemClock.mono;
  wall = systemClock.wall;
  sleep = systemClock.sleep;
  after(ms: number, callback: () => void): { cancel(): void } {
    if (ms < 20_000) return systemClock.after(ms, callback);
    this.#due.push(callback);
    return { cancel: () => void this.#due.splice(this.#due.indexOf(callback), 1) };
  }
  beat(): void {
    for (const callback of this.#due.splice(0)) callback();
  }
}

test("a run that is heard of no more shows as one that did not close; one that is idle and alive does not [10.O1]", async () => {
  const prefix = newPrefix();
  const [dead, idle] = [await openLink(prefix), await openLink(prefix)];
  const clock = new PushedClock();
  const killed = open(dead);
  recordMany(killed, 1, 5);
  await killed.query({ limit: 1 });
  dead.close(); // It can say nothing any more.
  const alive = open(idle, { clock });
  recordMany(alive, 6, 9);
  await alive.query({ limit: 1 });
  const key = `{${prefix}:audit}:alive`;
  const runs = await idle.command("ZRANGE", [key, 0, -1]);
  assert.equal(runs.kind, "reply");
  // Both were heard of long ago, by the server's clock.
  for (const run of runs.kind === "reply" ? (runs.reply as string[]) : [])
    await idle.command("ZADD", [key, "1000", run]);
  clock.beat();
  const reader = open(idle);
  const page = await eventually(
    "one run to be told of",
    () => reader.query({ limit: 100 }),
    ({ gaps }) => gaps.length === 1,
  );
  assert.deepEqual(
    page.gaps.map(({ afterSeq, missing, why }) => ({ afterSeq, missing, why })),
    [{ afterSeq: 5, missing: null, why: "run_not_closed" }],
  );
  await alive.close();
  await reader.close();
  idle.close();
});
