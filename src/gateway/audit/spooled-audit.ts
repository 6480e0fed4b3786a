import type { AuditEvent, AuditPage, AuditQuery } from "../../contract/audit-event.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { AuditSink, AuditStats } from "./audit-sink.ts";
import { type AuditSegment, AuditSpool, SEGMENT_EVENTS_MAX, type SpoolLimits } from "./audit-spool.ts";

/** Where the events of one run of a gateway are stored. One write at a time; a rejected one may have been done, and is made again. */
export interface AuditBackend {
  /** For the log. */
  readonly place: string;
  /** Stores the segment, once however often it is asked. Ordinals before it that were never written become a gap. */
  write(segment: AuditSegment, now: number): Promise<void>;
  query(query: AuditQuery, now: number): Promise<Omit<AuditPage, "dropped">>;
  /** Marks the run as closed, with all events up to `lastOrdinal` either written or known as lost. */
  end(lastOrdinal: number, now: number): Promise<void>;
  /** Whether the process shall live for what is under way. */
  hold(active: boolean): void;
  /** Lets go of everything at once. */
  abandon(): void;
  /** Called when a store that was away may be there again; null: nobody can tell. */
  onBack: (() => void) | null;
}

export interface SpooledAuditOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly limits?: SpoolLimits;
}

const FLUSH_MS = 100;
const BACKOFF_MS_MIN = 500;
const BACKOFF_MS_MAX = 30_000;
const QUERY_MS_MAX = 10_000;
const COMMIT_MS_MAX = 2_000;
const CLOSE_MS_MAX = 5_000;
const CLOSE_TRIES = 3;
const CLOSE_RETRY_MS = 200;
const SPOOL_LIMITS: SpoolLimits = { eventsMax: 100_000, bytesMax: 64 * 1024 * 1024 };

interface Waiting {
  readonly upTo: number;
  readonly query: AuditQuery;
  readonly resolve: (page: AuditPage) => void;
  readonly reject: (err: Error) => void;
  readonly timer: Timer;
  sent: boolean;
}

/** An event whose maker waits for it to be stored. */
interface Commit {
  readonly ordinal: number;
  readonly resolve: () => void;
  readonly reject: (err: Error) => void;
  readonly timer: Timer;
}

/**
 * Invariants:
 *   A1. `record` only appends to the spool. Turning events into text and handing them over happens on a timer.
 *   A2. At most one write is under way; its segment stays in the spool until it is stored.
 *   A3. After a failure nothing is sent until the back-off has passed or the store says that it is back, but for the last
 *       tries of `close`.
 *   A4. A condition is logged when it changes: once when the store fails, once when it works again.
 */
export class SpooledAudit implements AuditSink {
  readonly #backend: AuditBackend;
  readonly #options: SpooledAuditOptions;
  readonly #spool: AuditSpool;
  #writing = false;
  #flushTimer: Timer | undefined;
  #soon = false;
  #retryTimer: Timer | undefined;
  #failures = 0;
  #stored = 0;
  #queries: Waiting[] = [];
  #commits: Commit[] = [];
  #closing: { readonly done: () => void; sent: boolean; triesLeft: number } | undefined;
  #closed: Promise<void> | undefined;

