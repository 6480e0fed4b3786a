import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditEvent } from "../../contract/audit-event.ts";
import type { JobRecord } from "../../contract/job.ts";
import type { OverflowPolicy, Tier } from "../../contract/overflow-settings.ts";
import type { DocCommit, DocStore, Doc } from "../../coord/overflow/doc-store.ts";
import { Ledger } from "../../coord/overflow/ledger.ts";
import type { FindOutcome, SubmitOutcome } from "../../decide/overflow/providers/provider-work.ts";
import { stepJob, type JobEvent } from "../../decide/jobs/step-job.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { silentLogger } from "../../kernel/log.ts";
import { seededRandom, type Random } from "../../kernel/random.ts";
import { Secret } from "../../kernel/secret.ts";
import { Signer } from "../../kernel/signer.ts";
import { Registry } from "../../metrics/registry.ts";
import { aJob } from "../../testing/a-job.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import type { UpstreamClient } from "../upstream/port.ts";
import type { ErrandClaim, RunEnd } from "./errand-claim.ts";
import { OverflowDesk } from "./overflow-desk.ts";
import { createOverflowMetrics } from "./overflow-metrics.ts";
import type { Provider } from "./providers/provider.ts";
import { Errands } from "./run-errand.ts";

// Errands over a ledger, a job's record and a cloud that outlive the gateway, which dies at any step by chance. What the cloud was asked to do
// and what it charged is counted beside it.

const LEASE_MS = 30_000;
const PRICE = 1_000_000;

class Crash extends Error {}

class World {
  readonly clock = new VirtualClock();
  readonly random: Random;
  readonly docs = new Map<string, string>();
  readonly audited: AuditEvent[] = [];
  job: JobRecord;
  /** Tasks by their id, with the looks at each. */
  readonly tasks = new Map<string, number>();
  submits = 0;
  charged = 0;
  here = 0;
  busy = true;
  crashes = true;
  submitting: () => SubmitOutcome["kind"] = () => "accepted";
  /** Whatever it says. */
  takes = true;
  /** What a task is said to cost at its end. */
  told: number | undefined = PRICE;
  auditAway = false;
  /** The place can be asked for the task of a job. */
  canFind = false;
  readonly #epoch = "life";
  #known: string | null = null;
  #dead = false;
  policy: OverflowPolicy;

  constructor(seed: number, change: Partial<Tier> = {}, job: Partial<JobRecord> = {}) {
    this.random = seededRandom(seed);
    this.job = aJob({ ...JOB, ...job });
    this.policy = aPolicy(change);
  }

  /** One life of a gateway: until the job is settled there, or the gateway dies. True: it ended by itself. */
  async live(token: string): Promise<boolean> {
    this.#dead = false;
    this.tell({ kind: "tick" });
    if (this.job.claim === null) this.tell({ kind: "claim", token, leaseMs: LEASE_MS });
    const { claim } = this.job;
    if (claim === null) {
      await this.clock.advance(61_000);
      return this.job.endedAt !== null;
    }
    const { desk, errands } = this.gateway();
    desk.apply([this.policy]);
    const stop = new AbortController();
    const run = errands.run(this.claimOf(claim.token, stop.signal));
    const done = run.then(
      (end) => ({ end, crashed: false }),
      (error: unknown) => {
        if (!(error instanceof Crash)) throw error;
        return { end: null as RunEnd | null, crashed: true };
      },
    );
    let over: { end: RunEnd | null; crashed: boolean } | undefined;
    void done.then((value) => (over = value));
    for (let i = 0; i < 200 && over === undefined; i += 1) await this.clock.advance(1_000);
    assert.ok(over !== undefined, "the errand ends");
    if (over.crashed || this.#dead) {
      this.#dead = true;
      await this.clock.advance(LEASE_MS * 2);
      return false;
    }
    if (over.end === null) {
      this.here += 1;
      this.tell({ kind: "complete", token: claim.token, result: RESULT, why: "here" });
    } else this.tell(over.end.event);
    await this.clock.advance(61_000);
    return this.job.endedAt !== null;
  }

  tell(event: JobEvent): void {
    const step = stepJob(this.job, event, this.clock.wall(), this.random);
    if (step.kind === "moved") this.job = step.job;
  }

