import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { stringify } from "yaml";
import { systemClock } from "../../src/kernel/clock.ts";
import { seededRandom } from "../../src/kernel/random.ts";
import type { LedgerEntry, SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aChat, accepted, type ask, ended, jobOf } from "./support/jobs.ts";
import { shareFile } from "./support/shared-world.ts";
import { YardmasterProcess } from "./support/yardmaster-process.ts";

// Whole gateways that are killed and frozen. Which calls were made is what the engine's own ledger says.

const KEY = "CANARY-client-0123456789abcdef";
const CLAIM_S = 2;
const SEED = Number(process.env["SIM_SEED"] ?? 7);
/** CI has few; `JOB_CRASH_JOBS=1000` is the long run. */
const JOBS = Number(process.env["JOB_CRASH_JOBS"] ?? 60);

let engine: SimEngine;
before(async () => {
  engine = await anEngine();
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

interface Process extends AsyncDisposable {
  readonly port: number;
  readonly keys: { readonly client: string } & Record<string, string>;
  readonly program: YardmasterProcess;
}

type Asked = Parameters<typeof ask>[0];
const asked = (process: Process): Asked => process as unknown as Asked;

class Gateways implements AsyncDisposable {
  readonly #folder: string;
  readonly #file: Record<string, unknown>;
  readonly #started: YardmasterProcess[] = [];

  private constructor(folder: string, file: Record<string, unknown>) {
    this.#folder = folder;
    this.#file = file;
  }

  static async make(file: Record<string, unknown>): Promise<Gateways> {
    return new Gateways(await mkdtemp(join(tmpdir(), "yardmaster-crash-")), file);
  }

  /** `name` is also its data folder. */
  async start(name: string): Promise<Process> {
    const config = join(this.#folder, `${name}.yaml`);
    const hash = `sha256:${createHash("sha256").update(KEY).digest("hex")}`;
    const file = {
      listen: "127.0.0.1:0",
      data_dir: join(this.#folder, name),
      auth: { keys: [{ id: "c", hash, role: "operator", classes: ["batch", "interactive"] }] },
      jobs: { claim_ttl_s: CLAIM_S },
      upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 8, endpoints: [{ url: engine.url }] }],
      ...this.#file,
    };
    await writeFile(config, stringify(file));
    const program = new YardmasterProcess(["gateway", "--config", config], { cwd: this.#folder });
    this.#started.push(program);
    const port = Number((await program.ready()).split(":").at(-1));
    return { port, keys: { client: KEY }, program, [Symbol.asyncDispose]: () => program[Symbol.asyncDispose]() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const program of this.#started) await program[Symbol.asyncDispose]();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

const callsOf = (id: string): LedgerEntry[] => engine.ledger().entries.filter((entry) => entry.id.startsWith(`${id}.`));
const working = (count: number): Promise<number> =>
  eventually(
    `${count} calls at the engine`,
    () => engine.ledger().concurrentNow,
    (now) => now === count,
    60_000,
  );

test("jobs of a gateway that is killed are driven again by the next one on its data folder [20.J4 80.G3]", async () => {
  await using gateways = await Gateways.make({});
  const first = await gateways.start("one");
  const jobs = [];
  for (let i = 0; i < 12; i += 1) jobs.push(await accepted(asked(first), { body: aChat({ delayHeadMs: 1_500 }) }));
  await working(6);
  first.program.child.kill("SIGKILL");
  await first.program.ended;
  await working(0);
  const second = await gateways.start("one");
  for (const { id } of jobs) {
    const done = await ended(asked(second), id);
    assert.deepEqual([done.state, done.attempts <= 2], ["completed", true], JSON.stringify(done.plan));
    assert.equal(callsOf(id).filter(({ end }) => end === "finished").length, 1, "one answer, one outcome");
  }
});

test("a gateway that is frozen past its claim and goes on is refused: one outcome, the other's, and the double work is counted [80.G4 20.J3]", async () => {
  await using server = await OwnRedis.start();
  await using gateways = await Gateways.make(shareFile(server.url));
  const first = await gateways.start("one");
  const job = await accepted(asked(first), { body: aChat({ delayHeadMs: 10_000 }) });
  await working(1);
  const second = await gateways.start("two");
  first.program.child.kill("SIGSTOP");
  const again = await eventually(
    "the second attempt",
    () => jobOf(asked(second), job.id),
    ({ state, attempts }) => state === "running" && attempts === 2,
    60_000,
  );
  assert.ok(again.plan.some(({ what }) => what === "reclaimed"));
  await eventually(
    "both calls",
    () => callsOf(job.id).length,
    (count) => count === 2,
    30_000,
  );
  first.program.child.kill("SIGCONT");
  const done = await ended(asked(second), job.id);
  assert.deepEqual([done.state, done.attempts], ["completed", 2]);
  const page = await eventually(
    "the loss to be counted",
    async () =>
      (await fetch(`http://127.0.0.1:${first.port}/metrics`, { headers: { authorization: `Bearer ${KEY}` } })).text(),
    (text) => /yardmaster_job_claims_lost_total\{why="(?:stale|ended)"\} 1/.test(text),
  );
  assert.ok(page.length > 0);
  assert.deepEqual(
    callsOf(job.id)
      .map(({ end }) => end)
      .sort(),
    ["aborted", "finished"],
    "the late worker's call is aborted",
  );
});

test("a job whose worker is killed each time is started three times, and others go past it [80.G5 20.J3]", async () => {
  await using server = await OwnRedis.start();
  await using gateways = await Gateways.make(shareFile(server.url));
  let worker = await gateways.start("worker");
  const poison = await accepted(asked(worker), { body: aChat({ hangNoHead: true }) });
  const others: string[] = [];
  const submitOther = async (): Promise<void> => {
    others.push((await accepted(asked(worker), { body: aChat() })).id);
  };
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    await eventually(
      "its call",
      () => callsOf(poison.id).length,
      (count) => count === attempt,
      60_000,
    );
    for (let i = 0; i < 4; i += 1) await submitOther();
    // They go past the poisonous one; those that run when a worker is killed lose an attempt with it.
    for (const id of others) assert.equal((await ended(asked(worker), id)).state, "completed");
    worker.program.child.kill("SIGKILL");
    await worker.program.ended;
    worker = await gateways.start("worker");
  }
  const failed = await ended(asked(worker), poison.id, 90_000);
  assert.deepEqual([failed.state, failed.error?.code, failed.attempts], ["failed", "JOB_INTERRUPTED", 3]);
  assert.equal(callsOf(poison.id).length, 3);
  assert.equal(others.length, 12);
});

test(`${JOBS} jobs while gateways, and Redis with an append-only file, are killed at random: none lost, none with two outcomes [80.I1 80.I2 80.G3]`, async (t) => {
  const random = seededRandom(SEED);
  t.diagnostic(`rerun with SIM_SEED=${SEED}`);
  await using server = await OwnRedis.start(["--appendonly", "yes", "--appendfsync", "always"]);
  await using gateways = await Gateways.make(
    shareFile(server.url, { jobs: { claim_ttl_s: CLAIM_S, max_attempts: 10 } }),
  );
  const alive = [await gateways.start("a"), await gateways.start("b")];
  const jobs: string[] = [];
  const kills = Math.max(4, Math.round(JOBS / 15));
  for (let k = 0; k < kills; k += 1) {
    while (jobs.length < ((k + 1) * JOBS) / kills) {
      const delayHeadMs = Math.floor(random.next() * 400);
      const at = alive[Math.floor(random.next() * alive.length)] as Process;
      try {
        jobs.push((await accepted(asked(at), { body: aChat({ delayHeadMs }) })).id);
      } catch {
        continue; // Not accepted while the store is away: nothing was promised.
      }
    }
    await systemClock.sleep(random.next() * 500, new AbortController().signal);
    if (k % 4 === 3) {
      await server.kill();
      await server.again();
      continue;
    }
    const index = Math.floor(random.next() * alive.length);
    alive[index]?.program.child.kill("SIGKILL");
    await alive[index]?.program.ended;
    alive[index] = await gateways.start(index === 0 ? "a" : "b");
  }
  for (const id of jobs) {
    const done = await ended(asked(alive[0] as Process), id, 90_000);
    assert.equal(done.state, "completed", JSON.stringify(done.plan));
    assert.equal(done.plan.filter(({ what }) => what === "ended").length, 1);
    const calls = callsOf(id);
    assert.ok(
      calls.some(({ end }) => end === "finished"),
      "the engine did what the outcome says",
    );
    assert.ok(new Set(calls.map((entry) => entry.id.split(".")[1])).size <= done.attempts);
  }
  assert.equal(new Set(jobs).size, jobs.length);
});
