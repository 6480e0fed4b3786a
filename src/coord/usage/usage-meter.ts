import type { PriceSettings } from "../../contract/gateway-config.ts";
import { COUNTERS, costCounter, countCall, type CountedCall } from "../../decide/usage/count-call.ts";
import { FLUSH_ROWS_MAX, UsageBook } from "../../decide/usage/usage-book.ts";
import { dayOf } from "../../decide/limits/windows.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { UsageStore, UsageWritten } from "./usage-store.ts";

export interface UsageMeterPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: UsageStore;
  /** Of this process; unique among all that share. */
  readonly gateway: string;
  /** `unwritten`: rows that the store does not have now. */
  readonly onWrite: (outcome: UsageWritten["kind"], unwritten: number) => void;
}

/** How long what was used waits for what is used next. A process that is killed loses no more than this and one step of the store. */
export const FLUSH_MS = 500;
const AGAIN_MS = 1_000;
const CLOSE_MS = 3_000;
const MICROS_PER_MS = 1_000;

interface Waiter {
  flushesLeft: number;
  readonly done: () => void;
}

/**
 * Counts what keys use, and writes it down behind the requests.
 *
 * Invariants:
 *   M1. Counting only adds to sums in memory: nothing waits for a store, and a store that is away fails nothing.
 *   M2. One flush is under way at a time, and is written again as it was until the store has it.
 *   M3. Without anything to write there is no timer.
 */
export class UsageMeter {
  readonly #ports: UsageMeterPorts;
  readonly #book = new UsageBook();
  #timer: Timer | undefined;
  #writing = false;
  #away = false;
  #closed = false;
  readonly #waiters = new Set<Waiter>();

  constructor(ports: UsageMeterPorts) {
    this.#ports = ports;
  }

  /** Rows that the store does not have. */
  get unwritten(): number {
    return this.#book.waiting;
  }

  /** A request is over. */
  ended(keyId: string, model: string, call: CountedCall, price: PriceSettings | null): void {
    const sums = this.#book.sumsOf(this.#today(), keyId, model);
    countCall(call, price, (counter, amount) => {
      sums[counter] = (sums[counter] ?? 0) + amount;
    });
    this.#arm(FLUSH_MS);
  }

  /** A slot is free again. */
  slotHeld(keyId: string, model: string, ms: number): void {
    this.#add(this.#today(), keyId, model, COUNTERS.slotMicros, Math.round(ms * MICROS_PER_MS));
  }

  /** Money that a tier was paid, in the day that its ledger books it in. */
  paid(day: number, keyId: string, model: string, { micros, currency }: { micros: number; currency: string }): void {
    if (micros > 0) this.#add(day, keyId, model, costCounter(currency), micros);
  }

  /** Resolves when all that was counted until now is stored, or when its time is over. */
  async settle(ms: number): Promise<void> {
    const flushesLeft = this.#book.flushesLeft;
    if (flushesLeft === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiter: Waiter = { flushesLeft, done: resolve };
    this.#waiters.add(waiter);
    const timer = this.#ports.clock.after(ms, resolve);
    if (!this.#away) this.#flush();
    await promise;
    timer.cancel();
    this.#waiters.delete(waiter);
  }

  /** Writes what there is. What no store takes then is lost, which is said. */
  async close(): Promise<void> {
    this.#away = false;
    await this.settle(CLOSE_MS);
    this.#closed = true;
    this.#timer?.cancel();
    const { log, store } = this.#ports;
    if (this.#book.waiting > 0) log.error("usage.lost", { rows: this.#book.waiting, store: store.kind });
    await store.close();
  }

  #today(): number {
    return dayOf(this.#ports.clock.wall());
  }

  #add(day: number, keyId: string, model: string, counter: string, amount: number): void {
    const sums = this.#book.sumsOf(day, keyId, model);
    sums[counter] = (sums[counter] ?? 0) + amount;
    this.#arm(FLUSH_MS);
  }

  #arm(ms: number): void {
    if (this.#timer !== undefined || this.#writing || this.#closed) return;
    this.#timer = this.#ports.clock.after(ms, () => this.#flush());
  }

  #flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#writing || this.#closed) return;
    const flush = this.#book.take();
    if (flush === null) return;
    this.#writing = true;
    const { store, gateway } = this.#ports;
    void store.add(gateway, flush).then((answer) => this.#onWritten(answer, flush.rows.length));
  }

  #onWritten(answer: UsageWritten, rows: number): void {
    this.#writing = false;
    if (answer.kind === "done") this.#book.told();
    this.#ports.onWrite(answer.kind, this.#book.waiting);
    if (answer.kind !== "done") {
      this.#note(answer.reason);
      this.#arm(AGAIN_MS);
      return;
    }
    this.#note(null);
    for (const waiter of this.#waiters) if ((waiter.flushesLeft -= 1) <= 0) waiter.done();
    if (this.#book.waiting === 0) return;
    // What did not fit has waited as long as what did.
    if (this.#waiters.size > 0 || rows >= FLUSH_ROWS_MAX) this.#flush();
    else this.#arm(FLUSH_MS);
  }

  /** Said when it changes. */
  #note(why: string | null): void {
    const away = why !== null;
    if (away === this.#away) return;
    this.#away = away;
    const { log, store } = this.#ports;
    if (!away) log.info("usage.recovered", { store: store.kind });
    else log.warn("usage.unavailable", { store: store.kind, why, effect: "requests go on; sums wait in memory" });
  }
}
