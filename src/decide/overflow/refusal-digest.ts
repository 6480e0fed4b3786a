import type { MonoMs } from "../../kernel/clock.ts";

/** Chats of one kind are refused by the hundred while a card is loaded; each would push an older entry out of the record. */
const QUIET_MS = 60_000;
const KINDS_MAX = 1_000;

interface Kind {
  readonly toldAt: MonoMs;
  /** Since then. */
  more: number;
}

/** Which refusals are put on record: the first of its kind at once, and those of a minute after it as a number with the next. */
export class RefusalDigest {
  readonly #kinds = new Map<string, Kind>();

  /** So many of this kind were not told before; null: this one is not told either. */
  note(kind: string, now: MonoMs): number | null {
    const known = this.#kinds.get(kind);
    if (known !== undefined && now - known.toldAt < QUIET_MS) {
      known.more += 1;
      return null;
    }
    this.#kinds.delete(kind);
    for (const oldest of this.#kinds.keys()) {
      if (this.#kinds.size < KINDS_MAX) break;
      this.#kinds.delete(oldest);
    }
    this.#kinds.set(kind, { toldAt: now, more: 0 });
    return known?.more ?? 0;
  }
}
