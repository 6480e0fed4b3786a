import { randomBytes } from "node:crypto";
import type { DatabaseSync } from "node:sqlite";
import { isOpen, laneOf, type JobPart, type JobRecord } from "../../contract/job.ts";
import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";
import { decideSubmit } from "../../decide/jobs/decide-submit.ts";
import { placeInLane } from "../../decide/jobs/fair-order.ts";
import { newJob, type JobAsk } from "../../decide/jobs/new-job.ts";
import type { ClaimWish } from "../../decide/jobs/plan-claims.ts";
import { stepJob, type JobEvent } from "../../decide/jobs/step-job.ts";
import { inTransaction, openEmbedded } from "../../kernel/embedded-db.ts";
import { systemRandom } from "../../kernel/random.ts";
import type {
  ChangeOutcome,
  JobCounts,
  JobListQuery,
  JobPage,
  JobRead,
  JobStoreLimits,
  SubmitOutcome,
} from "../jobs/job-store.ts";
import { jobFormat, prepareJobStatements } from "./job-schema.ts";

/**
 * The embedded database of jobs. Synchronous: only the thread of `job-worker.ts` may use it.
 *
 * Invariants:
 *   T1. One call is one transaction. What must survive a loss of power is synced before the call returns.
 *   T2. The columns beside `record` are written from the record in the same statement: they are its index, nothing more.
 *   T3. One process has the file, so a claim found at the start belongs to one that has ended: it runs out at once.
 */
const SWEPT_MAX = 200;
const TOKEN_BYTES = 16;
const EPOCH_BYTES = 4;

export class JobTables {
  readonly #db: DatabaseSync;
  readonly #limits: JobStoreLimits;
  readonly #sql: ReturnType<typeof prepareJobStatements>;
  readonly epoch: string;
  #synced: boolean | undefined;

  constructor(path: string, limits: JobStoreLimits, now: number) {
    this.#db = openEmbedded(path, jobFormat(randomBytes(EPOCH_BYTES).toString("hex")), (db) => db);
    this.#limits = limits;
    try {
      this.#sql = prepareJobStatements(this.#db);
      this.epoch = this.#sql.epoch.get()?.["epoch"] as string;
      this.#endOldClaims(now);
    } catch (error) {
      this.#db.close();
      throw error;
    }
  }

  submit(ask: JobAsk, blobs: readonly (readonly [string, Uint8Array])[], now: number): SubmitOutcome {
    return this.#transaction(true, () => {
      const { idempotency } = ask;
      const known = idempotency === null ? undefined : this.#byScope(idempotency.scope);
      const decision = decideSubmit(known, idempotency?.fingerprint ?? "");
      if (decision.kind === "mismatch") return decision;
      if (decision.kind === "replay") return { kind: "replayed", job: known as JobRecord };
      const { kept, bytes } = this.#totals();
      if (kept >= this.#limits.jobsMax) return { kind: "full", what: "jobs" };
      if (bytes + ask.bodyBytes > this.#limits.bytesMax) return { kind: "full", what: "bytes" };
      const instead = decision.kind === "afresh" ? decision.instead : null;
      if (instead !== null) this.#sql.dropScope.run(instead);
      const id = `job_${this.epoch}_${randomBytes(TOKEN_BYTES).toString("base64url")}`;
      const seq = ((this.#sql.lastSeq.get()?.["seq"] as number | null) ?? 0) + 1;
      const job = newJob(ask, { id, seq, order: this.#takePlace(ask), now, instead });
      this.#sql.insert.run(...this.#columns(job), idempotency?.scope ?? null, ask.bodyBytes, id);
      for (const [name, data] of blobs) this.#sql.putBlob.run(id, name, data);
      return { kind: "accepted", job };
    });
  }

  get(id: string, now: number): JobRead | undefined {
    const job = this.#load(id);
    return job === undefined ? undefined : this.#read(job, now);
  }

  list({ keyId, state, limit, cursor }: JobListQuery, now: number): JobPage {
    const rows = this.#sql.list.all(cursor ?? Number.MAX_SAFE_INTEGER, keyId, state, limit + 1);
    const jobs = rows.slice(0, limit).map((row) => this.#read(recordOf(row), now));
    return { jobs, cursor: rows.length > limit ? (jobs.at(-1)?.job.seq ?? null) : null };
  }

  claim(wishes: readonly ClaimWish[], leaseMs: number, now: number): JobRecord[] {
    return this.#transaction(false, () => {
      const claimed: JobRecord[] = [];
      for (const wish of wishes) {
        const ready = wish.fromEnd === true ? this.#sql.readyFromEnd : this.#sql.ready;
        const rows = ready.all(wish.class, JSON.stringify(wish.lanes), now, wish.max);
        for (const row of rows) {
          const token = randomBytes(TOKEN_BYTES).toString("base64url");
          const step = stepJob(recordOf(row), { kind: "claim", token, leaseMs }, now, systemRandom);
          if (step.kind !== "moved") continue;
          this.#save(step.job);
          if (wish.fromEnd !== true) this.#sql.moveFront.run(wish.class, step.job.order);
          claimed.push(step.job);
        }
      }
      return claimed;
    });
  }

  change(id: string, event: JobEvent, result: Uint8Array | null, now: number): ChangeOutcome {
    // A renewal is worth nothing after a restart, so it does not wait for the disk.
    return this.#transaction(event.kind !== "renew", () => {
      const job = this.#load(id);
      if (job === undefined) return { kind: "unknown" };
      const step = stepJob(job, event, now, systemRandom);
      if (step.kind === "refused") return { ...step, job };
      if (step.kind === "forgotten") {
        this.#forget(id);
        return { kind: "forgotten", job };
      }
      if (step.kind !== "moved") return { kind: "same", job };
      this.#save(step.job);
      if (result !== null) this.#keepBytes(id, result.length, () => this.#sql.putBlob.run(id, "result", result));
      return step;
    });
  }

  writePart(id: string, token: string, part: JobPart, bytes: Uint8Array | null): boolean {
    // Not waited for: a part that the end of the power takes is done again, and the job's own end is synced behind it.
    return this.#transaction(false, () => {
      if (this.#load(id)?.claim?.token !== token) return false;
      this.#keepBytes(id, bytes?.length ?? 0, () => this.#sql.putPart.run(id, part.index, JSON.stringify(part), bytes));
      return true;
    });
  }

