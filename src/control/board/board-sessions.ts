import { createHash, randomBytes } from "node:crypto";
import type { AcceptedKey, KeyRing } from "../../access/key-ring.ts";
import { asEpoch, asMono, type Clock, type EpochMs, type MonoMs } from "../../kernel/clock.ts";
import { Secret } from "../../kernel/secret.ts";

/**
 * Who is signed in to the board. A session stands for the key that it was made with, and for no more than that.
 *
 * Invariants:
 *   S1. No token is held, only its hash; neither is it in any log.
 *   S2. A session is looked up in the ring of keys at each use: it ends with its key, and when the key's role or secret changes.
 *   S3. There are at most `SESSIONS_MAX`; the one that was used longest ago goes first.
 *   S4. A one-time secret lets one browser in, once.
 */
export const SESSION_MS_MAX = 7 * 86_400_000;
export const SESSION_IDLE_MS = 8 * 3_600_000;
export const ONCE_MS = 15 * 60_000;
const SESSIONS_MAX = 1_000;
const ONCE_MAX = 16;
const TOKEN_BYTES = 32;

export interface BoardSession {
  readonly keyId: string;
  readonly role: AcceptedKey["role"];
  /** At the latest, whatever is done with it; for showing. */
  readonly expiresAt: EpochMs;
}

interface Entry extends BoardSession {
  /** Of the key itself. */
  readonly keyHash: string;
  readonly until: MonoMs;
  usedAt: MonoMs;
}

type Known = Pick<AcceptedKey, "id" | "hash" | "role">;

export class BoardSessions {
  readonly #clock: Clock;
  readonly #keys: Pick<KeyRing, "byId">;
  readonly #sessions = new Map<string, Entry>();
  readonly #once = new Map<string, { readonly key: Known; readonly until: MonoMs }>();

  constructor(clock: Clock, keys: Pick<KeyRing, "byId">) {
    this.#clock = clock;
    this.#keys = keys;
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** For a key that was just found valid. */
  open(key: Known): { readonly token: Secret; readonly session: BoardSession } {
    const now = this.#clock.mono();
    const token = randomBytes(TOKEN_BYTES).toString("base64url");
    const expiresAt = asEpoch(this.#clock.wall() + SESSION_MS_MAX);
    const until = asMono(now + SESSION_MS_MAX);
    const entry = { keyId: key.id, role: key.role, keyHash: key.hash, expiresAt, until, usedAt: now };
    this.#sweep();
    while (this.#sessions.size >= SESSIONS_MAX) this.#dropOldest();
    this.#sessions.set(digest(token), entry);
    return { token: new Secret(token), session: entry };
  }

  /** Undefined: there is none, or it has ended. */
  use(token: string): BoardSession | undefined {
    const name = digest(token);
    const entry = this.#sessions.get(name);
    if (entry === undefined) return undefined;
    if (!this.#holds(entry)) {
      this.#sessions.delete(name);
      return undefined;
    }
    entry.usedAt = this.#clock.mono();
    return entry;
  }

  close(token: string): void {
    this.#sessions.delete(digest(token));
  }

  /** The secret of a link that signs one browser in as the key. */
  makeOnce(key: Known): Secret {
    const now = this.#clock.mono();
    for (const [name, { until }] of this.#once) if (now >= until) this.#once.delete(name);
    const [oldest] = this.#once.keys();
    if (this.#once.size >= ONCE_MAX && oldest !== undefined) this.#once.delete(oldest);
    const secret = randomBytes(TOKEN_BYTES).toString("base64url");
    this.#once.set(digest(secret), { key, until: asMono(now + ONCE_MS) });
    return new Secret(secret);
  }

  /** The key as it is now; undefined: the secret was used, has run out, or never was. */
  takeOnce(secret: string): AcceptedKey | undefined {
    const name = digest(secret);
    const found = this.#once.get(name);
    this.#once.delete(name);
    if (found === undefined || this.#clock.mono() >= found.until) return undefined;
    const key = this.#keys.byId(found.key.id);
    return key !== undefined && key.hash === found.key.hash && key.role === found.key.role ? key : undefined;
  }

  #holds({ keyId, keyHash, role, until, usedAt }: Entry): boolean {
    const now = this.#clock.mono();
    if (now >= until || now - usedAt >= SESSION_IDLE_MS) return false;
    const key = this.#keys.byId(keyId);
    // A key's end is a date, so the wall clock decides there.
    const over = key?.expiresAt !== undefined && key.expiresAt !== null && this.#clock.wall() >= key.expiresAt;
    return key !== undefined && !over && key.hash === keyHash && key.role === role;
  }

  #sweep(): void {
    for (const [name, entry] of this.#sessions) if (!this.#holds(entry)) this.#sessions.delete(name);
  }

  #dropOldest(): void {
    let oldest: string | undefined;
    let usedAt = Infinity;
    for (const [name, entry] of this.#sessions) if (entry.usedAt < usedAt) [oldest, usedAt] = [name, entry.usedAt];
    if (oldest !== undefined) this.#sessions.delete(oldest);
  }
}

const digest = (token: string): string => createHash("sha256").update(token).digest("hex");
