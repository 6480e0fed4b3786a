import type { JobStoreLimits } from "../jobs/job-store.ts";
import type { JobTables } from "./job-tables.ts";

/** What the thread of the job database can be asked: the methods of `JobTables`, by name. */
export type JobOperations = Omit<JobTables, "epoch" | "close">;
export type JobOperation = keyof JobOperations;

export interface JobWorkerData {
  readonly path: string;
  readonly limits: JobStoreLimits;
}

export type JobRequest =
  | { readonly kind: "call"; readonly call: number; readonly op: JobOperation; readonly args: readonly unknown[] }
  | { readonly kind: "open"; readonly call: number; readonly now: number }
  | { readonly kind: "close"; readonly call: number };

/** Memory of its own this large changes hands between threads instead of being copied, which would hold up the event loop. */
const GIVEN_BYTES_MIN = 256 * 1024;

/** What of these values changes hands; smaller memory may be shared with other things. */
export function buffersToGive(values: readonly unknown[]): ArrayBuffer[] {
  const given = new Set<ArrayBuffer>();
  for (const value of values)
    if (
      value instanceof Uint8Array &&
      value.buffer instanceof ArrayBuffer &&
      value.buffer.byteLength >= GIVEN_BYTES_MIN
    )
      given.add(value.buffer);
  return [...given];
}
