import { workerData } from "node:worker_threads";
import { serveThread } from "../../kernel/serve-thread.ts";
import { buffersToGive, type JobRequest, type JobWorkerData } from "./job-messages.ts";
import { JobTables } from "./job-tables.ts";

/** The thread that owns the database of jobs: what takes time there holds up nobody's stream. */
const { path, limits } = workerData as JobWorkerData;

let tables: JobTables | undefined;

function answer(request: JobRequest): unknown {
  switch (request.kind) {
    case "open":
      tables ??= new JobTables(path, limits, request.now);
      return tables.epoch;
    case "close":
      tables?.close();
      tables = undefined;
      return null;
    default: {
      if (tables === undefined) throw new Error("the database of jobs is not open");
      const operation = tables[request.op] as (this: JobTables, ...args: readonly unknown[]) => unknown;
      return operation.call(tables, ...request.args);
    }
  }
}

serveThread<JobRequest>("job-worker", answer, { give: (value) => buffersToGive([value]) });
