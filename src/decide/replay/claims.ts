import type { MonoMs } from "../../kernel/clock.ts";

/** Who works on an answer. A lane is one of several parallel claims for the same answer: see `ReplyStore`. */
export interface ClaimName {
  readonly key: string;
  readonly lane: string;
  /** Random, one for each try to get the claim. */
  readonly owner: string;
}

interface Claim {
  readonly owner: string;
  readonly fingerprint: string;
  expiresAt: number;
}

export type ClaimOutcome = "taken" | "running" | "mismatch";

/** A claim of one lane never blocks another's. */
export const laneKey = ({ key, lane }: { readonly key: string; readonly lane: string }): string => `${key}/${lane}`;

/**
 * The claims of one process, as a table in which time comes in from outside.
 *
 * Invariants:
 *   T1. At any time a lane of a key has at most one owner whose lease has not passed.
 *   T2. Who has lost a claim can neither renew nor end it.
 */
export class ClaimTable {
  readonly #claims = new Map<string, Claim>();

  take(name: ClaimName, fingerprint: string, now: MonoMs, leaseMs: number): ClaimOutcome {
    const held = this.#live(name, now);
    if (held !== undefined && held.fingerprint !== fingerprint) return "mismatch";
    if (held !== undefined && held.owner !== name.owner) return "running";
    this.#claims.set(laneKey(name), { owner: name.owner, fingerprint, expiresAt: now + leaseMs });
    return "taken";
  }

  /** False: the claim is no longer this owner's. */
  renew(name: ClaimName, now: MonoMs, leaseMs: number): boolean {
    const held = this.#live(name, now);
    if (held?.owner !== name.owner) return false;
    held.expiresAt = now + leaseMs;
    return true;
  }

  holds(name: ClaimName, now: MonoMs): boolean {
    return this.#live(name, now)?.owner === name.owner;
  }

  /** False: the claim was no longer this owner's, and nothing changed. */
  end(name: ClaimName, now: MonoMs): boolean {
    if (!this.holds(name, now)) return false;
    this.#claims.delete(laneKey(name));
    return true;
  }

  #live(name: ClaimName, now: MonoMs): Claim | undefined {
    const held = this.#claims.get(laneKey(name));
    if (held === undefined || now < held.expiresAt) return held;
    this.#claims.delete(laneKey(name));
    return undefined;
  }
}
