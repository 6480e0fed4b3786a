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
  switch (request.kind) {
    case "write":
      return attempt(
        request.now,
        (open) => {
          open.write(request.batch, request.now);
          return { kind: "written" };
        },
        (why) => ({ kind: "writeFailed", why }),
      );
    case "query":
      return attempt(
        request.now,
        (open) => ({ kind: "page", id: request.id, page: open.query(request.query) }),
        (why) => ({ kind: "queryFailed", id: request.id, why }),
      );
    case "close":
      return attempt(
        request.now,
        (open) => {
          open.close(request.lastOrdinal, request.now);
          store = undefined;
          return { kind: "closed" };
        },
        (why) => ({ kind: "closeFailed", why }),
      );
    default:
      return assertNever(request, "audit request");
  }
}

function attempt(now: number, act: (open: AuditStore) => AuditReply, failed: (why: string) => AuditReply): AuditReply {
  try {
    store ??= openAuditStore(path, max, runId, now);
    return act(store);
  } catch (err) {
    const why = err instanceof Error ? err.message : String(err);
    try {
      store?.abandon();
    } catch {
      // A handle that can't even be closed is left behind; the next request opens a new one.
    }
    store = undefined;
    return failed(why);
  }
}

port.on("message", (request: AuditRequest) => {
  const reply = handle(request);
  port.postMessage(reply);
  if (reply.kind === "closed" || reply.kind === "closeFailed") port.close();
});
