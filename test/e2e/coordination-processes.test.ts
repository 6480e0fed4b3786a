import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Redis } from "ioredis";
import { systemClock } from "../../src/kernel/clock.ts";
import { REQUEST_CLASSES } from "../../src/contract/request-class.ts";
import { seededRandom } from "../../src/kernel/random.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { aTask, call, startCall } from "./support/calls.ts";
import { entriesOf, peakOf } from "./support/ledger-check.ts";
import {
  OPERATOR_KEY,
  programFolder,
  reach,
  runProgram,
  type ProgramFolder,
  type RunningProgram,
} from "./support/program.ts";
import { crowdingOf } from "./support/run-queue.ts";
import { adminOf, countLeases, roomyEngine, seasonStore, sharedUpstream, shareFile } from "./support/shared-world.ts";

// Gateways as processes of their own, killed and frozen in the middle of their work. SOAK=1 runs the full minute with leases
// as long as the default.

const SOAK = process.env["SOAK"] === "1";
const TTL_S = SOAK ? 15 : 3;
const LOAD_MS = SOAK ? 60_000 : 12_000;
const KILLS = SOAK ? 3 : 2;
const SLOTS = 16;
const BATCH_MAX = 8;
const never = new AbortController().signal;

let redis: OwnRedis;
let admin: Redis;
let engine: SimEngine;

before(async () => {
  redis = await OwnRedis.start();
  admin = adminOf(redis);
  engine = await roomyEngine();
  await seasonStore(admin);
});
after(async () => {
  await engine.close();
  admin.disconnect();
  await redis.close();
});

/** A gateway of its own folder, and how to reach it. */
class Member implements AsyncDisposable {
  readonly #folder: ProgramFolder;
  program!: RunningProgram;
  at!: ReturnType<typeof reach>;

  private constructor(made: ProgramFolder) {
    this.#folder = made;
  }

  static async start(upstream: Record<string, unknown>): Promise<Member> {
    // Here a busy machine must not look like a frozen Redis.
    const more = { lease_ttl_s: TTL_S, coordination_timeout_ms: 2_000 };
    const folder = await programFolder({ ...shareFile(redis.url, more), upstreams: [upstream] });
    const member = new Member(folder);
    await member.again();
    return member;
  }