  parts(id: string): JobPart[] {
    return this.#sql.parts.all(id).map((row) => JSON.parse(row["part"] as string) as JobPart);
  }

  readBlob(id: string, name: string): Uint8Array | undefined {
    return this.#sql.blob.get(id, name)?.["bytes"] as Uint8Array | undefined;
  }

  readPartBytes(id: string, index: number): Uint8Array | undefined {
    return (this.#sql.partBytes.get(id, index)?.["bytes"] ?? undefined) as Uint8Array | undefined;
  }

  sweep(now: number): JobRecord[] {
    return this.#transaction(true, () => {
      const ended: JobRecord[] = [];
      for (const row of this.#sql.due.all(now, now, now, SWEPT_MAX)) {
        const job = recordOf(row);
        const { partsDone } = this.#read(job, now);
        const step = stepJob(job, { kind: "tick", partsDone }, now, systemRandom);
        if (step.kind === "forgotten") this.#forget(job.id);
        if (step.kind !== "moved") continue;
        this.#save(step.job);
        if (step.ended) ended.push(step.job);
      }
      this.#sql.dropTurns.run();
      return ended;
    });
  }

  dueCallbacks(limit: number, now: number): JobRecord[] {
    return this.#sql.callbacks.all(now, limit).map(recordOf);
  }

  counts(): JobCounts {
    const of = (state: string): Record<RequestClass, number> => {
      const counts = { interactive: 0, system: 0, batch: 0 };
      for (const row of this.#sql.byClass.all(state)) counts[row["class"] as RequestClass] = row["n"] as number;
      return counts;
    };
    const callbacks = this.#sql.callbackCount.get()?.["n"] as number;
    return { queued: of("queued"), running: of("running"), ...this.#totals(), callbacks };
  }

  waiting(lanes: readonly string[], now: number): number {
    // By class, as the index is.
    const row = this.#sql.waiting.get(JSON.stringify(REQUEST_CLASSES), JSON.stringify(lanes), now);
    return row?.["n"] as number;
  }

  close(): void {
    this.#db.close();
  }

  #read(job: JobRecord, now: number): JobRead {
    return { job, partsDone: job.parts === null ? 0 : (this.#sql.partsDone.get(job.id)?.["n"] as number), now };
  }

  #load(id: string): JobRecord | undefined {
    const row = this.#sql.load.get(id);
    return row === undefined ? undefined : recordOf(row);
  }

  #byScope(scope: string): JobRecord | undefined {
    const row = this.#sql.byScope.get(scope);
    return row === undefined ? undefined : recordOf(row);
  }

  #forget(id: string): void {
    for (const sql of this.#sql.forget) sql.run(id);
  }

  #save(job: JobRecord): void {
    this.#sql.update.run(...this.#columns(job), job.id);
  }

  #columns(job: JobRecord): (string | number | null)[] {
    const { callback } = job;
    return [
      JSON.stringify(job),
      job.seq,
      job.keyId,
      job.class,
      laneOf(job),
      job.state,
      job.order,
      job.readyAt,
      job.claim?.until ?? null,
      isOpen(job.state) ? job.deadlineAt : null,
      job.expiresAt,
      callback?.state === "waiting" ? callback.nextAt : null,
    ];
  }

  #keepBytes(id: string, bytes: number, write: () => void): void {
    write();
    this.#sql.addBytes.run(bytes, id);
  }

  #totals(): { readonly kept: number; readonly bytes: number } {
    const row = this.#sql.totals.get();
    return { kept: row?.["kept"] as number, bytes: row?.["bytes"] as number };
  }

  #takePlace(ask: JobAsk): number {
    const front = (this.#sql.front.get(ask.class)?.["place"] as number | undefined) ?? 0;
    const last = this.#sql.turn.get(ask.class, ask.keyId)?.["last"] as number | undefined;
    const place = placeInLane(front, last, ask.weight);
    this.#sql.setTurn.run(ask.class, ask.keyId, place);
    return place;
  }

  #endOldClaims(now: number): void {
    this.#transaction(false, () => {
      for (const row of this.#sql.claimed.all()) {
        const job = recordOf(row);
        if (job.claim !== null) this.#save({ ...job, claim: { ...job.claim, until: now } });
      }
    });
  }

  #transaction<T>(synced: boolean, body: () => T): T {
    if (this.#synced !== synced) this.#db.exec(`PRAGMA synchronous = ${synced ? "FULL" : "NORMAL"}`);
    this.#synced = synced;
    return inTransaction(this.#db, body);
  }
}

const recordOf = (row: Record<string, unknown>): JobRecord => JSON.parse(row["record"] as string) as JobRecord;
