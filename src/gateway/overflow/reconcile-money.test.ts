import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditEvent } from "../../contract/audit-event.ts";
import type { JobErrand, JobRecord } from "../../contract/job.ts";
import type { Ledger, LedgerOutcome } from "../../coord/overflow/ledger.ts";
import { stepLedger, type LedgerEvent, type LedgerView, type Reservation } from "../../decide/overflow/ledger-book.ts";
import type { FindOutcome, PollOutcome } from "../../decide/overflow/providers/provider-work.ts";
import { silentLogger } from "../../kernel/log.ts";
import { aJob } from "../../testing/a-job.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import { MoneyReconciler } from "./reconcile-money.ts";
import type { TierState } from "./tier-state.ts";

const MICROS = 500_000;
const HOUR_MS = 3_600_000;
const EMPTY: LedgerView = { spend: { stopped: null }, account: null, reservation: null, approval: null };

/** One call that began, and whoever would settle it is gone. */
class World {
  readonly clock = new VirtualClock();
  readonly audited: AuditEvent[] = [];
  readonly cancelled: string[] = [];
  job: JobRecord | undefined;
  found: FindOutcome = { kind: "none" };
  look: PollOutcome = { kind: "running" };
  view: LedgerView = EMPTY;
  readonly #reconciler: MoneyReconciler;

  constructor(subject: string) {
    const ask = { id: `t:${subject}`, tier: "t", subject, micros: MICROS, currency: "EUR", ttlMs: HOUR_MS };
    const budget = { dayMicros: null, monthMicros: null };
    this.tell({ kind: "reserve", ...ask, budget, approval: null } as LedgerEvent);
    this.tell({ kind: "begin", approval: null });
    this.#reconciler = new MoneyReconciler({
      clock: this.clock,
      log: silentLogger,
      audit: { record: (event: AuditEvent) => void this.audited.push(event) } as unknown as AuditSink,
      desk: {
        policies: [],
        tierState: () =>
          ({
            provider: {
              find: () => Promise.resolve(this.found),
              poll: () => Promise.resolve(this.look),
              cancel: (id: string) => {
                this.cancelled.push(id);
                return Promise.resolve({ kind: "cancelled" });
              },
            },
          }) as unknown as TierState,
      },
      jobOf: () => Promise.resolve(this.job),
      upstreamIdOf: () => "u",
    });
  }

  tell(event: LedgerEvent): LedgerOutcome {
    const step = stepLedger(this.view, event, this.clock.wall());
    if (step.kind === "refused") return { ...step, why: "" };
    if (step.kind === "moved") this.view = step.view;
    return { kind: "done", view: this.view };
  }

  get state(): string | undefined {
    return this.view.reservation?.state;
  }

  async rounds(count: number): Promise<void> {
    const ledger = {
      reservations: () =>
        Promise.resolve(
          [this.view.reservation].filter(
            (each): each is Reservation => each !== null && ["reserved", "begun", "unknown"].includes(each.state),
          ),
        ),
      settle: (_name: unknown, chargedMicros: number | null) =>
        Promise.resolve(this.tell({ kind: "settle", chargedMicros })),
      outcomeUnknown: (_name: unknown, why: string) => Promise.resolve(this.tell({ kind: "unknown", why })),
    } as unknown as Ledger;
    for (let round = 0; round < count; round += 1) await this.#reconciler.round(ledger);
  }
}

const errand = (change: Partial<JobErrand> = {}): JobErrand => ({
  tier: "t",
  reservation: "t:job_a",
  micros: MICROS,
  currency: "EUR",
  taskId: null,
  paidMicros: null,
  state: "intended",
  ...change,
});
const ended = (world: World, change: Partial<JobErrand> | null): JobRecord =>
  aJob({
    id: "job_a",
    state: "cancelled",
    endedAt: world.clock.wall(),
    overflow: {
      card: "loaded",
      why: "",
      decision: "tier",
      tier: "t",
      signals: [],
      lacks: [],
      errand: change === null ? null : errand(change),
      at: 0,
      heldSince: null,
    },
  });

test("a call of a job that is open, or that nobody knows, is left to whoever has it [80.C32]", async () => {
  const world = new World("job_a");
  await world.rounds(20);
  assert.equal(world.state, "begun");
  world.job = aJob({ id: "job_a", state: "running" });
  await world.clock.advance(10 * HOUR_MS);
  await world.rounds(20);
  assert.deepEqual([world.state, world.audited.length, world.cancelled], ["begun", 0, []]);
});

test("a job that ended elsewhere before it was known whether its call was taken has its money held, and said so once [80.C32 80.O2]", async () => {
  const world = new World("job_a");
  world.job = ended(world, {});
  await world.rounds(3);
  assert.equal(world.state, "begun");
  await world.clock.advance(130_000);
  await world.rounds(30);
  assert.deepEqual([world.state, world.audited.map(({ outcome }) => outcome)], ["unknown", ["money_held"]]);
});

test("a job that ended elsewhere with its task under way has it called off, and what was reserved is spent [80.C32 80.O2]", async () => {
  const world = new World("job_a");
  world.job = ended(world, { taskId: "task1", state: "accepted" });
  await world.clock.advance(130_000);
  await world.rounds(3);
  assert.deepEqual(
    [world.state, world.cancelled, world.view.reservation?.chargedMicros],
    ["settled", ["task1"], MICROS],
  );
  assert.deepEqual(
    world.audited.map(({ outcome }) => outcome),
    ["money_charged"],
  );
});

test("a job whose own note says what was paid is settled at that, whatever else is known [80.C32]", async () => {
  const world = new World("job_a");
  world.job = ended(world, { taskId: "task1", paidMicros: 300_000, state: "ended" });
  await world.rounds(1);
  assert.deepEqual([world.state, world.view.reservation?.chargedMicros, world.cancelled], ["settled", 300_000, []]);
});

test("what nobody knew stays held until the place says by the job's key what became of it [80.C32 80.O2]", async () => {
  const world = new World("job_a");
  world.job = ended(world, {});
  world.tell({ kind: "unknown", why: "the answer was lost" });
  await world.rounds(24);
  assert.equal(world.state, "unknown");
  world.found = { kind: "found", taskId: "task1" };
  for (const look of [{ kind: "running" }, { kind: "unavailable", why: "" }, { kind: "lost", why: "" }] as const) {
    world.look = look;
    await world.rounds(12);
    assert.equal(world.state, "unknown", look.kind);
  }
  world.look = { kind: "succeeded", result: "x", chargedMicros: 400_000 };
  await world.rounds(12);
  assert.deepEqual([world.state, world.view.reservation?.chargedMicros], ["settled", 400_000]);
  assert.deepEqual(
    world.audited.map(({ outcome }) => outcome),
    ["money_charged"],
  );
});

test("a chat whose gateway ended inside it is held by name once it can't be under way any more [80.C32 80.O2]", async () => {
  const world = new World("call_0123456789abcdef");
  await world.clock.advance(HOUR_MS);
  await world.rounds(24);
  assert.equal(world.state, "begun");
  await world.clock.advance(HOUR_MS);
  await world.rounds(24);
  assert.deepEqual([world.state, world.audited.map(({ outcome }) => outcome)], ["unknown", ["money_held"]]);
});