  /** Anything that the gateway does may be the last that it does: before it, or after. */
  async mayDie<T>(act: () => T): Promise<T> {
    if (this.#dead) throw new Crash();
    const dice = this.crashes ? this.random.next() : 1;
    if (dice < 0.06) this.#die();
    const value = act();
    if (dice < 0.12) this.#die();
    return Promise.resolve(value);
  }

  #die(): never {
    this.#dead = true;
    throw new Crash();
  }

  claimOf(token: string, signal: AbortSignal): ErrandClaim {
    return {
      job: this.job,
      token,
      body: Buffer.from("{}"),
      signal,
      stopped: () => null,
      left: () => {},
      write: (overflow) =>
        this.mayDie(() => {
          this.tell({ kind: "overflow", token, overflow });
          return true;
        }),
    };
  }

  gateway(): { readonly desk: OverflowDesk; readonly errands: Errands; readonly ledger: Ledger } {
    const ledger = new Ledger({
      store: this.#store(),
      memory: { read: () => this.#known, write: (epoch) => void (this.#known = epoch) },
      newEpoch: () => this.#epoch,
      clock: this.clock,
      random: this.random,
      signer: () => Promise.resolve(SIGNER),
    });
    const upstream = {
      unavailable: () => (this.busy ? { reason: "it is away", retryAfterMs: 0 } : null),
      settings: { id: "u", models: [] },
    } as unknown as Upstream;
    const desk = new OverflowDesk({
      clock: this.clock,
      log: silentLogger,
      client: {} as UpstreamClient,
      registry: { byId: () => upstream, all: () => [] } as unknown as UpstreamRegistry,
      ledger: () => ledger,
      makeProvider: () => this.#provider(),
      utilization: () => null,
      jobsWaiting: () => Promise.resolve(0),
      allowsExternal: () => true,
      controlAway: () => false,
    });
    const metrics = createOverflowMetrics(new Registry());
    const errands = new Errands({
      clock: this.clock,
      log: silentLogger,
      audit: this.#audit(),
      desk,
      metrics,
      upstreamIdOf: () => "u",
      resultBytesMax: () => 1_000,
      mayBeAtWork: () => false,
    });
    return { desk, errands, ledger };
  }

  #audit(): AuditSink {
    return {
      record: (event: AuditEvent) => void this.audited.push(event),
      commit: async (event: AuditEvent) => {
        if (this.auditAway) throw new YardmasterError("AUDIT_UNAVAILABLE", "full");
        await this.mayDie(() => this.audited.push(event));
      },
    } as unknown as AuditSink;
  }

  #store(): DocStore {
    return {
      kind: "local",
      load: (names) =>
        this.mayDie(() => ({
          docs: names.map((name): Doc => this.docs.get(name) ?? null),
          now: this.clock.wall() as number,
        })),
      commit: ({ from, writes }: DocCommit) =>
        this.mayDie(() => {
          if (from.some(([name, doc]) => (this.docs.get(name) ?? null) !== doc)) return "changed";
          for (const { name, text } of writes) this.docs.set(name, text);
          return "done";
        }),
      open: () => Promise.resolve([]),
      close: () => Promise.resolve(),
    };
  }

  #provider(): Provider {
    return {
      price: () => ({ kind: "priced", micros: PRICE, currency: "EUR" }),
      submit: () =>
        this.mayDie((): SubmitOutcome => {
          this.submits += 1;
          const kind = this.submitting();
          if (kind === "refused") return { kind, reason: "quota", why: "no" };
          if (kind === "unavailable") return { kind, why: "503" };
          if (kind === "doubtful" && !this.takes) return { kind, why: "429" };
          const id = `task${this.submits}`;
          this.tasks.set(id, 0);
          this.charged += PRICE;
          if (kind === "unknown") return { kind, why: "the answer was lost" };
          if (kind === "doubtful") return { kind, why: "429" };
          if (kind === "done")
            return { kind, result: { status: 200, contentType: "text/plain", body: Buffer.from("x") } };
          return { kind: "accepted", taskId: id };
        }),
      find: () =>
        this.mayDie((): FindOutcome => {
          const [taskId] = this.tasks.keys();
          if (!this.canFind) return { kind: "unknown" };
          return taskId === undefined ? { kind: "none" } : { kind: "found", taskId };
        }),
      poll: (id) =>
        this.mayDie(() => {
          const looks = (this.tasks.get(id) ?? 0) + 1;
          this.tasks.set(id, looks);
          return looks < 3
            ? ({ kind: "running" } as const)
            : ({ kind: "succeeded", result: id, chargedMicros: this.told } as const);
        }),
      fetch: () =>
        this.mayDie(() => ({
          kind: "fetched" as const,
          result: { status: 200, contentType: "text/plain", body: Buffer.from("x") },
        })),
      cancel: () => Promise.resolve({ kind: "cancelled" }),
    };
  }

  doc<T>(name: string): T | undefined {
    const text = this.docs.get(name);
    return text === undefined ? undefined : (JSON.parse(text) as T);
  }
}

