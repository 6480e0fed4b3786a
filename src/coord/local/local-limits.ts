import { KeyAccount, type KeyEntry, type StoredAccount } from "../../decide/limits/key-account.ts";
import { limitsMoney } from "../../decide/limits/key-limits.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { LimitAnswer, LimitRequest, LimitStore } from "../limits/limit-store.ts";
import type { DocStore } from "../overflow/doc-store.ts";

const SAVE_MS = 100;
const SAVE_AGAIN_MS = 1_000;
const nameOf = (keyId: string): string => `limits/${keyId}`;

/**
 * The counts of keys in this process. Time is the wall clock's at the start and the steady clock's from there on. Days and months of keys
 * that have limits of them are read from a file with their first request, and written a tenth of a second after they change; while they can't
 * be, nothing with a limit of money is let in.
 */
export class LocalLimits implements LimitStore {
  readonly kind = "local";
  readonly #clock: Clock;
  readonly #docs: DocStore | null;
  readonly #ahead: number;
  readonly #accounts = new Map<string, KeyAccount>();
  /** The highest number that each gateway told under. */
  readonly #told = new Map<string, number>();
  /** Accounts that are kept in the file. */
  readonly #kept = new Set<string>();
  readonly #changed = new Set<string>();
  #timer: Timer | null = null;
  #writing: Promise<void> | null = null;
  #closed = false;
  #failing = false;

  constructor(clock: Clock, docs: DocStore | null) {
    this.#clock = clock;
    this.#docs = docs;
    this.#ahead = clock.wall() - clock.mono();
  }

  ask(request: LimitRequest, done: (answer: LimitAnswer) => void): void {
    const missing = request.entries.filter(
      (entry) => this.#docs !== null && isKept(entry) && !this.#kept.has(entry.keyId),
    );
    if (missing.length === 0) done(this.#answer(request));
    else void this.#askLoaded(request, missing, done);
  }

  step(request: LimitRequest, now: number): LimitAnswer {
    const { gateway, seq, notAfter, ttlMs, nonce, entries } = request;
    if (notAfter > 0 && now > notAfter) return { kind: "late", now };
    const adjusts = seq > (this.#told.get(gateway) ?? 0);
    if (adjusts) this.#told.set(gateway, seq);
    const keys = entries.map((entry) => {
      let account = this.#accounts.get(entry.keyId);
      if (account === undefined) this.#accounts.set(entry.keyId, (account = new KeyAccount(nonce)));
      return account.step(entry, adjusts, ttlMs, now);
    });
    return { kind: "done", now, keys };
  }

  /** As after a restart of a store that keeps nothing. */
  empty(): void {
    this.#accounts.clear();
    this.#told.clear();
  }

  /** Resolves when all is written, or can't be. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    await this.#writing;
    if (this.#changed.size > 0) await this.#save();
    await this.#docs?.close();
  }

  async #askLoaded(
    request: LimitRequest,
    missing: readonly KeyEntry[],
    done: (answer: LimitAnswer) => void,
  ): Promise<void> {
    let answer: LimitAnswer;
    try {
      await this.#load(missing.map(({ keyId }) => keyId));
      answer = this.#answer(request);
    } catch (error) {
      answer = { kind: "failed", reason: error instanceof Error ? error.message : String(error) };
    }
    done(answer);
  }

  async #load(keyIds: readonly string[]): Promise<void> {
    const loaded = await this.#docs?.load(keyIds.map(nameOf));
    keyIds.forEach((keyId, index) => {
      const text = loaded?.docs[index];
      // Another request of the key may have been first.
      if (this.#kept.has(keyId)) return;
      this.#kept.add(keyId);
      if (typeof text === "string" && !this.#accounts.has(keyId))
        this.#accounts.set(keyId, new KeyAccount("kept", JSON.parse(text) as StoredAccount));
    });
  }

  #answer(request: LimitRequest): LimitAnswer {
    const { entries } = request;
    if (this.#failing && entries.some(({ want }) => want !== null && limitsMoney(want.limits)))
      return { kind: "failed", reason: "what was spent can't be written down" };
    const answer = this.step(request, Math.floor(this.#clock.mono() + this.#ahead));
    for (const { keyId } of entries) if (this.#kept.has(keyId)) this.#changed.add(keyId);
    if (this.#changed.size > 0) this.#saveSoon(SAVE_MS);
    return answer;
  }

  #saveSoon(ms: number): void {
    if (this.#closed || this.#writing !== null) return;
    this.#timer ??= this.#clock.after(ms, () => {
      this.#timer = null;
      this.#writing = this.#save();
    });
  }

  async #save(): Promise<void> {
    const keyIds = [...this.#changed];
    this.#changed.clear();
    const writes = keyIds.map((keyId) => {
      const text = JSON.stringify(this.#accounts.get(keyId)?.stored());
      return { name: nameOf(keyId), text, open: true };
    });
    try {
      const outcome = await this.#docs?.commit({ from: [], writes });
      this.#failing = outcome !== "done";
    } catch {
      this.#failing = true;
    }
    this.#writing = null;
    if (this.#failing) for (const keyId of keyIds) this.#changed.add(keyId);
    if (this.#changed.size > 0) this.#saveSoon(this.#failing ? SAVE_AGAIN_MS : SAVE_MS);
  }
}

const isKept = ({ want }: KeyEntry): boolean =>
  want !== null && (want.limits.tokensPerDay !== null || limitsMoney(want.limits));
