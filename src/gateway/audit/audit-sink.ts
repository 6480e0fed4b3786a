import { randomBytes } from "node:crypto";
import { Worker } from "node:worker_threads";
import type { AuditEvent, AuditPage, AuditQuery } from "../../contract/audit-event.ts";
import { assertNever } from "../../kernel/assert-never.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { AuditReply, AuditRequest, AuditWorkerData } from "./audit-messages.ts";
import { rowOf } from "./audit-row.ts";
import { type AuditSegment, AuditSpool, SEGMENT_EVENTS_MAX, type SpoolLimits } from "./audit-spool.ts";
import type { AuditBatch } from "./audit-store.ts";

export interface AuditStats {
  /** Events given to `record` since the start. */
  readonly recorded: number;
  /** Of these, never stored: the spool was full, or the store could not be written at the end. */
  readonly dropped: number;
  /** Of these, still in memory. */
  readonly pending: number;
}

export interface AuditSink {
  /** Never waits, never throws, constant time. The event is kept by reference: it must not change afterwards. */
  record(event: AuditEvent): void;
  /** Sees every event recorded before the call, unless the store fails. Rejects with INTERNAL when it can't be read in time. */
  query(query: AuditQuery): Promise<AuditPage>;
  stats(): AuditStats;
  /** Stores everything held. Gives up after three failures or 5 s, counts what is left as dropped and says so in the log. Never rejects. */
  close(): Promise<void>;
}

export interface SqliteAuditOptions {
  readonly path: string;
  /** Events kept. */
  readonly max: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly limits?: SpoolLimits;
}

const FLUSH_MS = 100;
/** The worker starts this long after the gateway, or at the first batch: a gateway that starts has better things to do. */
const START_DELAY_MS = 1_000;
const BACKOFF_MS_MIN = 500;
const BACKOFF_MS_MAX = 30_000;
const QUERY_MS_MAX = 10_000;
const CLOSE_MS_MAX = 5_000;
const CLOSE_TRIES = 3;
const CLOSE_RETRY_MS = 200;
const SPOOL_LIMITS: SpoolLimits = { eventsMax: 100_000, bytesMax: 64 * 1024 * 1024 };

/**
 * Returns at once: a database that can't be opened is a warning in the log and a growing spool, never a failed start.
 */
export function openSqliteAudit(options: SqliteAuditOptions): Promise<AuditSink> {
  return Promise.resolve(new SqliteAuditSink(options));
}

interface Waiting {
  readonly upTo: number;
  readonly id: number;
  readonly query: AuditQuery;
  readonly resolve: (page: AuditPage) => void;
  readonly reject: (err: Error) => void;
  readonly timer: Timer;
  sent: boolean;
}

/**
 * Invariants:
 *   A1. `record` only appends to the spool. Turning events into text and handing them over happens on a timer.
 *   A2. At most one batch is with the worker; it stays in the spool until the worker says that it is stored.
 *   A3. After a failure nothing is sent until the back-off has passed, but for the last try of `close`.
 *   A4. A condition is logged when it changes: once when the store fails, once when it works again.
 */
class SqliteAuditSink implements AuditSink {
  readonly #options: SqliteAuditOptions;
  readonly #runId = randomBytes(8).toString("hex");
  readonly #spool: AuditSpool;
  #worker: Worker | undefined;
  #inFlight: AuditSegment | undefined;
  #flushTimer: Timer | undefined;
  #soon = false;
  #retryTimer: Timer | undefined;
  #failures = 0;
  #stored = 0;
  #queries: Waiting[] = [];
  #queryIds = 0;
  #closing: { readonly done: () => void; sent: boolean; triesLeft: number } | undefined;
  #closed: Promise<void> | undefined;
  readonly #startTimer: Timer;

  constructor(options: SqliteAuditOptions) {
    this.#options = options;
    this.#spool = new AuditSpool(options.limits ?? SPOOL_LIMITS);
    this.#startTimer = options.clock.after(START_DELAY_MS, () => void this.#ensureWorker());
  }