  async again(): Promise<void> {
    this.program = runProgram(["gateway", "--config", this.#folder.config, "--log-format", "json"]);
    this.at = reach(await this.program.ready());
  }

  async kill(): Promise<void> {
    this.program.kill("SIGKILL");
    await this.program.end();
  }

  async metric(series: string): Promise<number | undefined> {
    const headers = { authorization: `Bearer ${OPERATOR_KEY}` };
    const page = await (await fetch(`http://127.0.0.1:${this.at.port}/metrics`, { headers })).text();
    const line = page.split("\n").find((candidate) => candidate.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length + 1));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.program[Symbol.asyncDispose]();
    await this.#folder[Symbol.asyncDispose]();
  }
}

test("two gateways on sixteen slots, one of them killed again and again under mixed load: never more than sixteen at the engine, batch in its part, and all slots back within one lease [20.S2 20.S3 80.G1 80.I3]", async () => {
  const upstream = sharedUpstream(engine.url, SLOTS, { batch_max: BATCH_MAX });
  engine.resetLedger();
  await using stays = await Member.start(upstream);
  await using victim = await Member.start(upstream);
  const random = seededRandom(1);
  const off = new AbortController();
  const answers: Promise<{ readonly status: number; readonly whole: boolean; readonly at: Member }>[] = [];
  const load = (async (): Promise<void> => {
    while (!off.signal.aborted) {
      for (const at of [stays, victim]) {
        const requestClass = REQUEST_CLASSES[Math.floor(random.next() * 3)] ?? "batch";
        const body = aTask({ tokens: 2 + Math.floor(random.next() * 20), delayBetweenMs: 20 }, {}, requestClass);
        const answer = call(at.at, { class: requestClass, body, patienceMs: 90_000 });
        answers.push(answer.then(({ status, whole }) => ({ status, whole, at })));
      }
      await systemClock.sleep(35, never);
    }
  })();
  for (let kills = 0; kills < KILLS; kills += 1) {
    await systemClock.sleep(LOAD_MS / (KILLS + 1), never);
    await victim.kill();
    await victim.again();
  }
  await systemClock.sleep(LOAD_MS / (KILLS + 1), never);
  off.abort();
  await load;
  const ended = await Promise.all(answers);
  const failed = ended.filter(({ status, whole, at }) => at === stays && (status !== 200 || !whole));
  assert.deepEqual(
    failed.map(({ status }) => status),
    [],
    "the gateway that was left alone fails nobody",
  );
  const { entries } = engine.ledger();
  assert.ok(entries.length > 100);
  assert.ok(peakOf(entries) <= SLOTS, `${peakOf(entries)} at the engine`);
  assert.ok(peakOf(entriesOf(entries, "batch")) <= BATCH_MAX, `${peakOf(entriesOf(entries, "batch"))} of batch`);
  const crowding = crowdingOf(process.pid);
  const from = systemClock.mono();
  await eventually(
    "all slots to be back",
    () => countLeases(admin),
    (count) => count === 0,
  );
  assert.ok(systemClock.mono() - from <= TTL_S * 1_000 + 1_000 * crowding());
});

test("a killed gateway's slots are taken by who waits at another one lease later [20.S2 80.G1]", async () => {
  const upstream = sharedUpstream(engine.url, 4);
  engine.resetLedger();
  await using a = await Member.start(upstream);
  await using b = await Member.start(upstream);
  const streams = Array.from({ length: 4 }, () =>
    startCall(a.at, { body: aTask({ tokens: 100_000, delayBetweenMs: 50 }) }),
  );
  await Promise.all(streams.map((one) => one.received("data:")));
  const waiting = Array.from({ length: 4 }, () => call(b.at, { body: aTask({ tokens: 5 }), patienceMs: 60_000 }));
  await eventually(
    "the wait",
    () => b.metric('yardmaster_waiting{upstream="u",class="interactive"}'),
    (count) => count === 4,
  );
  const from = systemClock.mono();
  await a.kill();
  const answers = await Promise.all(waiting);
  const tookMs = systemClock.mono() - from;
  assert.ok(answers.every(({ status, whole }) => status === 200 && whole));
  // The soak has a quiet machine and the real lease.
  assert.ok(tookMs <= TTL_S * 1_000 + (SOAK ? 1_000 : 8_000), `${tookMs} ms`);
  assert.ok(peakOf(engine.ledger().entries) <= 4);
});

test("a gateway that stood still past its leases finds them gone, counts them, and does not bring them back above the slots [20.S3]", async () => {
  const upstream = sharedUpstream(engine.url, 4);
  await using frozen = await Member.start(upstream);
  await using other = await Member.start(upstream);
  const long = aTask({ tokens: 100_000, delayBetweenMs: 50 });
  const before4 = Array.from({ length: 4 }, () => startCall(frozen.at, { body: long }));
  await Promise.all(before4.map((one) => one.received("data:")));
  const behind = Array.from({ length: 4 }, () => startCall(other.at, { body: long }));
  frozen.program.kill("SIGSTOP");
  await Promise.all(behind.map((one) => one.received("data:")));
  assert.equal(await countLeases(admin), 4);
  frozen.program.kill("SIGCONT");
  await eventually(
    "the loss to be counted",
    () => frozen.metric('yardmaster_leases_lost_total{upstream="u"}'),
    (count) => count === 4,
    30_000,
  );
  assert.equal(await countLeases(admin), 4, "those of the other gateway");
  for (const one of behind) one.leave();
  // There is room again, and what runs is counted again.
  await eventually(
    "the leases to be taken back",
    () => countLeases(admin),
    (count) => count === 4,
    15_000,
  );
  await eventually(
    "the other to hold none",
    () => other.metric('yardmaster_in_flight{upstream="u",class="interactive"}'),
    (count) => count === 0,
  );
  for (const one of before4) one.leave();
  await eventually(
    "no lease",
    () => countLeases(admin),
    (count) => count === 0,
    15_000,
  );
});

test("a Redis that can't do what is needed keeps a gateway from starting, and is named with what it lacks; its password is not [80.R7 80.I7]", async () => {
  const password = "CANARY-redis-password-1234";
  await admin.call("ACL", "SETUSER", "weak", "on", `>${password}`, "~*", "&*", "+@all", "-eval", "-evalsha");
  const url = `redis://weak:${password}@127.0.0.1:${redis.port}/0`;
  await using made = await programFolder({ ...shareFile(url), upstreams: [sharedUpstream(engine.url, 1)] });
  await using program = runProgram(["gateway", "--config", made.config]);
  const { code, err, out } = await program.end();
  assert.equal(code, 1);
  assert.match(err, /lacks a right.*eval/i);
  assert.equal(`${err}${out}`.includes("CANARY"), false);
});
