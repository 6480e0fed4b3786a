import type { Clock } from "../kernel/clock.ts";

/**
 * The engine's own account of what reached it and how it ended. Tests trust it instead of the gateway's figures.
 *
 * Invariants:
 *   D1. A request is opened once and ends once: finished, aborted or failed.
 *   D2. `concurrentNow` counts requests that occupy the engine: not ended, or ended for the client while their slot
 *       still works for nobody.
 */
export type SimEnd = "finished" | "aborted" | "failed";

export interface LedgerEntry {
  /** `x-request-id` as received, else empty. */
  readonly id: string;
  readonly path: string;
  readonly method: string;
  /** As received: name, value, name, value. */
  readonly headers: readonly string[];
  readonly openedMs: number;
  model: string;
  /** `metadata.class` of the body, else its `user`. */
  tag: string;
  stream: boolean;
  bodySha256: string;
  bodyBytes: number;
  /** Status of the head that was sent. */
  status: number | null;
  slotMs: number | null;
  headMs: number | null;
  firstByteMs: number | null;
  endedMs: number | null;
  slotFreeMs: number | null;
  end: SimEnd | null;
  /** Output tokens made, whether or not anybody read them. */
  tokens: number;
  /** Bytes of body handed to the socket. */
  bytesOut: number;
}

export interface LedgerCounts {
  opened: number;
  headSent: number;
  firstByte: number;
  finished: number;
  aborted: number;
  failed: number;
  concurrentNow: number;
  concurrentPeak: number;
  inSlotNow: number;
  inSlotPeak: number;
  /** In the engine's own queue because no slot was free. */
  queuedNow: number;
  queuedPeak: number;
}

export interface LedgerView extends LedgerCounts {
  readonly byModel: Readonly<Record<string, LedgerCounts>>;
  readonly byTag: Readonly<Record<string, LedgerCounts>>;
}

export interface SimLedger extends LedgerView {
  /** Oldest first; at most the newest 20 000. */
  readonly entries: readonly LedgerEntry[];
}

export const LEDGER_ENTRIES_MAX = 20_000;
/** Names from clients become keys; beyond this many they share one. */
const GROUPS_MAX = 200;

const newCounts = (): LedgerCounts => ({
  opened: 0,
  headSent: 0,
  firstByte: 0,
  finished: 0,
  aborted: 0,
  failed: 0,
  concurrentNow: 0,
  concurrentPeak: 0,
  inSlotNow: 0,
  inSlotPeak: 0,
  queuedNow: 0,
  queuedPeak: 0,
});

/** Of a request of which nothing has happened yet. */
export const newEntry = (
  opened: Pick<LedgerEntry, "id" | "method" | "path" | "headers" | "openedMs">,
): LedgerEntry => ({
  ...opened,
  model: "",
  tag: "",
  stream: false,
  bodySha256: "",
  bodyBytes: 0,
  status: null,
  slotMs: null,
  headMs: null,
  firstByteMs: null,
  endedMs: null,
  slotFreeMs: null,
  end: null,
  tokens: 0,
  bytesOut: 0,
});

type Waiter = { readonly met: (ledger: LedgerView) => boolean; readonly done: (met: boolean) => void };

