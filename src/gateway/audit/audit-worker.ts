import { parentPort, workerData } from "node:worker_threads";
import { assertNever } from "../../kernel/assert-never.ts";
import type { AuditReply, AuditRequest, AuditWorkerData } from "./audit-messages.ts";
import { type AuditStore, openAuditStore } from "./audit-store.ts";

/**
 * The thread that owns the audit database. It opens the file at the first request and again after any error, so that a
 * lock, a full disk or a replaced file heals without a restart. When to try again is the sender's decision.
 */
const port = parentPort;
if (port === null) throw new Error("audit-worker runs as a worker thread only");
const { path, max, runId } = workerData as AuditWorkerData;

let store: AuditStore | undefined;

function handle(request: AuditRequest): AuditReply {
  const { id, now } = request;
  try {
    store ??= openAuditStore(path, max, runId, now);
    switch (request.kind) {
      case "write":
        store.write(request.batch, now);
        return { kind: "written", id };
      case "query":
        return { kind: "page", id, page: store.query(request.query) };
      case "close":
        store.close(request.lastOrdinal, now);
        store = undefined;
        return { kind: "closed", id };
      default:
        return assertNever(request, "audit request");
    }
  } catch (err) {
    try {
      store?.abandon();
    } catch {
      // A handle that can't even be closed is left behind; the next request opens a new one.
    }
    store = undefined;
    return { kind: "failed", id, why: err instanceof Error ? err.message : String(err) };
  }
}

port.on("message", (request: AuditRequest) => port.postMessage(handle(request)));