  record(event: AuditEvent): void {
    if (this.#closed !== undefined && this.#closing?.sent !== false) return this.#spool.lose();
    if (!this.#spool.add(event) || this.#soon) return;
    if (this.#spool.openCount >= SEGMENT_EVENTS_MAX) {
      this.#soon = true;
      this.#flushTimer?.cancel();
      this.#flushTimer = this.#options.clock.after(0, () => this.#flush());
    } else {
      this.#flushTimer ??= this.#options.clock.after(FLUSH_MS, () => this.#flush());
    }
  }

  query(query: AuditQuery): Promise<AuditPage> {
    if (this.#closed !== undefined) return Promise.reject(new YardmasterError("INTERNAL", "the audit is closed"));
    return new Promise((resolve, reject) => {
      const id = ++this.#queryIds;
      const timer = this.#options.clock.after(QUERY_MS_MAX, () =>
        this.#failQuery(id, `no answer within ${QUERY_MS_MAX} ms`),
      );
      this.#queries.push({ upTo: this.#spool.lastOrdinal, id, query, resolve, reject, timer, sent: false });
      this.#holdProcess();
      this.#flush();
      this.#sendQueries();
    });
  }

  stats(): AuditStats {
    return { recorded: this.#spool.lastOrdinal, dropped: this.#spool.lost, pending: this.#spool.count };
  }

  close(): Promise<void> {
    this.#closed ??= new Promise<void>((resolve) => {
      const { clock } = this.#options;
      const limit = clock.after(CLOSE_MS_MAX, () => this.#giveUp("the audit store did not answer in time"));
      const done = (): void => {
        limit.cancel();
        this.#closing = undefined;
        this.#retryTimer?.cancel();
        for (const { id } of this.#queries) this.#failQuery(id, "the audit is closed");
        resolve();
      };
      this.#closing = { done, sent: false, triesLeft: CLOSE_TRIES };
      this.#holdProcess();
      this.#startTimer.cancel();
      this.#retryTimer?.cancel();
      this.#retryTimer = undefined;
      this.#flush();
      this.#sendClose();
    });
    return this.#closed;
  }

  #flush(): void {
    this.#flushTimer?.cancel();
    this.#flushTimer = undefined;
    this.#soon = false;
    if (this.#inFlight !== undefined || this.#retryTimer !== undefined) return;
    const segment = this.#spool.first();
    if (segment === undefined) return;
    this.#inFlight = segment;
    this.#send({ kind: "write", batch: this.#batchOf(segment), now: this.#options.clock.wall() });
  }

  #batchOf(segment: AuditSegment): AuditBatch {
    let timeMin = Infinity;
    let timeMax = -Infinity;
    for (const { time } of segment.events) {
      if (time < timeMin) timeMin = time;
      if (time > timeMax) timeMax = time;
    }
    const { events, firstOrdinal } = segment;
    return {
      runId: this.#runId,
      firstOrdinal,
      count: events.length,
      rows: JSON.stringify(events.map(rowOf)),
      timeMin,
      timeMax,
    };
  }

  #send(request: AuditRequest): void {
    try {
      this.#ensureWorker().postMessage(request);
    } catch (err) {
      // Starting a thread fails when the process is out of threads or memory.
      this.#workerLost(err instanceof Error ? err.message : String(err));
    }
  }

