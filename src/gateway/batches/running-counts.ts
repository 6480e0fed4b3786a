import type { BatchRecord } from "../../contract/batch.ts";
import type { JobStore } from "../../coord/jobs/job-store.ts";
import { countsOf } from "../../decide/batches/step-batch.ts";

/** How many lines have an end, those of chunks that still run too. `jobs`: null where none runs. */
export async function runningCounts(
  batch: BatchRecord,
  jobs: Pick<JobStore, "parts"> | null,
): Promise<{ readonly completed: number; readonly failed: number }> {
  let { completed, failed } = countsOf(batch);
  if (jobs === null) return { completed, failed };
  const ids = batch.open.flatMap((chunk) => chunk.jobs);
  for (const parts of await Promise.all(ids.map((id) => jobs.parts(id)))) {
    const bad = parts.filter(({ error }) => error !== null).length;
    failed += bad;
    completed += parts.length - bad;
  }
  return { completed, failed };
}
