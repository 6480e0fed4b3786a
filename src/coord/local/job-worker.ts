import { parentPort, workerData } from "node:worker_threads";
import type { ThreadReply } from "../../kernel/thread-calls.ts";
import { buffersToGive, type JobRequest, type JobWorkerData } from "./job-messages.ts";
import { JobTables } from "./job-tables.ts";

/** The thread that owns the database of jobs: what takes time there holds up nobody's stream. */
const port = parentPort;
if (port === null) throw new Error("job-worker runs as a worker thread only");
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

port.on("message", (request: JobRequest) => {
  let reply: ThreadReply;
  try {
    reply = { kind: "done", call: request.call, value: answer(request) };
  } catch (error) {
    reply = { kind: "failed", call: request.call, why: error instanceof Error ? error.message : String(error) };
  }
  port.postMessage(reply, reply.kind === "done" ? buffersToGive([reply.value]) : []);
  if (request.kind === "close") port.close();
});