const SIGNER = new Signer([new Secret("a-secret-of-the-test-0123456789abcdef")]);
const JOB = { id: "job_a", allowExternal: true, model: null, upstream: "u", deadlineAt: 1e15 } as const;
const RESULT = { status: 200, contentType: "text/plain", bytes: 1 };

const aPolicy = (change: Partial<Tier>): OverflowPolicy => ({
  upstream: "u",
  signals: [],
  onUnreachable: "overflow",
  signalTimeoutMs: 100,
  signalMemoryMs: 0,
  holdMs: 0,
  tiers: [
    {
      id: "t",
      approved: true,
      approval: "tier",
      twoPerson: false,
      budget: { dayMicros: 10 * PRICE, monthMicros: 10 * PRICE },
      priceMicrosMax: null,
      inFlightMax: 4,
      keyPresent: true,
      provider: {} as Tier["provider"],
      ...change,
    },
  ],
});

const SEEDS = Number(process.env["SIM_SEEDS"] ?? 1_000);
test("with a gateway that dies at any step: one call at most, one charge at most, and the money is held exactly where the outcome is unknown [80.O2]", async () => {
  let unknown = 0;
  let paid = 0;
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const world = new World(seed);
    const rerun = `SIM_SEED ${seed}`;
    for (let life = 0; life < 60 && world.job.endedAt === null; life += 1) {
      world.crashes = life < 50;
      await world.live(`token${life}`);
    }
    assert.ok(world.job.endedAt !== null, `${rerun}: ${JSON.stringify(world.job.plan)}`);
    assert.ok(world.submits <= 1, `${rerun}: ${world.submits} calls`);
    const reservation = world.doc<{ state: string; chargedMicros: number | null }>("res/t:job_a");
    if (world.job.error?.code === "OVERFLOW_OUTCOME_UNKNOWN") {
      unknown += 1;
      assert.equal(reservation?.state, "unknown", rerun);
    } else if (world.submits === 1) {
      paid += 1;
      assert.deepEqual([reservation?.state, reservation?.chargedMicros], ["settled", PRICE], rerun);
      assert.equal(world.here, 0, `${rerun}: paid for, and run here as well`);
    } else assert.ok(["void", "reserved", undefined].includes(reservation?.state), rerun);
  }
  assert.ok(unknown > 10 && paid > 10, `${unknown} unknown, ${paid} paid`);
});

async function quietly(change: Partial<Tier> = {}, set: (world: World) => void = () => {}): Promise<World> {
  const world = new World(1, change);
  world.crashes = false;
  set(world);
  for (let life = 0; life < 5 && world.job.endedAt === null; life += 1) await world.live(`token${life}`);
  return world;
}

test("capacity that is back after the money was reserved keeps the job here, and the money is given back [80.O4 50.V3]", async () => {
  const world = await quietly({}, (each) => {
    const { set } = each.docs;
    // The first thing that is written after the look is the reservation.
    each.docs.set = (name, text) => {
      if (name.startsWith("res/")) each.busy = false;
      return set.call(each.docs, name, text);
    };
  });
  assert.deepEqual([world.submits, world.here, world.job.state], [0, 1, "completed"]);
  assert.equal(world.doc<{ state: string }>("res/t:job_a")?.state, "void");
});

for (const outcome of ["refused", "unavailable"] as const)
  test(`a submission that was certainly not taken (${outcome}) costs nothing, is not sent again, and the job runs here [80.O5]`, async () => {
    const world = await quietly({}, (each) => (each.submitting = () => outcome));
    assert.deepEqual([world.submits, world.charged, world.here, world.job.state], [1, 0, 1, "completed"]);
    assert.equal(world.doc<{ state: string }>("res/t:job_a")?.state, "void");
  });

