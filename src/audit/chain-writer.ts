import type { ChainEntry } from "../contract/audit-chain.ts";
import type { Clock, Timer } from "../kernel/clock.ts";
import { messageOf, YardmasterError } from "../kernel/errors.ts";
import type { Logger } from "../kernel/log.ts";
import type { Signer } from "../kernel/signer.ts";
import type { ChainStore } from "./audit-chain.ts";

export interface ChainWriterDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly chain: ChainStore;
  readonly signer: () => Promise<Signer>;
  /** How long whoever commits waits. */
  readonly commitMsMax: number;
  /** What is not done while nothing can be written, for the log. */
  readonly effect: string;
}

/** Makes the entry when it is written: names of keys are told by their pseudonyms. */
export type MakeEntry = (pseudonym: Signer["pseudonym"]) => ChainEntry;

const BATCH_MAX = 200;
const WAITING_MAX = 10_000;
const AGAIN_MS = 1_000;
const CLOSE_MS_MAX = 3_000;

interface Waiting {
  readonly make: MakeEntry;
  /** Somebody waits for it to be stored. */
  settle: ((error: Error | null) => void) | null;
}

/**
 * Entries on their way to a chain, in the order in which they came.
 *
 * Invariants:
 *   N1. What is committed is stored when it resolves. While the chain can't be written it is refused at once.
 *   N2. What is only recorded waits, and is written when the chain can be again; beyond WAITING_MAX it is lost, and the chain
 *       gets an entry that says how many.
 *   N3. One write is under way at a time; one that failed is made again under the same numbers.
 */
export class ChainWriter {
  readonly #deps: ChainWriterDeps;
  #waiting: Waiting[] = [];
  /** Those at the front that a write was tried with. */
  #batch = 0;
  #ordinal = 1;
  #writing: Promise<void> | null = null;
  #retry: Timer | undefined;
  #failure: string | null = null;
  #lost = 0;
  #closed = false;

  constructor(deps: ChainWriterDeps) {
    this.#deps = deps;
  }

  /** @throws AUDIT_UNAVAILABLE while the chain can't be written. */
  check(): void {
    if (this.#failure !== null) throw unavailable(this.#failure);
  }

  record(make: MakeEntry): void {
    this.#add({ make, settle: null });
  }

  async commit(make: MakeEntry): Promise<void> {
    this.check();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiting: Waiting = {
      make,
      settle: (error) => {
        timer.cancel();
        waiting.settle = null;
        if (error === null) resolve();
        else reject(error);
      },
    };
    const timer = this.#deps.clock.after(this.#deps.commitMsMax, () =>
      waiting.settle?.(unavailable("it does not answer in time")),
    );
    this.#add(waiting);
    return promise;
  }

  /** Closes the chain too. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    const { clock, chain } = this.#deps;
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = clock.after(CLOSE_MS_MAX, resolve);
    await Promise.race([this.#drain(), late]);
    timer.cancel();
    for (const { settle } of this.#waiting) settle?.(unavailable("it is closed"));
    if (this.#waiting.length > 0)
      this.#deps.log.error("audit.chainLost", { entries: this.#waiting.length + this.#lost, why: this.#failure ?? "" });
    this.#waiting = [];
    await chain.close();
  }

  async #drain(): Promise<void> {
    await this.#writing;
    for (let left = -1; this.#waiting.length > 0 && this.#waiting.length !== left;) {
      left = this.#waiting.length;
      await this.#write();
    }
  }

  #add(waiting: Waiting): void {
    if (this.#waiting.length >= WAITING_MAX) {
      this.#lost += 1;
      waiting.settle?.(unavailable("too much waits for it"));
      return;
    }
    this.#waiting.push(waiting);
    this.#flush();
  }

  #flush(): void {
    if (this.#writing !== null || this.#closed || this.#waiting.length === 0 || this.#retry !== undefined) return;
    this.#writing = this.#write().finally(() => {
      this.#writing = null;
      this.#flush();
    });
  }

  /** Never rejects. */
  async #write(): Promise<void> {
    const { chain, signer, log, effect } = this.#deps;
    // N3. What was asked for is asked for again, with nothing put in between.
    if (this.#batch === 0) this.#batch = Math.min(BATCH_MAX, this.#waiting.length);
    const batch = this.#waiting.slice(0, this.#batch);
    try {
      const keys = await signer();
      const entries = batch.map(({ make }) => make((name) => keys.pseudonym(name)));
      await chain.append(this.#ordinal, entries);
      if (this.#failure !== null) log.info("audit.chain", { state: "written again" });
      this.#failure = null;
      this.#ordinal += batch.length;
      this.#waiting.splice(0, batch.length);
      this.#batch = 0;
      for (const { settle } of batch) settle?.(null);
      this.#tellLost();
    } catch (error) {
      const why = messageOf(error);
      if (this.#failure === null)
        log.error("audit.chain", {
          state: "away",
          why,
          effect,
        });
      this.#failure = why;
      // What nobody tried to write is not done either; what was tried may be there, and so is written again.
      const kept = this.#waiting.filter(({ settle }, place) => place < this.#batch || settle === null);
      for (const { settle } of this.#waiting) settle?.(unavailable(why));
      this.#waiting = kept;
      this.#retry = this.#deps.clock.after(AGAIN_MS, () => {
        this.#retry = undefined;
        this.#flush();
      });
    }
  }

  #tellLost(): void {
    if (this.#lost === 0) return;
    const entry: ChainEntry = {
      time: Math.round(this.#deps.clock.wall()),
      request: "-",
      who: null,
      act: "entries were lost before this one",
      upstream: null,
      status: 503,
      outcome: "lost",
      code: "AUDIT_UNAVAILABLE",
      detail: `${this.#lost}`,
    };
    this.#lost = 0;
    this.#waiting.push({ make: () => entry, settle: null });
  }
}

const unavailable = (why: string): YardmasterError =>
  new YardmasterError("AUDIT_UNAVAILABLE", `the audit's chain can't take an entry now: ${why}`);
