import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobRecord } from "../../contract/job.ts";
import { isOpen } from "../../contract/job.ts";
import { seededRandom, type Random } from "../../kernel/random.ts";
import { aJob } from "../../testing/a-job.ts";
import { stepJob, type JobEvent } from "./step-job.ts";

// Workers that crash, freeze and come back at any step, over a store that holds the record and nothing else. What an engine
// saw and which outcomes were accepted is counted beside it.

const LEASE_MS = 30_000;
const RESULT = { status: 200, contentType: "text/plain", bytes: 1 };

interface Worker {
  holds: { readonly id: number; readonly token: string } | null;
  /** Does nothing until then, and believes afterwards that it still holds what it held. */
  frozenUntil: number;
}

class World {
  now = 0;
  readonly jobs: JobRecord[];
  readonly starts: number[];
  readonly outcomes: number[];
  readonly liveClaims = new Map<number, Set<string>>();
  staleRefused = 0;
  readonly #random: Random;
  readonly #workers: Worker[];
  #tokens = 0;

  constructor(seed: number, jobs: number, workers: number) {
    this.#random = seededRandom(seed);
    this.jobs = Array.from({ length: jobs }, (_, i) => aJob({ id: `j${i}`, deadlineAt: 10_000_000 }));
    this.starts = this.jobs.map(() => 0);
    this.outcomes = this.jobs.map(() => 0);
    this.#workers = Array.from({ length: workers }, () => ({ holds: null, frozenUntil: 0 }));
  }

  /** True: stored. */
  tell(id: number, event: JobEvent): boolean {
    const step = stepJob(this.jobs[id]!, event, this.now, this.#random);
    if (step.kind === "refused" && step.why === "stale") this.staleRefused += 1;
    if (step.kind !== "moved") return false;
    assert.equal(step.job.version, this.jobs[id]!.version + 1);
    this.jobs[id] = step.job;
    if (step.ended) this.outcomes[id]! += 1;
    this.#check(step.job);
    return true;
  }

  step(faults: boolean): void {
    this.now += Math.floor(this.#random.next() * 4_000);
    for (let id = 0; id < this.jobs.length; id += 1) this.tell(id, { kind: "tick" });
    for (const worker of this.#workers) if (worker.frozenUntil <= this.now) this.#act(worker, faults);
  }

  #act(worker: Worker, faults: boolean): void {
    const dice = this.#random.next();
    if (faults && dice < 0.04) {
      worker.holds = null; // Crashed, and came back knowing nothing.
      return;
    }
    if (faults && dice < 0.08) {
      worker.frozenUntil = this.now + this.#random.next() * 3 * LEASE_MS;
      return;
    }
    if (worker.holds === null) {
      const id = this.jobs.findIndex((job) => job.state === "queued" && job.readyAt <= this.now);
      if (id < 0) return;
      const token = `t${(this.#tokens += 1)}`;
      if (!this.tell(id, { kind: "claim", token, leaseMs: LEASE_MS })) return;
      worker.holds = { id, token };
      this.starts[id]! += 1;
      return;
    }
    const { id, token } = worker.holds;
    const error = { code: "UPSTREAM_ERROR", message: "" } as const;
    if (dice < 0.5) {
      if (!this.tell(id, { kind: "renew", token, leaseMs: LEASE_MS })) worker.holds = null;
      return;
    }
    worker.holds = null;
    if (dice < 0.75) this.tell(id, { kind: "complete", token, result: RESULT, why: "" });
    else if (dice < 0.85) this.tell(id, { kind: "retry", token, error, result: null });
    else if (dice < 0.9) this.tell(id, { kind: "fail", token, error, result: null });
    else if (this.tell(id, { kind: "handBack", token })) this.starts[id]! -= 1; // Nothing had been asked of an engine.
  }

  #check(job: JobRecord): void {
    assert.ok(job.attempts <= job.attemptsMax, "attempts");
    assert.equal(job.claim !== null, job.state === "running", "a claim is there exactly while it runs");
    assert.equal(isOpen(job.state), job.endedAt === null);
  }
}

const SEEDS = Number(process.env["SIM_SEEDS"] ?? 300);
test("with workers that crash and freeze at any step each job has one outcome, and at most three starts [80.I1 80.I2 20.J3]", () => {
  let stale = 0;
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const world = new World(seed, 12, 4);
    for (let i = 0; i < 300; i += 1) world.step(true);
    for (let i = 0; i < 400 && world.jobs.some((job) => isOpen(job.state)); i += 1) world.step(false);
    for (const [id, job] of world.jobs.entries()) {
      assert.ok(!isOpen(job.state), `seed ${seed}: job ${id} is ${job.state}`);
      assert.equal(world.outcomes[id], 1, `seed ${seed}: job ${id} has ${world.outcomes[id]} outcomes`);
      assert.ok(world.starts[id]! <= 3, `seed ${seed}: job ${id} started ${world.starts[id]} times`);
    }
    stale += world.staleRefused;
  }
  assert.ok(stale > SEEDS, "late workers are part of what was tried");
});
