import type { Worker } from "node:worker_threads";
import type { JobPart, JobRecord } from "../../contract/job.ts";
import type { JobAsk } from "../../decide/jobs/new-job.ts";
import type { ClaimWish } from "../../decide/jobs/plan-claims.ts";
import type { JobEvent } from "../../decide/jobs/step-job.ts";
import type { Clock } from "../../kernel/clock.ts";
import { startThread } from "../../kernel/start-thread.ts";
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
  type JobReply,
  type JobRequest,
  type JobWorkerData,
} from "./job-messages.ts";

export interface LocalJobStoreOptions {
  readonly path: string;
  readonly limits: JobStoreLimits;
  readonly clock: Clock;
}

const ANSWER_MS_MAX = 10_000;
/** Calls under way at once; each holds its bytes until it is answered. */
const CALLS_MAX = 2_000;

interface Call {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  readonly timer: { cancel(): void };
}

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
  readonly #calls = new Map<number, Call>();
  readonly #wallAtStart: number;
  readonly #monoAtStart: number;
  #worker: Worker | undefined;
  #count = 0;
  #closed = false;

  constructor(options: LocalJobStoreOptions) {
    this.#options = options;
    this.#wallAtStart = options.clock.wall();
    this.#monoAtStart = options.clock.mono();
  }

  async open(): Promise<void> {
    this.epoch = await this.#ask<string>((call) => ({ kind: "open", call, now: this.#now() }));
  }

  async submit(ask: JobAsk, blobs: JobBlobs): Promise<SubmitOutcome> {
    const args = [ask, [...blobs], this.#now()] as const;
    const outcome = await this.#ask<SubmitOutcome>(
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

  async close(): Promise<void> {
    if (this.#closed) return;
    const worker = this.#worker;
    try {
      if (worker !== undefined) await this.#ask((call) => ({ kind: "close", call }));
    } catch {
      // What was answered is on disk; a thread that does not answer has nothing more to give.
    }
    this.#closed = true;
    this.#worker = undefined;
    await worker?.terminate();
  }

  #now(): number {
    return Math.round(this.#wallAtStart + this.#options.clock.mono() - this.#monoAtStart);
  }

  #tell(id: string): void {
    for (const listener of this.#listeners) listener(id);
  }

  #call<O extends JobOperation>(op: O, ...args: Parameters<JobOperations[O]>): Promise<Result<O>> {
    return this.#ask<Result<O>>((call) => ({ kind: "call", call, op, args }));
  }

  #ask<T>(request: (call: number) => JobRequest, give: readonly ArrayBuffer[] = []): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#closed) return reject(unavailable("it is closed"));
      if (this.#calls.size >= CALLS_MAX) return reject(unavailable("too many calls wait for it"));
      const call = (this.#count += 1);
      const timer = this.#options.clock.after(ANSWER_MS_MAX, () =>
        this.#end(call, (waiting) => waiting.reject(unavailable(`no answer within ${ANSWER_MS_MAX} ms`))),
      );
      this.#calls.set(call, { resolve, reject, timer });
      try {
        this.#ensureWorker().postMessage(request(call), give);
      } catch (error) {
        this.#end(call, (waiting) => waiting.reject(unavailable(error instanceof Error ? error.message : "no thread")));
      }
    });
  }

  #ensureWorker(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const { path, limits } = this.#options;
    const workerData: JobWorkerData = { path, limits };
    const worker = startThread("job-worker", import.meta.url, { name: "jobs", workerData });
    worker.on("message", (reply: JobReply) => this.#onReply(reply));
    worker.on("error", (error) => this.#onWorkerEnd(worker, error instanceof Error ? error.message : String(error)));
    worker.on("exit", () => this.#onWorkerEnd(worker, "its thread ended"));
    this.#worker = worker;
    // After a thread that died the file is opened anew, ahead of what is asked of it.
    if (this.epoch !== undefined) void this.open().catch(() => {});
    return worker;
  }

  #onReply(reply: JobReply): void {
    this.#end(reply.call, (waiting) => {
      if (reply.kind === "done") waiting.resolve(reply.value as never);
      else waiting.reject(unavailable(reply.why));
    });
  }

  #onWorkerEnd(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    for (const call of [...this.#calls.keys()]) this.#end(call, (waiting) => waiting.reject(unavailable(why)));
  }

  #end(call: number, act: (waiting: Call) => void): void {
    const waiting = this.#calls.get(call);
    if (waiting === undefined) return;
    this.#calls.delete(call);
    waiting.timer.cancel();
    act(waiting);
  }
}

const bufferOf = (bytes: Uint8Array | undefined): Buffer | undefined =>
  bytes === undefined ? undefined : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
