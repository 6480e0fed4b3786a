import { Bag } from "./bag.ts";
import type { Clock, MonoMs, Timer } from "./clock.ts";

/**
 * Many deadlines, one timer. A request holds one entry and moves its deadline forward by writing a number, so an event
 * that postpones a timeout costs no allocation and no system call.
 *
 * Invariants:
 *   W1. An entry fires once, at most `TICK_MS` after its deadline, unless removed or moved later.
 *   W2. With no entries there is no timer: an idle gateway does not wake up.
 */
export const TICK_MS = 25;

export interface Deadline {
  /** Mono time at which `expire` is due. May be written at any time; a later value is honoured when the entry comes up. */
  at: MonoMs;
  readonly expire: (now: MonoMs) => void;
  /** Internal: the bucket the entry lies in, -1 when it is not in the wheel. */
  bucket: number;
}

const BUCKETS = 512;

export class TimerWheel {
  readonly #clock: Clock;
  readonly #buckets: Bag<Deadline>[] = Array.from({ length: BUCKETS }, () => new Bag());
  #size = 0;
  #tick: number;
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#tick = Math.floor(clock.mono() / TICK_MS);
  }

  get size(): number {
    return this.#size;
  }

  add(at: MonoMs, expire: (now: MonoMs) => void): Deadline {
    const entry: Deadline = { at, expire, bucket: -1 };
    if (this.#size === 0) this.#tick = Math.floor(this.#clock.mono() / TICK_MS);
    this.#put(entry);
    this.#size += 1;
    if (this.#timer === undefined) this.#arm();
    return entry;
  }

  /** Moves the deadline; needed only when it becomes earlier, since later ones are picked up when the entry comes up. */
  move(entry: Deadline, at: MonoMs): void {
    const earlier = at < entry.at;
    entry.at = at;
    if (entry.bucket >= 0 && earlier) {
      this.#buckets[entry.bucket]?.delete(entry);
      this.#put(entry);
    }
  }

  remove(entry: Deadline): void {
    if (entry.bucket < 0) return;
    this.#buckets[entry.bucket]?.delete(entry);
    entry.bucket = -1;
    this.#size -= 1;
    if (this.#size === 0) {
      this.#timer?.cancel();
      this.#timer = undefined;
    }
  }

  #put(entry: Deadline): void {
    // A deadline further away than the wheel is long lies in the last bucket ahead and is put again when it comes up.
    const due = Math.max(Math.ceil(entry.at / TICK_MS), this.#tick + 1);
    const bucket = Math.min(due, this.#tick + BUCKETS - 1) % BUCKETS;
    entry.bucket = bucket;
    this.#buckets[bucket]?.add(entry);
  }

  #arm(): void {
    this.#timer = this.#clock.after(TICK_MS, () => {
      this.#timer = undefined;
      this.#advance();
      if (this.#size > 0 && this.#timer === undefined) this.#arm();
    });
  }

  #advance(): void {
    const now = this.#clock.mono();
    const target = Math.floor(now / TICK_MS);
    const from = Math.max(this.#tick + 1, target - BUCKETS + 1);
    for (let tick = from; tick <= target; tick += 1) {
      this.#tick = tick;
      const bucket = this.#buckets[tick % BUCKETS];
      if (bucket === undefined || bucket.size === 0) continue;
      const due = [...bucket];
      for (const entry of due) {
        if (entry.bucket !== tick % BUCKETS) continue; // Removed or moved by an earlier callback of this tick.
        bucket.delete(entry);
        if (entry.at > now) {
          this.#put(entry);
          continue;
        }
        entry.bucket = -1;
        this.#size -= 1;
        entry.expire(now);
      }
    }
    this.#tick = Math.max(this.#tick, target);
  }
}
