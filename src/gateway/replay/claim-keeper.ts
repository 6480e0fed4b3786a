import type { ReplyStore } from "../../coord/reply-store.ts";
import type { ClaimName } from "../../decide/replay/claims.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";

export interface HeldClaim {
  readonly store: ReplyStore;
  readonly name: ClaimName;
  readonly fingerprint: string;
}

/** Of a shared store: how long others wait for a gateway that is gone. */
export const CLAIM_LEASE_MS = 15_000;
const RENEW_MS = CLAIM_LEASE_MS / 3;

/**
 * Renews this gateway's claims, all of one store in one step. A claim that is lost meanwhile costs nothing here: its answer is
 * refused when it comes to be kept.
 */
export class ClaimKeeper {
  readonly #clock: Clock;
  readonly #held = new Map<ReplyStore, Set<HeldClaim>>();
  #timer: Timer | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  hold(claim: HeldClaim): void {
    let claims = this.#held.get(claim.store);
    if (claims === undefined) this.#held.set(claim.store, (claims = new Set()));
    claims.add(claim);
    this.#timer ??= this.#clock.after(RENEW_MS, () => this.#renew());
  }

  release(claim: HeldClaim): void {
    const claims = this.#held.get(claim.store);
    if (claims?.delete(claim) === true && claims.size === 0) this.#held.delete(claim.store);
    if (this.#held.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #renew(): void {
    this.#timer = this.#clock.after(RENEW_MS, () => this.#renew());
    for (const [store, claims] of this.#held) {
      // What can't be renewed now may be in time at the next turn; who loses a claim is told when it ends.
      void store
        .renew(
          Array.from(claims, ({ name }) => name),
          CLAIM_LEASE_MS,
        )
        .catch(() => {});
    }
  }
}
