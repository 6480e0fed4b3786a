import { randomBytes } from "node:crypto";
import type { Worker } from "node:worker_threads";
import type { AuditPage, AuditQuery } from "../../contract/audit-event.ts";
import type { Timer } from "../../kernel/clock.ts";
import { startThread } from "../../kernel/start-thread.ts";
import type { AuditReply, AuditRequest, AuditWorkerData } from "./audit-messages.ts";
import { rowOf } from "./audit-row.ts";
import type { AuditSink } from "./audit-sink.ts";
import type { AuditSegment } from "./audit-spool.ts";
import type { AuditBatch } from "./audit-store.ts";
import { type AuditBackend, SpooledAudit, type SpooledAuditOptions } from "./spooled-audit.ts";

export interface SqliteAuditOptions extends SpooledAuditOptions {
  readonly path: string;
  /** Events kept. */
  readonly max: number;
}

/** The worker starts this long after the gateway, or at the first batch: a gateway that starts has better things to do. */
const START_DELAY_MS = 1_000;

/**
 * Returns at once: a database that can't be opened is a warning in the log and a growing spool, never a failed start.
 */
export function openSqliteAudit(options: SqliteAuditOptions): Promise<AuditSink> {
  return Promise.resolve(new SpooledAudit(new SqliteBackend(options), options));
}

interface Pending {
  readonly resolve: (reply: AuditReply) => void;
  readonly reject: (err: Error) => void;
}

/** The audit database behind a worker thread. A thread that ends takes with it what was asked of it; the next question starts one. */
class SqliteBackend implements AuditBackend {
  readonly place: string;
  onBack: (() => void) | null = null;
  readonly #options: SqliteAuditOptions;
  readonly #startTimer: Timer;
  readonly #pending = new Map<number, Pending>();
  #worker: Worker | undefined;
  readonly #runId = randomBytes(8).toString("hex");
  #held = false;
  #ids = 0;

  constructor(options: SqliteAuditOptions) {
    this.#options = options;
    this.place = options.path;
    this.#startTimer = options.clock.after(START_DELAY_MS, () => void this.#ensureWorker());
  }

  async write(segment: AuditSegment, now: number): Promise<void> {
    await this.#ask({ kind: "write", id: 0, batch: batchOf(this.#runId, segment), now });
  }

  async query(query: AuditQuery, now: number): Promise<Omit<AuditPage, "dropped">> {
    const reply = await this.#ask({ kind: "query", id: 0, query, now });
    if (reply.kind !== "page") throw new Error("the audit thread answered something else");
    return reply.page;
  }

  async end(lastOrdinal: number, now: number): Promise<void> {
    await this.#ask({ kind: "close", id: 0, lastOrdinal, now });
  }

  hold(active: boolean): void {
    this.#held = active;
    if (active) this.#worker?.ref();
    else this.#worker?.unref();
  }

  abandon(): void {
    this.#startTimer.cancel();
    const worker = this.#worker;
    this.#worker = undefined;
    void worker?.terminate();
  }

  #ask(request: AuditRequest): Promise<AuditReply> {
    const id = ++this.#ids;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      try {
        this.#ensureWorker().postMessage({ ...request, id });
      } catch (err) {
        // Starting a thread fails when the process is out of threads or memory.
        this.#pending.delete(id);
        reject(err instanceof Error ? err : new Error(String(err)));
      }
    });
  }

  #ensureWorker(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    this.#startTimer.cancel();
    const { path, max } = this.#options;
    const workerData: AuditWorkerData = { path, max, runId: this.#runId };
    const worker = startThread("audit-worker", import.meta.url, { name: "audit", workerData });
    worker.on("message", (reply: AuditReply) => this.#onReply(reply));
    worker.on("error", (err) => this.#onWorkerEnd(worker, err instanceof Error ? err.message : String(err)));
    worker.on("exit", () => this.#onWorkerEnd(worker, "the audit thread ended"));
    this.#worker = worker;
    this.hold(this.#held);
    return worker;
  }

  #onReply(reply: AuditReply): void {
    const pending = this.#pending.get(reply.id);
    if (pending === undefined) return;
    this.#pending.delete(reply.id);
    if (reply.kind === "failed") pending.reject(new Error(reply.why));
    else pending.resolve(reply);
  }

  #onWorkerEnd(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of pending) reject(new Error(why));
  }
}

function batchOf(runId: string, { events, firstOrdinal }: AuditSegment): AuditBatch {
  let timeMin = Infinity;
  let timeMax = -Infinity;
  for (const { time } of events) {
    if (time < timeMin) timeMin = time;
    if (time > timeMax) timeMax = time;
  }
  const rows = JSON.stringify(events.map(rowOf));
  return { runId, firstOrdinal, count: events.length, rows, timeMin, timeMax };
}
