import type { JobPart, JobRecord, JobState } from "../../contract/job.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { JobAsk } from "../../decide/jobs/new-job.ts";
import type { ClaimWish } from "../../decide/jobs/plan-claims.ts";
import type { JobEvent, JobStep } from "../../decide/jobs/step-job.ts";
import { YardmasterError } from "../../kernel/errors.ts";

/** Bytes of a job by their name: `body`, `body/3` (of part 3), `result`. */
export type JobBlobs = ReadonlyMap<string, Buffer>;

export type SubmitOutcome =
  | { readonly kind: "accepted"; readonly job: JobRecord }
  /** The same request was accepted before, under the same idempotency key. */
  | { readonly kind: "replayed"; readonly job: JobRecord }
  | { readonly kind: "mismatch" }
  /** The store holds as many jobs, or bytes, as it may. */
  | { readonly kind: "full"; readonly what: "jobs" | "bytes" };

export type ChangeOutcome =
  | { readonly kind: "moved"; readonly job: JobRecord; readonly ended: boolean }
  | { readonly kind: "same"; readonly job: JobRecord }
  | { readonly kind: "forgotten"; readonly job: JobRecord }
  | { readonly kind: "refused"; readonly why: Extract<JobStep, { kind: "refused" }>["why"]; readonly job: JobRecord }
  | { readonly kind: "unknown" };

export interface JobRead {
  readonly job: JobRecord;
  /** Parts that have ended, well or not. */
  readonly partsDone: number;
  /** The store's clock. */
  readonly now: number;
}

export interface JobListQuery {
  /** Null: of all keys. */
  readonly keyId: string | null;
  readonly state: JobState | null;
  readonly limit: number;
  /** Of the page before. */
  readonly cursor: number | null;
}

export interface JobPage {
  /** Newest first. */
  readonly jobs: readonly JobRead[];
  /** For the next page; null: there is none. */
  readonly cursor: number | null;
}

export interface JobCounts {
  readonly queued: Readonly<Record<RequestClass, number>>;
  readonly running: Readonly<Record<RequestClass, number>>;
  /** Open and ended ones. */
  readonly kept: number;
  readonly bytes: number;
  /** Words of an end that have still to be sent. */
  readonly callbacks: number;
}

export interface JobStoreLimits {
  /** Jobs kept, ended ones included. */
  readonly jobsMax: number;
  /** Bytes of requests and results. */
  readonly bytesMax: number;
}

/**
 * Where jobs live. What may happen to a job is decided by `stepJob` alone; a store loads a record, asks, and writes the new
 * one over the version that it loaded, together with all that follows from it, in one step.
 *
 * Invariants:
 *   S1. A change is written whole or not at all, and only over the version that it was made from.
 *   S2. `submit` resolves when the job is as durable as `durability` says. The idempotency key is written in the same step.
 *   S3. Every method ends: by its result, or by a rejection with JOB_STORE_UNAVAILABLE, after which nobody can know whether it
 *       took effect. Each may be repeated: told twice, an event changes nothing the second time.
 *   S4. Jobs and bytes are bounded; what is kept is forgotten by its own time only.
 */
export interface JobStore {
  readonly kind: "local" | "redis";
  /** What an accepted job survives, in a word for the answer. */
  readonly durability: "fsync" | "replicated" | "server";
  /** Names this life of the store; another one after it was emptied. Undefined until the store was reached. */
  readonly epoch: string | undefined;
  /** The bytes are the store's from then on: a large body goes to a thread as it is, and can't be read here any more. */
  submit(ask: JobAsk, blobs: JobBlobs): Promise<SubmitOutcome>;
  /** Where it is undefined, `epoch` is that of the store that was looked in. */
  get(id: string): Promise<JobRead | undefined>;
  list(query: JobListQuery): Promise<JobPage>;
  /** Jobs that are this worker's now, each with a token of its own. */
  claim(wishes: readonly ClaimWish[], leaseMs: number): Promise<readonly JobRecord[]>;
  /** `result`: the bytes that belong to an outcome. */
  change(id: string, event: JobEvent, result?: Buffer): Promise<ChangeOutcome>;
  /** False: the claim is no longer the token's. */
  writePart(id: string, token: string, part: JobPart, bytes: Buffer | null): Promise<boolean>;
  parts(id: string): Promise<readonly JobPart[]>;
  /** Undefined: there are none of this name. */
  readBlob(id: string, name: string): Promise<Buffer | undefined>;
  readPartBytes(id: string, index: number): Promise<Buffer | undefined>;
  /** Lets time pass: claims that ran out, deadlines, jobs to forget. The jobs that ended by it. */
  sweep(): Promise<readonly JobRecord[]>;
  /** Jobs whose end is to be told now. */
  dueCallbacks(limit: number): Promise<readonly JobRecord[]>;
  counts(): Promise<JobCounts>;
  /** Jobs of these lanes that could be claimed now. */
  waiting(lanes: readonly string[]): Promise<number>;
  /** How many accepted jobs the store lacks at most that it had in this same life, as far as was found since the last call. */
  takeLost(): number;
  /** Called after changes, also those of other gateways where the store tells of them; the id, or null: anything may have. */
  onChange(listener: (id: string | null) => void): Disposable;
  close(): Promise<void>;
}

/** For S3. `why` in words. */
export const unavailable = (why: string): YardmasterError =>
  new YardmasterError("JOB_STORE_UNAVAILABLE", `the store of the jobs can't be used: ${why}`);
