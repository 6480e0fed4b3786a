import { asMono, type MonoMs } from "../../kernel/clock.ts";

/**
 * Who may connect, when. After a restart of a control plane its whole fleet comes back at once; each connection costs a look into
 * the store.
 *
 * Invariants:
 *   Q1. One goes every `everyMs` at most, however long nobody came before. Addresses take turns, and those of one go in the order in
 *       which they came: whoever floods the door from one place waits behind himself.
 *   Q2. Nobody is refused who could wait; no more than `waitingMax` wait.
 *   Q3. Who has left meanwhile costs nobody's time.
 */
export interface RegistrationPace {
  readonly everyMs: number;
  readonly waitingMax: number;
}

export class RegistrationQueue<T> {
  readonly #pace: RegistrationPace;
  /** By address, the one whose turn it is first. */
  readonly #waiting = new Map<string, Set<T>>();
  #size = 0;
  #nextAt: MonoMs;

  constructor(pace: RegistrationPace, now: MonoMs) {
    this.#pace = pace;
    this.#nextAt = now;
  }

  get size(): number {
    return this.#size;
  }

  /** When the next one is due; null while nobody waits. */
  get nextAt(): MonoMs | null {
    return this.#size === 0 ? null : this.#nextAt;
  }

  /** False: as many wait as may. */
  offer(item: T, address: string): boolean {
    if (this.#size >= this.#pace.waitingMax) return false;
    const items = this.#waiting.get(address) ?? new Set<T>();
    this.#waiting.set(address, items.add(item));
    this.#size += 1;
    return true;
  }

  leave(item: T, address: string): void {
    const items = this.#waiting.get(address);
    if (items?.delete(item) !== true) return;
    this.#size -= 1;
    if (items.size === 0) this.#waiting.delete(address);
  }

  /** The next one, if it is due. */
  take(now: MonoMs): T | undefined {
    const [turn] = this.#waiting;
    if (turn === undefined || now < this.#nextAt) return undefined;
    const [address, items] = turn;
    const [first] = items;
    if (first === undefined) return undefined;
    this.#nextAt = asMono(now + this.#pace.everyMs);
    this.leave(first, address);
    // Behind the other addresses.
    if (this.#waiting.delete(address)) this.#waiting.set(address, items);
    return first;
  }
}