  constructor(backend: AuditBackend, options: SpooledAuditOptions) {
    this.#backend = backend;
    this.#options = options;
    this.#spool = new AuditSpool(options.limits ?? SPOOL_LIMITS);
    backend.onBack = () => this.#onBack();
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

  commit(event: AuditEvent): Promise<void> {
    if (this.#closed !== undefined) return Promise.reject(unavailable("it is closed"));
    if (this.#failures > 0) return Promise.reject(unavailable("its store can't be written"));
    if (this.#spool.full) return Promise.reject(unavailable("too much waits for its store"));
    this.record(event);
    if (this.#spool.full) return Promise.reject(unavailable("too much waits for its store"));
    return new Promise((resolve, reject) => {
      const ordinal = this.#spool.lastOrdinal;
      const timer = this.#options.clock.after(COMMIT_MS_MAX, () => {
        this.#commits = this.#commits.filter((other) => other !== commit);
        reject(unavailable(`its store did not answer within ${COMMIT_MS_MAX} ms`));
      });
      const commit: Commit = { ordinal, resolve, reject, timer };
      this.#commits.push(commit);
      this.#flush();
    });
  }

  query(query: AuditQuery): Promise<AuditPage> {
    if (this.#closed !== undefined) return Promise.reject(new YardmasterError("INTERNAL", "the audit is closed"));
    return new Promise((resolve, reject) => {
      const timer = this.#options.clock.after(QUERY_MS_MAX, () =>
        this.#failQuery(waiting, `no answer within ${QUERY_MS_MAX} ms`),
      );
      const waiting: Waiting = { upTo: this.#spool.lastOrdinal, query, resolve, reject, timer, sent: false };
      this.#queries.push(waiting);
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
        for (const waiting of this.#queries) this.#failQuery(waiting, "the audit is closed");
        this.#failCommits("it is closed");
        this.#backend.abandon();
        resolve();
      };
      this.#closing = { done, sent: false, triesLeft: CLOSE_TRIES };
      this.#holdProcess();
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
    if (this.#writing || this.#retryTimer !== undefined) return;
    const segment = this.#spool.first();
    if (segment === undefined) return;
    this.#writing = true;
    this.#backend.write(segment, this.#options.clock.wall()).then(
      () => this.#onWritten(segment),
      (err: unknown) => {
        this.#writing = false;
        this.#onFailure(whyOf(err));
      },
    );
  }

  #onWritten(segment: AuditSegment): void {
    const { log, clock } = this.#options;
    this.#writing = false;
    if (this.#closed !== undefined && this.#closing === undefined) return; // Given up meanwhile: counted as lost.
    this.#stored = segment.firstOrdinal + segment.events.length - 1;
    this.#spool.remove();
    if (this.#failures > 0) log.info("audit.recovered", { place: this.#backend.place, dropped: this.#spool.lost });
    this.#failures = 0;
    this.#endCommits(
      ({ ordinal }) => ordinal <= this.#stored,
      ({ resolve }) => resolve(),
    );
    const urgent =
      this.#commits.length > 0 ||
      this.#closing !== undefined ||
      this.#queries.length > 0 ||
      this.#spool.count > this.#spool.openCount;
    if (urgent) this.#flush();
    else if (this.#spool.count > 0) this.#flushTimer ??= clock.after(FLUSH_MS, () => this.#flush());
    this.#sendQueries();
    this.#sendClose();
  }

  #noteFailure(why: string): void {
    if (this.#failures > 0) return;
    this.#options.log.warn("audit.unavailable", {
      place: this.#backend.place,
      why,
      effect: "requests go on; events wait in memory, and are dropped and counted when it is full",
    });
  }

  #onFailure(why: string): void {
    if (this.#closed !== undefined && this.#closing === undefined) return;
    this.#noteFailure(why);
    this.#failures += 1;
    this.#failCommits(why);
    this.#sendQueries(true); // They see what is stored.
    const closing = this.#closing;
    if (closing !== undefined && --closing.triesLeft <= 0) return this.#giveUp(why);
    const wait =
      closing === undefined ? Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** (this.#failures - 1)) : CLOSE_RETRY_MS;
    this.#retryTimer ??= this.#options.clock.after(wait, () => this.#retry());
  }

  #retry(): void {
    this.#retryTimer?.cancel();
    this.#retryTimer = undefined;
    this.#flush();
    this.#sendClose();
  }

  #onBack(): void {
    if (this.#retryTimer !== undefined) this.#retry();
  }

  #sendQueries(force = false): void {
    for (const waiting of this.#queries) {
      const ready = this.#stored >= waiting.upTo || this.#spool.count === 0 || this.#retryTimer !== undefined;
      if (waiting.sent || !(force || ready)) continue;
      waiting.sent = true;
      this.#backend.query(waiting.query, this.#options.clock.wall()).then(
        (page) => this.#endQuery(waiting, () => waiting.resolve({ ...page, dropped: this.#spool.lost })),
        (err: unknown) => {
          this.#noteFailure(whyOf(err));
          this.#failQuery(waiting, whyOf(err));
        },
      );
    }
  }

  #endQuery(waiting: Waiting, act: () => void): void {
    if (!this.#queries.includes(waiting)) return;
    this.#queries = this.#queries.filter((other) => other !== waiting);
    waiting.timer.cancel();
    this.#holdProcess();
    act();
  }

  #failQuery(waiting: Waiting, why: string): void {
    this.#endQuery(waiting, () => waiting.reject(new YardmasterError("INTERNAL", `the audit can't be read: ${why}`)));
  }

  #endCommits(which: (commit: Commit) => boolean, act: (commit: Commit) => void): void {
    const ended = this.#commits.filter(which);
    this.#commits = this.#commits.filter((commit) => !which(commit));
    for (const commit of ended) {
      commit.timer.cancel();
      act(commit);
    }
  }

  #failCommits(why: string): void {
    this.#endCommits(
      () => true,
      ({ reject }) => reject(unavailable(why)),
    );
  }

  #sendClose(): void {
    const closing = this.#closing;
    if (closing === undefined || closing.sent || this.#spool.count > 0 || this.#retryTimer !== undefined) return;
    // Nothing was recorded: nothing to end.
    if (this.#spool.lastOrdinal === 0) return closing.done();
    closing.sent = true;
    this.#backend.end(this.#spool.lastOrdinal, this.#options.clock.wall()).then(
      () => closing.done(),
      (err: unknown) => {
        // All events are stored; only the run's own end is not, so readers will see a run that did not close.
        this.#options.log.warn("audit.closeFailed", { place: this.#backend.place, why: whyOf(err) });
        closing.done();
      },
    );
  }

  /** An idle audit keeps no process alive; one that is closing or asked something does. */
  #holdProcess(): void {
    this.#backend.hold(this.#closing !== undefined || this.#queries.length > 0);
  }

  #giveUp(why: string): void {
    this.#spool.loseAll();
    this.#options.log.error("audit.lost", { place: this.#backend.place, why, dropped: this.#spool.lost });
    this.#closing?.done();
  }
}

const unavailable = (why: string): YardmasterError =>
  new YardmasterError("AUDIT_UNAVAILABLE", `the audit can't take a record of this now: ${why}`);
const whyOf = (err: unknown): string => (err instanceof Error ? err.message : String(err));