export class Ledger {
  readonly #clock: Clock;
  #total = newCounts();
  #byModel = new Map<string, LedgerCounts>();
  #byTag = new Map<string, LedgerCounts>();
  #entries: LedgerEntry[] = [];
  readonly #waiters = new Set<Waiter>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  open(id: string, method: string, path: string, headers: readonly string[]): RequestRecord {
    const entry = newEntry({ id, method, path, headers, openedMs: this.#clock.mono() });
    this.#entries.push(entry);
    if (this.#entries.length > LEDGER_ENTRIES_MAX * 1.25) this.#entries = this.#entries.slice(-LEDGER_ENTRIES_MAX);
    const record = new RequestRecord(entry, this.#clock, [this.#total], () => this.#changed());
    this.#changed();
    return record;
  }

  groupsOf(model: string, tag: string): LedgerCounts[] {
    return [group(this.#byModel, model), group(this.#byTag, tag)].flatMap((counts) => counts ?? []);
  }

  view(): LedgerView {
    return {
      ...this.#total,
      byModel: Object.fromEntries([...this.#byModel].map(([key, counts]) => [key, { ...counts }])),
      byTag: Object.fromEntries([...this.#byTag].map(([key, counts]) => [key, { ...counts }])),
    };
  }

  read(): SimLedger {
    return {
      ...this.view(),
      entries: this.#entries.slice(-LEDGER_ENTRIES_MAX).map((entry) => ({ ...entry })),
    };
  }

  /** Forgets everything; requests under way report to counters that nobody reads any more. */
  reset(): void {
    this.#total = newCounts();
    this.#byModel = new Map();
    this.#byTag = new Map();
    this.#entries = [];
  }

  /** True as soon as `met` holds, false after `timeoutMs`. */
  waitFor(met: (ledger: LedgerView) => boolean, timeoutMs: number): Promise<boolean> {
    if (met(this.view())) return Promise.resolve(true);
    return new Promise((resolve) => {
      const timer = this.#clock.after(timeoutMs, () => waiter.done(false));
      const waiter: Waiter = {
        met,
        done: (outcome) => {
          timer.cancel();
          this.#waiters.delete(waiter);
          resolve(outcome);
        },
      };
      this.#waiters.add(waiter);
    });
  }

  /** Ends every wait, unmet. */
  close(): void {
    for (const waiter of this.#waiters) waiter.done(false);
  }

  #changed(): void {
    if (this.#waiters.size === 0) return;
    const view = this.view();
    for (const waiter of this.#waiters) if (waiter.met(view)) waiter.done(true);
  }
}

function group(groups: Map<string, LedgerCounts>, name: string): LedgerCounts | undefined {
  if (name === "") return undefined;
  const key = groups.has(name) || groups.size < GROUPS_MAX ? name : "(others)";
  let counts = groups.get(key);
  if (counts === undefined) groups.set(key, (counts = newCounts()));
  return counts;
}

/** One request's part of the ledger; every method may be called more than once and counts once. */
export class RequestRecord {
  readonly entry: LedgerEntry;
  readonly #clock: Clock;
  readonly #groups: LedgerCounts[];
  readonly #changed: () => void;
  #released = false;
  #queued = false;

  constructor(entry: LedgerEntry, clock: Clock, groups: LedgerCounts[], changed: () => void) {
    this.entry = entry;
    this.#clock = clock;
    this.#groups = groups;
    this.#changed = changed;
    for (const counts of groups) occupy(counts);
  }

  /** Called when the body has been read: from here the request counts for its model and tag too. */
  join(groups: readonly LedgerCounts[]): void {
    if (this.#released) return;
    for (const counts of groups) occupy(counts);
    this.#groups.push(...groups);
  }

  head(status: number): void {
    if (this.entry.headMs !== null) return;
    this.entry.headMs = this.#clock.mono();
    this.entry.status = status;
    this.#bump("headSent");
  }

  bytes(count: number): void {
    this.entry.bytesOut += count;
    if (this.entry.firstByteMs !== null || count === 0) return;
    this.entry.firstByteMs = this.#clock.mono();
    this.#bump("firstByte");
  }

  queued(): void {
    if (this.#queued || this.entry.slotMs !== null) return;
    this.#queued = true;
    for (const counts of this.#groups) {
      counts.queuedNow += 1;
      counts.queuedPeak = Math.max(counts.queuedPeak, counts.queuedNow);
    }
    this.#changed();
  }

  slotTaken(): void {
    if (this.entry.slotMs !== null) return;
    this.#unqueue();
    this.entry.slotMs = this.#clock.mono();
    for (const counts of this.#groups) {
      counts.inSlotNow += 1;
      counts.inSlotPeak = Math.max(counts.inSlotPeak, counts.inSlotNow);
    }
    this.#changed();
  }

  /** The engine has nothing more to do with the request, whether it had a slot or only waited for one. */
  left(): void {
    this.#unqueue();
    if (this.entry.slotMs === null || this.entry.slotFreeMs !== null) return;
    this.entry.slotFreeMs = this.#clock.mono();
    for (const counts of this.#groups) counts.inSlotNow -= 1;
    this.#release();
    this.#changed();
  }

  end(how: SimEnd): void {
    if (this.entry.end !== null) return;
    this.entry.end = how;
    this.entry.endedMs = this.#clock.mono();
    this.#release();
    this.#bump(how);
  }

  /** `working` says that the engine goes on with the request although its client has gone. */
  get working(): boolean {
    return this.entry.slotMs !== null && this.entry.slotFreeMs === null;
  }

  #unqueue(): void {
    if (!this.#queued) return;
    this.#queued = false;
    for (const counts of this.#groups) counts.queuedNow -= 1;
    this.#changed();
  }

  #release(): void {
    if (this.#released || this.entry.end === null || this.working) return;
    this.#released = true;
    for (const counts of this.#groups) counts.concurrentNow -= 1;
  }

  #bump(what: "headSent" | "firstByte" | SimEnd): void {
    for (const counts of this.#groups) counts[what] += 1;
    this.#changed();
  }
}

function occupy(counts: LedgerCounts): void {
  counts.opened += 1;
  counts.concurrentNow += 1;
  counts.concurrentPeak = Math.max(counts.concurrentPeak, counts.concurrentNow);
}
