import type { JobPart, JobRecord } from "../../contract/job.ts";
import type { JobAsk } from "../../decide/jobs/new-job.ts";
import type { ClaimWish } from "../../decide/jobs/plan-claims.ts";
import type { JobEvent } from "../../decide/jobs/step-job.ts";
import type { Clock } from "../../kernel/clock.ts";
import { startThread } from "../../kernel/start-thread.ts";
import { ThreadCalls } from "../../kernel/thread-calls.ts";
import {
  type ChangeOutcome,
  type JobBlobs,
  type JobCounts,
  type JobListQuery,
  type JobPage,
  type JobRead,
  type JobStore,
  type JobStoreLimits,
  type SubmitOutcome,
  unavailable,
} from "../jobs/job-store.ts";
import {
  buffersToGive,
  type JobOperation,
  type JobOperations,
  type JobRequest,
  type JobWorkerData,
} from "./job-messages.ts";

export interface LocalJobStoreOptions {
  readonly path: string;
  readonly limits: JobStoreLimits;
  readonly clock: Clock;
}

const ANSWER_MS_MAX = 10_000;

type Result<O extends JobOperation> = ReturnType<JobOperations[O]>;

/** Opens the database of jobs in a thread of its own. Rejects with JOB_STORE_UNAVAILABLE when the file can't be used. */
export async function openLocalJobStore(options: LocalJobStoreOptions): Promise<JobStore> {
  const store = new LocalJobStore(options);
  try {
    await store.open();
  } catch (error) {
    await store.close();
    throw error;
  }
  return store;
}

/**
 * Jobs in the embedded SQLite file: durable when a submit has been answered, and this process's alone.
 *
 * Invariants:
 *   L1. Time is the wall clock's at the start and the steady clock's from there on, so that a step of the wall clock ends no lease.
 *   L2. Every call ends within its time; a thread that died is answered for, and the next call starts another.
 */
class LocalJobStore implements JobStore {
  readonly kind = "local";
  readonly durability = "fsync";
  epoch: string | undefined;
  readonly #options: LocalJobStoreOptions;
  readonly #listeners = new Set<(id: string | null) => void>();
  readonly #thread: ThreadCalls<JobRequest>;
  readonly #wallAtStart: number;
  readonly #monoAtStart: number;

  constructor(options: LocalJobStoreOptions) {
    this.#options = options;
    this.#wallAtStart = options.clock.wall();
    this.#monoAtStart = options.clock.mono();
    const { path, limits, clock } = options;
    const workerData: JobWorkerData = { path, limits };
    this.#thread = new ThreadCalls({
      clock,
      start: () => startThread("job-worker", import.meta.url, { name: "jobs", workerData }),
      // After a thread that died the file is opened anew, ahead of what is asked of it.
      onStart: () => {
        if (this.epoch !== undefined) void this.open().catch(() => {});
      },
      answerMsMax: ANSWER_MS_MAX,
      fault: unavailable,
      closed: "it is closed",
    });
  }

  async open(): Promise<void> {
    this.epoch = await this.#thread.ask<string>((call) => ({ kind: "open", call, now: this.#now() }));
  }

  async submit(ask: JobAsk, blobs: JobBlobs): Promise<SubmitOutcome> {
    const args = [ask, [...blobs], this.#now()] as const;
    const outcome = await this.#thread.ask<SubmitOutcome>(
      (call) => ({ kind: "call", call, op: "submit", args }),
      buffersToGive([...blobs.values()]),
    );
    if (outcome.kind === "accepted") this.#tell(outcome.job.id);
    return outcome;
  }

  get(id: string): Promise<JobRead | undefined> {
    return this.#call("get", id, this.#now());
  }

  list(query: JobListQuery): Promise<JobPage> {
    return this.#call("list", query, this.#now());
  }

  async claim(wishes: readonly ClaimWish[], leaseMs: number): Promise<readonly JobRecord[]> {
    const jobs = await this.#call("claim", wishes, leaseMs, this.#now());
    for (const job of jobs) this.#tell(job.id);
    return jobs;
  }

  async change(id: string, event: JobEvent, result?: Buffer): Promise<ChangeOutcome> {
    const outcome = await this.#call("change", id, event, result ?? null, this.#now());
    if (outcome.kind === "forgotten" || (outcome.kind === "moved" && event.kind !== "renew")) this.#tell(id);
    return outcome;
  }

  async writePart(id: string, token: string, part: JobPart, bytes: Buffer | null): Promise<boolean> {
    const written = await this.#call("writePart", id, token, part, bytes);
    if (written) this.#tell(id);
    return written;
  }

  parts(id: string): Promise<readonly JobPart[]> {
    return this.#call("parts", id);
  }

  async readBlob(id: string, name: string): Promise<Buffer | undefined> {
    return bufferOf(await this.#call("readBlob", id, name));
  }

  async readPartBytes(id: string, index: number): Promise<Buffer | undefined> {
    return bufferOf(await this.#call("readPartBytes", id, index));
  }

  async sweep(): Promise<readonly JobRecord[]> {
    const ended = await this.#call("sweep", this.#now());
    for (const job of ended) this.#tell(job.id);
    return ended;
  }

  dueCallbacks(limit: number): Promise<readonly JobRecord[]> {
    return this.#call("dueCallbacks", limit, this.#now());
  }

  counts(): Promise<JobCounts> {
    return this.#call("counts");
  }

  waiting(lanes: readonly string[]): Promise<number> {
    return this.#call("waiting", lanes, this.#now());
  }

  /** Nothing takes over from the file: its jobs are lost with it, and then its epoch is another. */
  takeLost(): number {
    return 0;
  }

  onChange(listener: (id: string | null) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  close(): Promise<void> {
    return this.#thread.close((call) => ({ kind: "close", call }));
  }

  #now(): number {
    return Math.round(this.#wallAtStart + this.#options.clock.mono() - this.#monoAtStart);
  }

  #tell(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }

  #call<O extends JobOperation>(op: O, ...args: Parameters<JobOperations[O]>): Promise<Result<O>> {
    return this.#thread.ask<Result<O>>((call) => ({ kind: "call", call, op, args }));
  }
}

const bufferOf = (bytes: Uint8Array | undefined): Buffer | undefined =>
  bytes === undefined ? undefined : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
