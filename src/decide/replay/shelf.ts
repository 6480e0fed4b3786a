import type { MonoMs } from "../../kernel/clock.ts";

interface Item<V> {
  readonly value: V;
  readonly bytes: number;
  readonly storedAt: MonoMs;
  readonly expiresAt: number;
}

export interface Shelved<V> {
  readonly value: V;
  readonly ageMs: number;
}

/**
 * Values with a size and a time to live, the least recently used leaving first.
 *
 * Invariants:
 *   S1. The sizes of all values never exceed `bytesMax`; a larger value is not taken.
 *   S2. Nothing is given out once its time has passed.
 */
export class Shelf<V> {
  #bytesMax: number;
  /** The least recently used first. */
  readonly #items = new Map<string, Item<V>>();
  #bytes = 0;
  #evicted = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get entries(): number {
    return this.#items.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** How many values had to leave before their time, since the start. */
  get evicted(): number {
    return this.#evicted;
  }

  setBytesMax(bytesMax: number): void {
    this.#bytesMax = bytesMax;
    this.#makeRoom(0);
  }

  get(key: string, now: MonoMs): Shelved<V> | undefined {
    const item = this.#items.get(key);
    if (item === undefined) return undefined;
    this.#items.delete(key);
    if (now >= item.expiresAt) {
      this.#bytes -= item.bytes;
      return undefined;
    }
    this.#items.set(key, item);
    return { value: item.value, ageMs: now - item.storedAt };
  }

  /** False: the value is larger than the whole shelf. */
  put(key: string, value: V, bytes: number, now: MonoMs, ttlMs: number): boolean {
    this.delete(key);
    if (bytes > this.#bytesMax) return false;
    this.#dropExpired(now);
    this.#makeRoom(bytes);
    this.#items.set(key, { value, bytes, storedAt: now, expiresAt: now + ttlMs });
    this.#bytes += bytes;
    return true;
  }

  delete(key: string): void {
    const item = this.#items.get(key);
    if (item === undefined) return;
    this.#items.delete(key);
    this.#bytes -= item.bytes;
  }

  /** Of the least recently used only: what is in use is looked at when it is asked for. */
  #dropExpired(now: MonoMs): void {
    for (const [key, item] of this.#items) {
      if (now < item.expiresAt) return;
      this.#items.delete(key);
      this.#bytes -= item.bytes;
    }
  }

  #makeRoom(bytes: number): void {
    for (const [key, item] of this.#items) {
      if (this.#bytes + bytes <= this.#bytesMax) return;
      this.#items.delete(key);
      this.#bytes -= item.bytes;
      this.#evicted += 1;
    }
  }
}
