import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, beforeEach, test } from "node:test";
import type { Redis } from "ioredis";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { FaultProxy } from "../../src/testing/fault-proxy.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, startCall } from "./support/calls.ts";
import { aChat, accepted, ask, ended, jobOf, submit } from "./support/jobs.ts";
import { adminOf, countLeases, seasonStore, shareFile, UPSTREAM } from "./support/shared-world.ts";
import { startTestGateway, type TestGateway } from "./support/test-gateway.ts";

// A primary and its replica, real servers: one takes over from the other without its last moments, or beside it. Gateways are
// led to a server as by a proxy or a name, each by its own. SOAK=1 runs the full counts.

const SOAK = process.env["SOAK"] === "1";
const ACCEPTED_MIN = SOAK ? 10_000 : 60;
const SPLITS = SOAK ? 100 : 2;
const CLAIM_S = 2;
const never = new AbortController().signal;

let engine: SimEngine;
before(async () => {
  engine = await anEngine({ slots: 256 });
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

/** Gateways on a pair of servers. */
class Pair implements AsyncDisposable {
  readonly gateways: TestGateway[] = [];
  readonly #ways: FaultProxy[] = [];
  readonly primary: OwnRedis;
  readonly replica: OwnRedis;
  readonly #replication: FaultProxy;
  readonly #admins: readonly [Redis, Redis];

  static async open(gateways: number, jobs: Readonly<Record<string, unknown>>): Promise<Pair> {
    const primary = await OwnRedis.start();
    const replication = await FaultProxy.start({ clock: systemClock, target: { port: primary.port } });
    const replica = await OwnRedis.start(["--replicaof", "127.0.0.1", `${replication.port}`]);
    const pair = new Pair(primary, replica, replication);
    await seasonStore(pair.onPrimary);
    await eventually(
      "the replica to follow",
      () => pair.onReplica.info("replication"),
      (text) => text.includes("master_link_status:up"),
    );
    // The link is up at the replica's end while the primary may hold what it writes back for another second.
    await pair.heard();
    for (let i = 0; i < gateways; i += 1) {
      const way = await FaultProxy.start({ clock: systemClock, target: { port: primary.port } });
      pair.#ways.push(way);
      const more = { coordination_timeout_ms: 1_000, jobs: { claim_ttl_s: CLAIM_S, max_attempts: 10, ...jobs } };
      pair.gateways.push(
        await startTestGateway({
          file: shareFile(`redis://127.0.0.1:${way.port}/0`, more),
          upstreams: [
            { id: UPSTREAM, models: ["m"], engine: "vllm", slots: 64, batch_max: 48, endpoints: [{ url: engine.url }] },
          ],
        }),
      );
    }
    return pair;
  }

  private constructor(primary: OwnRedis, replica: OwnRedis, replication: FaultProxy) {
    this.primary = primary;
    this.replica = replica;
    this.#replication = replication;
    this.#admins = [adminOf(primary), adminOf(replica)];
  }

  get onPrimary(): Redis {
    return this.#admins[0];
  }

  get onReplica(): Redis {
    return this.#admins[1];
  }

  gateway(index: number): TestGateway {
    const found = this.gateways[index];
    if (found === undefined) throw new Error(`there is no gateway ${index}`);
    return found;
  }

  /** All that the primary was told so far its replica has heard of. */
  async heard(): Promise<void> {
    const mark = randomUUID();
    await this.onPrimary.set("test:heard", mark);
    await eventually(
      "the replica to hear of it",
      () => this.onReplica.get("test:heard"),
      (found) => found === mark,
    );
  }

  /** What the primary is told from now on its replica does not hear. */
  cut(): void {
    for (const direction of ["upstream", "downstream"] as const)
      this.#replication.add(direction, { kind: "timeout", timeoutMs: 0 });
  }

  async promote(): Promise<void> {
    await this.onReplica.replicaof("NO", "ONE");
  }

  /** The gateway meets the other server at its address. */
  lead(index: number, to: OwnRedis): void {
    this.#ways[index]?.retarget(to.port);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const gateway of this.gateways) await gateway.stop();
    for (const admin of this.#admins) admin.disconnect();
    for (const way of [...this.#ways, this.#replication]) await way.down();
    await this.replica.close();
    await this.primary.close();
  }
}

const away = aChat({ delayHeadMs: 20_000 });

/** Submits from several clients at once until stopped; the ids that were answered 202, in their order. */
class Submits {
  readonly ids: string[] = [];
  readonly #off = new AbortController();
  readonly #done: Promise<unknown>;

  constructor(gateway: TestGateway, clients: number, body = away) {
    this.#done = Promise.all(Array.from({ length: clients }, () => this.#run(gateway, body)));
  }

  async #run(gateway: TestGateway, body: typeof away): Promise<void> {
    while (!this.#off.signal.aborted) {
      const { status, text } = await submit(gateway, { body });
      if (status === 202) this.ids.push((JSON.parse(text) as { id: string }).id);
      else {
        assert.equal(status, 503, text);
        await systemClock.sleep(20, never);
      }
    }
  }

  async stop(): Promise<readonly string[]> {
    this.#off.abort();
    await this.#done;
    return this.ids;
  }
}

/** Submits while the replica takes over without the last moments, and which of those accepted are not there after it. */
async function takeOver(replicas: number): Promise<{ readonly accepted: number; readonly lost: number }> {
  await using pair = await Pair.open(1, { replicas });
  const gateway = pair.gateway(0);
  const submits = new Submits(gateway, 8);
  const [before, during] = SOAK ? [1_500, 300] : [30, 20];
  await eventually(
    "jobs",
    () => submits.ids.length,
    (count) => count >= before,
    60_000,
  );
  pair.cut();
  if (replicas === 0)
    await eventually(
      "jobs that the replica does not hear of",
      () => submits.ids.length,
      (count) => count >= before + during,
    );
  else await systemClock.sleep(400, never);
  await pair.promote();
  pair.lead(0, pair.replica);
  await pair.primary.kill();
  await eventually(
    "the gateway to share again",
    () => gateway.health(),
    ({ coordination }) => coordination.state === "shared",
    30_000,
  );
  const ids = await submits.stop();
  let lost = 0;
  for (const id of ids) {
    const { status } = await eventually(
      "an answer",
      () => ask(gateway, `/${id}`),
      (answer) => answer.status !== 503,
    );
    assert.ok(status === 200 || status === 404, `${status}`);
    lost += Number(status === 404);
  }
  if (replicas === 0) {
    const counted = await eventually(
      "the loss to be told",
      () => gateway.metric("yardmaster_jobs_lost_total"),
      (count) => (count ?? 0) >= lost,
    );
    assert.ok((counted ?? 0) > 0);
    await eventually(
      "the line about it",
      () => gateway.logLines.some((line) => line.includes("jobs.lost")),
      (told) => told,
    );
  } else assert.equal((await gateway.metric("yardmaster_jobs_lost_total")) ?? 0, 0);
  return { accepted: ids.length, lost };
}

test("no job that was accepted with a replica is lost when that replica takes over without the last moments [80.R8 20.J4 80.C28]", async (t) => {
  let total = 0;
  let rounds = 0;
  while (total < ACCEPTED_MIN) {
    const { accepted: count, lost } = await takeOver(1);
    assert.equal(lost, 0);
    assert.ok(count > 0);
    total += count;
    rounds += 1;
  }
  t.diagnostic(`${total} accepted over ${rounds} failovers, none lost`);
});

test("without replicas to wait for, a take-over loses what was not heard of, and the gateway says how much [80.R8]", async (t) => {
  const { accepted: count, lost } = await takeOver(0);
  assert.ok(lost > 0 && lost < count);
  t.diagnostic(`${lost} of ${count} lost`);
});

test("what runs is counted again on the server that takes over, and no more [80.R8 80.I3]", async () => {
  await using pair = await Pair.open(2, {});
  const long = aTask({ tokens: 100_000, delayBetweenMs: 50 });
  const early = pair.gateways.map((gateway) => startCall(gateway, { body: long }));
  await Promise.all(early.map((one) => one.received("data:")));
  await pair.heard();
  pair.cut();
  const late = pair.gateways.flatMap((gateway) => [
    startCall(gateway, { body: long }),
    startCall(gateway, { body: long }),
  ]);
  await Promise.all(late.map((one) => one.received("data:")));
  await pair.promote();
  for (const index of pair.gateways.keys()) pair.lead(index, pair.replica);
  await pair.primary.kill();
  await eventually(
    "six leases",
    () => countLeases(pair.onReplica),
    (count) => count === 6,
    20_000,
  );
  for (const one of [...early, ...late]) one.leave();
  await eventually(
    "no lease",
    () => countLeases(pair.onReplica),
    (count) => count === 0,
    30_000,
  );
});

test("two primaries for a while, each with a gateway at work on the same jobs: one outcome is kept of each, and both tell the same [80.R9 80.I2]", async (t) => {
  let refused = 0;
  for (let round = 0; round < SPLITS; round += 1) {
    await using pair = await Pair.open(2, {});
    const [a, b] = [pair.gateway(0), pair.gateway(1)];
    const jobs: string[] = [];
    // Some end while there are two, some after it.
    for (const delayHeadMs of [1_500, 1_500, 2_500, 6_000, 6_000, 6_000])
      jobs.push((await accepted(a, { body: aChat({ delayHeadMs }) })).id);
    await eventually(
      "all at work",
      () => engine.ledger().concurrentNow,
      (count) => count === jobs.length,
    );
    await pair.heard();
    pair.cut();
    await pair.promote();
    pair.lead(1, pair.replica);
    // By then the claims of the other gateway have run out here, and its jobs are driven again.
    await systemClock.sleep((CLAIM_S + 2) * 1_000, never);
    pair.lead(0, pair.replica);
    await pair.onPrimary.replicaof("127.0.0.1", String(pair.replica.port));
    for (const id of jobs) {
      const done = await ended(b, id, 60_000);
      assert.equal(done.state, "completed", JSON.stringify(done.plan));
      assert.equal(done.plan.filter(({ what }) => what === "ended").length, 1);
      const same = await eventually(
        "the same at the other",
        () => jobOf(a, id),
        ({ state }) => state === "completed",
      );
      assert.deepEqual([same.attempts, same.ended_at, same.result], [done.attempts, done.ended_at, done.result]);
      const results = await Promise.all([a, b].map((gateway) => ask(gateway, `/${id}/result`)));
      assert.equal(results[0]?.text, results[1]?.text);
    }
    await eventually(
      "all calls to end",
      () => engine.ledger().concurrentNow,
      (count) => count === 0,
      30_000,
    );
    const { records } = await b.audit("?limit=500");
    for (const id of jobs)
      assert.ok(records.filter(({ requestId }) => requestId === id).length <= 1, "one record of an end");
    for (const gateway of [a, b])
      for (const why of ["stale", "ended"])
        refused += (await gateway.metric(`yardmaster_job_claims_lost_total{why="${why}"}`)) ?? 0;
    engine.resetLedger();
  }
  assert.ok(refused > 0, "some worker was late");
  t.diagnostic(`${SPLITS} splits, ${refused} late workers refused, no second outcome`);
});
