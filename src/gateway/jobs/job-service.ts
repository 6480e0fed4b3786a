import type { JobRecord, JobState } from "../../contract/job.ts";
import type { JobBlobs, JobPage, JobRead } from "../../coord/jobs/job-store.ts";
import type { JobAsk } from "../../decide/jobs/new-job.ts";
import type { RequestKey } from "../../access/request-key.ts";

/** What a job is made of, by whoever submits it: the jobs route, or a façade. */
export interface JobOrder extends Pick<
  JobAsk,
  "class" | "model" | "upstream" | "method" | "path" | "contentType" | "parts" | "allowPartial" | "onShed" | "metadata"
> {
  readonly callbackUrl: string | null;
  /** Null: the configured one. */
  readonly deadlineMs: number | null;
  /** `body`, or `body/0` and on for the parts. */
  readonly blobs: JobBlobs;
  /** `route` is part of the key's scope. */
  readonly idempotency: { readonly key: string; readonly route: string; readonly fingerprint: string } | null;
}

export interface Submitted {
  readonly job: JobRecord;
  /** The same request had been accepted before, under the same idempotency key. */
  readonly replayed: boolean;
}

/**
 * Durable jobs, for whoever offers them to clients. Whether the key may use the model or upstream is the caller's to judge,
 * before. All methods reject with a `YardmasterError`: JOB_STORE_UNAVAILABLE where the store can't be used; for an id JOB_UNKNOWN,
 * STORE_LOST or JOB_IN_OTHER_STORE. A job of another key is JOB_UNKNOWN, but for operators and administrators.
 */
export interface JobService {
  /** Also rejects with IDEMPOTENCY_MISMATCH, QUEUE_FULL, CALLBACK_FORBIDDEN, DRAINING. Resolved: the job is durable. */
  submit(order: JobOrder, key: RequestKey): Promise<Submitted>;
  get(id: string, key: RequestKey): Promise<JobRead>;
  /** Resolves when the job has ended or `ms` have passed, with what it is then. Rejects with the signal's reason. */
  wait(id: string, key: RequestKey, ms: number, signal: AbortSignal): Promise<JobRead>;
  /** What is there when it differs from `seen`, a mark of `markOf`, or after `ms`. */
  waitForChange(id: string, key: RequestKey, seen: string, ms: number, signal: AbortSignal): Promise<JobRead>;
  list(
    query: { readonly state: JobState | null; readonly limit: number; readonly cursor: number | null },
    key: RequestKey,
  ): Promise<JobPage>;
  /** Ends it where it has not ended. A running engine call is aborted. */
  cancel(id: string, key: RequestKey): Promise<JobRead>;
  /** Of a job that has ended nothing is kept; its id is JOB_UNKNOWN from then on. Rejects with JOB_NOT_DONE for an open one. */
  forget(id: string, key: RequestKey): Promise<void>;
  /**
   * The bytes of a completed job in pieces, in order; of a failed one the engine's own words, where it had any. Rejects with
   * JOB_NOT_DONE, JOB_CANCELLED, or the job's own error.
   */
  result(id: string, key: RequestKey): Promise<JobAnswer>;
}

export interface JobAnswer {
  readonly job: JobRecord;
  readonly status: number;
  readonly contentType: string;
  /** Undefined where it is only known at the end. */
  readonly bytes: number | undefined;
  pieces(): AsyncIterable<Buffer>;
}

/** Tells two states of a job apart. */
export const markOf = ({ job, partsDone }: JobRead): string => `${job.version}.${partsDone}`;
