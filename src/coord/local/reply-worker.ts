import { parentPort, workerData } from "node:worker_threads";
import { assertNever } from "../../kernel/assert-never.ts";
import { ReplyDb, type StoredRow } from "./reply-db.ts";

/** What a gateway's thread and the reply worker say to each other. Every request gets one answer, in order. */
export type ReplyRequest =
  | { readonly kind: "get"; readonly id: number; readonly key: string; readonly now: number }
  | {
      readonly kind: "put";
      readonly id: number;
      readonly key: string;
      readonly row: StoredRow;
      readonly bytes: number;
      readonly expiresAt: number;
    }
  | { readonly kind: "close"; readonly id: number };

export interface ReplyTotals {
  readonly entries: number;
  readonly bytes: number;
  readonly evicted: number;
}

export type ReplyAnswer =
  | { readonly kind: "row"; readonly id: number; readonly row: StoredRow | null }
  | { readonly kind: "put"; readonly id: number; readonly kept: boolean; readonly totals: ReplyTotals }
  | { readonly kind: "closed"; readonly id: number }
  | { readonly kind: "failed"; readonly id: number; readonly why: string };

export interface ReplyWorkerData {
  readonly path: string;
  readonly bytesMax: number;
}

/**
 * The thread that owns the database of kept answers. It opens the file at the first request and again after any error, so that
 * a lock, a full disk or a replaced file heals without a restart.
 */
const port = parentPort;
if (port === null) throw new Error("reply-worker runs as a worker thread only");
const { path, bytesMax } = workerData as ReplyWorkerData;

let db: ReplyDb | undefined;

function handle(request: ReplyRequest): ReplyAnswer {
  const { id } = request;
  try {
    if (request.kind === "close") {
      db?.close();
      db = undefined;
      return { kind: "closed", id };
    }
    db ??= new ReplyDb(path, bytesMax);
    switch (request.kind) {
      case "get":
        return { kind: "row", id, row: db.get(request.key, request.now) };
      case "put": {
        const kept = db.put(request.key, request.row, request.bytes, request.expiresAt);
        return { kind: "put", id, kept, totals: { ...db.totals(), evicted: db.evicted } };
      }
      default:
        return assertNever(request, "reply request");
    }
  } catch (err) {
    try {
      db?.close();
    } catch {
      // A handle that can't even be closed is left behind; the next request opens a new one.
    }
    db = undefined;
    return { kind: "failed", id, why: err instanceof Error ? err.message : String(err) };
  }
}

port.on("message", (request: ReplyRequest) => {
  const answer = handle(request);
  port.postMessage(answer);
  if (request.kind === "close") port.close();
});
