import { hash, timingSafeEqual } from "node:crypto";
import { compileGlobs } from "../contract/glob.ts";
import type { ApiKey } from "../contract/gateway-config.ts";
import type { Clock, EpochMs } from "../kernel/clock.ts";
import { WrongKeyLimit } from "./wrong-key-limit.ts";

/**
 * Owns the keys that are let in, from all places that keys come from.
 *
 * Invariants:
 *   K1. No plain key is held, not even one that was just found valid.
 *   K2. The time of a check does not depend on how much of a key is right: the lookup is by the key's hash.
 *   K3. A replaced set is in force for the next check; requests already let in are not touched.
 */
export type KeySource = "config" | "stored" | "session";

export interface AcceptedKey extends ApiKey {
  readonly source: KeySource;
  /** By the key's `models`; whether such a model exists is not its business. */
  readonly allowsModel: (model: string) => boolean;
}

export type KeyCheck =
  | { readonly kind: "ok"; readonly key: AcceptedKey }
  | { readonly kind: "wrong" }
  | { readonly kind: "expired" }
  /** Too many wrong keys from this peer. A valid key is never throttled. */
  | { readonly kind: "throttled"; readonly retryAfterMs: number };

interface Entry {
  readonly key: AcceptedKey;
  readonly hash: Buffer;
  lastUsedAt: EpochMs | null;
}

const SOURCES: readonly KeySource[] = ["config", "stored", "session"];
const WRONG: KeyCheck = { kind: "wrong" };
const EXPIRED: KeyCheck = { kind: "expired" };
const ANY_MODEL = (): boolean => true;

export class KeyRing {
  readonly #clock: Clock;
  readonly #wrong = new WrongKeyLimit();
  readonly #bySource = new Map<KeySource, readonly ApiKey[]>();
  /** By the hash's bytes as latin1. */
  #entries = new Map<string, Entry>();
  /** Of the key that is being checked. */
  readonly #digest = Buffer.alloc(32);

  constructor(clock: Clock, keys: Partial<Readonly<Record<KeySource, readonly ApiKey[]>>> = {}) {
    this.#clock = clock;
    for (const source of SOURCES) this.#bySource.set(source, keys[source] ?? []);
    this.#rebuild();
  }

  /** Replaces the keys of one source, leaving those of the others. */
  replace(source: KeySource, keys: readonly ApiKey[]): void {
    this.#bySource.set(source, keys);
    this.#rebuild();
  }

  /** `peer` is the address at the other end of the socket. */
  check(presented: string, peer: string): KeyCheck {
    // As text from the start: a digest as a buffer takes four times as long to make and to look up.
    const name = hash("sha256", presented, "binary");
    const entry = this.#entries.get(name);
    if (entry === undefined || !this.#isDigest(entry, name)) {
      const retryAfterMs = this.#wrong.spend(peer, this.#clock.mono());
      return retryAfterMs === 0 ? WRONG : { kind: "throttled", retryAfterMs };
    }
    // The wall clock decides here, since an expiry date is a date.
    const now = this.#clock.wall();
    if (entry.key.expiresAt !== null && now >= entry.key.expiresAt) return EXPIRED;
    entry.lastUsedAt = now;
    return { kind: "ok", key: entry.key };
  }

  #isDigest(entry: Entry, name: string): boolean {
    this.#digest.write(name, "latin1");
    return timingSafeEqual(entry.hash, this.#digest);
  }

  /** Whether there is such a key now, and its data may leave the house. */
  allowsExternal(id: string): boolean {
    const key = this.byId(id);
    const over = key?.expiresAt !== undefined && key.expiresAt !== null && key.expiresAt <= this.#clock.wall();
    return key !== undefined && !over && key.allowExternal;
  }

  /** Undefined: no such key is let in now. */
  byId(id: string): AcceptedKey | undefined {
    for (const { key } of this.#entries.values()) if (key.id === id) return key;
    return undefined;
  }

  /** All keys, expired ones too, with the last use since this process started. */
  list(): { readonly key: AcceptedKey; readonly lastUsedAt: EpochMs | null }[] {
    return [...this.#entries.values()].map(({ key, lastUsedAt }) => ({ key, lastUsedAt }));
  }

  #rebuild(): void {
    const entries = new Map<string, Entry>();
    for (const source of SOURCES) {
      for (const key of this.#bySource.get(source) ?? []) {
        const digest = Buffer.from(key.hash, "hex");
        const name = digest.toString("latin1");
        // The file is the operator's last word: a stored key of the same hash does not widen what the file grants.
        if (digest.length !== 32 || entries.has(name)) continue;
        const accepted = { ...key, source, allowsModel: key.models === null ? ANY_MODEL : compileGlobs(key.models) };
        entries.set(name, { key: accepted, hash: digest, lastUsedAt: this.#entries.get(name)?.lastUsedAt ?? null });
      }
    }
    this.#entries = entries;
  }
}