test("an answer that was lost holds the money, fails the job in words, and is not followed by another call or a run here [80.O2 80.O5]", async () => {
  const world = await quietly({}, (each) => (each.submitting = () => "unknown"));
  assert.deepEqual([world.submits, world.here, world.job.error?.code], [1, 0, "OVERFLOW_OUTCOME_UNKNOWN"]);
  assert.equal(world.doc<{ state: string }>("res/t:job_a")?.state, "unknown");
});

test("where the place can be asked by the job's key, a crash at any step and a lost answer end in one call that is followed, and nothing stays held [80.O2 80.C32]", async () => {
  let paid = 0;
  for (let seed = 1; seed <= SEEDS / 4; seed += 1) {
    const world = new World(seed);
    world.canFind = true;
    world.submitting = () => (seed % 2 === 0 ? "unknown" : "accepted");
    const rerun = `SIM_SEED ${seed}`;
    for (let life = 0; life < 60 && world.job.endedAt === null; life += 1) {
      world.crashes = life < 50;
      await world.live(`token${life}`);
    }
    assert.ok(world.job.endedAt !== null && world.submits <= 1, rerun);
    if (world.submits === 0) continue;
    paid += 1;
    const reservation = world.doc<{ state: string; chargedMicros: number | null }>("res/t:job_a");
    assert.deepEqual(
      [world.job.state, reservation?.state, reservation?.chargedMicros, world.here],
      ["completed", "settled", PRICE, 0],
      `${rerun}: ${JSON.stringify(world.job.plan)}`,
    );
  }
  assert.ok(paid > 10, `${paid} paid`);
});

for (const [name, canFind, takes, end] of [
  ["knows the job's task: it is followed and paid for", true, true, ["completed", 0, PRICE, "settled"]],
  ["knows of none: nothing was taken, and the job runs here", true, false, ["completed", 1, 0, "void"]],
  [
    "can't say: the money stays held, and the job is not run a second time",
    false,
    true,
    ["failed", 0, PRICE, "unknown"],
  ],
] as const)
  test(`a place that says that it took nothing is asked whether that is so, and ${name} [80.O2 80.O5]`, async () => {
    const world = await quietly({}, (each) => Object.assign(each, { canFind, takes, submitting: () => "doubtful" }));
    const state = world.doc<{ state: string }>("res/t:job_a")?.state;
    assert.deepEqual([world.job.state, world.here, world.charged, state], end);
    assert.equal(world.submits, 1);
  });

test("a place that refuses the account is out for the next job, which runs here unasked [80.O5]", async () => {
  const world = await quietly({}, (each) => (each.submitting = () => "refused"));
  world.job = aJob({ ...JOB, id: "job_b" });
  await world.live("again");
  assert.deepEqual([world.submits, world.here], [1, 2]);
  assert.deepEqual(world.job.overflow?.lacks, [{ tier: "t", lacks: ["halted"] }]);
});

test("a price that has risen is booked, and the tier gets no other job [80.O5]", async () => {
  const world = await quietly({}, (each) => (each.told = PRICE + 1));
  assert.equal(world.doc<{ chargedMicros: number }>("res/t:job_a")?.chargedMicros, PRICE + 1);
  world.job = aJob({ ...JOB, id: "job_b" });
  await world.live("again");
  assert.deepEqual([world.submits, world.here], [1, 1]);
  assert.deepEqual(world.job.overflow?.lacks, [{ tier: "t", lacks: ["halted"] }]);
});

test("without the audit's record nothing is sent [80.G18]", async () => {
  const world = await quietly({}, (each) => (each.auditAway = true));
  assert.deepEqual([world.submits, world.here], [0, 1]);
  assert.deepEqual(world.job.overflow?.lacks, [{ tier: "t", lacks: ["audit_away"] }]);
});

test("a place that answers at once completes the job with its answer, settled before [50.V5]", async () => {
  const world = await quietly({}, (each) => (each.submitting = () => "done"));
  assert.deepEqual([world.submits, world.here, world.job.state], [1, 0, "completed"]);
  assert.equal(world.doc<{ state: string }>("res/t:job_a")?.state, "settled");
  assert.deepEqual(
    world.audited.map(({ outcome }) => outcome),
    ["money_committed", "money_charged"],
  );
});
