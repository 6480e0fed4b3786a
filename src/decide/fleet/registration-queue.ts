import { asMono, type MonoMs } from "../../kernel/clock.ts";

/**
 * Who may connect, when. After a restart of a control plane its whole fleet comes back at once; each connection costs a look into
 * the store.
 *
 * Invariants:
 *   Q1. They go in the order in which they came, one every `everyMs` at most, however long nobody came before.
 *   Q2. Nobody is refused who could wait; no more than `waitingMax` wait.
 *   Q3. Who has left meanwhile costs nobody's time.
 */
export interface RegistrationPace {
  readonly everyMs: number;
  readonly waitingMax: number;
}

export class RegistrationQueue<T> {
  readonly #pace: RegistrationPace;
  readonly #waiting = new Set<T>();
  #nextAt: MonoMs;

  constructor(pace: RegistrationPace, now: MonoMs) {
    this.#pace = pace;
    this.#nextAt = now;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** When the next one is due; null while nobody waits. */
  get nextAt(): MonoMs | null {
    return this.#waiting.size === 0 ? null : this.#nextAt;
  }

  /** False: as many wait as may. */
  offer(item: T): boolean {
    if (this.#waiting.size >= this.#pace.waitingMax) return false;
    this.#waiting.add(item);
    return true;
  }

  leave(item: T): void {
    this.#waiting.delete(item);
  }

  /** The next one, if it is due. */
  take(now: MonoMs): T | undefined {
    if (now < this.#nextAt) return undefined;
    const [first] = this.#waiting;
    if (first === undefined) return undefined;
    this.#waiting.delete(first);
    this.#nextAt = asMono(now + this.#pace.everyMs);
    return first;
  }
}