  #ensureWorker(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    this.#startTimer.cancel();
    const { path, max } = this.#options;
    // From source the file is TypeScript, built it is JavaScript, with the same ending as this one.
    const file = new URL(`./audit-worker${import.meta.url.slice(import.meta.url.lastIndexOf("."))}`, import.meta.url);
    const workerData: AuditWorkerData = { path, max, runId: this.#runId };
    const worker = new Worker(file, { workerData, env: {}, execArgv: [], name: "audit" });
    worker.on("message", (reply: AuditReply) => this.#onReply(reply));
    worker.on("error", (err) => this.#onWorkerEnd(worker, err instanceof Error ? err.message : String(err)));
    worker.on("exit", () => this.#onWorkerEnd(worker, "the audit thread ended"));
    this.#worker = worker;
    this.#holdProcess();
    return worker;
  }

  /** An idle audit keeps no process alive; one that is closing or asked something does. */
  #holdProcess(): void {
    if (this.#closing === undefined && this.#queries.length === 0) this.#worker?.unref();
    else this.#worker?.ref();
  }

  #onReply(reply: AuditReply): void {
    switch (reply.kind) {
      case "written":
        return this.#onWritten();
      case "writeFailed":
        this.#inFlight = undefined;
        return this.#onFailure(reply.why);
      case "page":
        return this.#answer(reply.id, (waiting) => waiting.resolve({ ...reply.page, dropped: this.#spool.lost }));
      case "queryFailed":
        this.#noteFailure(reply.why);
        return this.#failQuery(reply.id, reply.why);
      case "closed":
        return this.#closing?.done();
      case "closeFailed":
        // All events are stored; only the run's own end is not, so readers will see a run that did not close.
        this.#options.log.warn("audit.closeFailed", { path: this.#options.path, why: reply.why });
        return this.#closing?.done();
      default:
        return assertNever(reply, "audit reply");
    }
  }

  #onWritten(): void {
    const segment = this.#inFlight;
    if (segment !== undefined) this.#stored = segment.firstOrdinal + segment.events.length - 1;
    this.#spool.remove();
    this.#inFlight = undefined;
    if (this.#failures > 0)
      this.#options.log.info("audit.recovered", { path: this.#options.path, dropped: this.#spool.lost });
    this.#failures = 0;
    const urgent = this.#closing !== undefined || this.#queries.length > 0 || this.#spool.count > this.#spool.openCount;
    if (urgent) this.#flush();
    else if (this.#spool.count > 0) this.#flushTimer ??= this.#options.clock.after(FLUSH_MS, () => this.#flush());
    this.#sendQueries();
    this.#sendClose();
  }

  #noteFailure(why: string): void {
    if (this.#failures > 0) return;
    this.#options.log.warn("audit.unavailable", {
      path: this.#options.path,
      why,
      effect: "requests go on; events wait in memory, and are dropped and counted when it is full",
    });
  }

  #onFailure(why: string): void {
    this.#noteFailure(why);
    this.#failures += 1;
    this.#sendQueries(true); // They see what is stored.
    const closing = this.#closing;
    if (closing !== undefined && (closing.sent || --closing.triesLeft <= 0)) return this.#giveUp(why);
    const wait =
      closing === undefined ? Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** (this.#failures - 1)) : CLOSE_RETRY_MS;
    this.#retryTimer ??= this.#options.clock.after(wait, () => {
      this.#retryTimer = undefined;
      this.#flush();
    });
  }

  #onWorkerEnd(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#workerLost(why);
  }

  #workerLost(why: string): void {
    this.#worker = undefined;
    this.#inFlight = undefined;
    for (const waiting of this.#queries.filter(({ sent }) => sent)) this.#failQuery(waiting.id, why);
    if (this.#closed === undefined || this.#closing !== undefined) this.#onFailure(why);
  }

  #sendQueries(force = false): void {
    for (const waiting of this.#queries) {
      const ready = this.#stored >= waiting.upTo || this.#spool.count === 0 || this.#retryTimer !== undefined;
      if (waiting.sent || !(force || ready)) continue;
      waiting.sent = true;
      this.#send({ kind: "query", id: waiting.id, query: waiting.query, now: this.#options.clock.wall() });
    }
  }

  #answer(id: number, act: (waiting: Waiting) => void): void {
    const waiting = this.#queries.find((other) => other.id === id);
    if (waiting === undefined) return;
    this.#queries = this.#queries.filter((other) => other !== waiting);
    waiting.timer.cancel();
    this.#holdProcess();
    act(waiting);
  }

  #failQuery(id: number, why: string): void {
    this.#answer(id, (waiting) => waiting.reject(new YardmasterError("INTERNAL", `the audit can't be read: ${why}`)));
  }

  #sendClose(): void {
    const closing = this.#closing;
    if (closing === undefined || closing.sent || this.#spool.count > 0) return;
    // Nothing was recorded and nothing asked for: no thread, no file.
    if (this.#worker === undefined && this.#spool.lastOrdinal === 0) return closing.done();
    closing.sent = true;
    this.#send({ kind: "close", lastOrdinal: this.#spool.lastOrdinal, now: this.#options.clock.wall() });
  }

  #giveUp(why: string): void {
    const { log, path } = this.#options;
    this.#spool.loseAll();
    log.error("audit.lost", { path, why, dropped: this.#spool.lost });
    const worker = this.#worker;
    this.#worker = undefined;
    void worker?.terminate();
    this.#closing?.done();
  }
}
