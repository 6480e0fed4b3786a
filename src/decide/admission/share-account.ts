/**
 * What a lower class is owed while higher classes always wait: a fixed share of the slots' time, and no more.
 *
 * The credit is slot time (slot-ms). While the class waits behind a waiting higher class it earns `rate` (share × slots); the
 * slots it holds in that time spend it. With enough credit, its next waiter goes before the higher classes.
 *
 * Invariants:
 *   S1. Going first needs the credit for one request's usual slot time up front, or for `FIRST_TURN_MS` of the share if that
 *       is less: class order holds at first, then the share is kept. The time truly used is spent afterwards, so a long
 *       request is paid for by a long pause, and over a long time the share is met from both sides.
 *   S2. Going first never brings the class above `width` slots, the share rounded up to the next whole slot.
 *   S3. The credit stays within [-width × DEBT_MAX_MS, rate × CREDIT_MAX_MS].
 *   S4. Slots above `width` are not charged: they were taken while nobody of a higher class waited.
 *   S5. Without a waiting higher class, or without any work of its own, the credit fades to zero at `rate`: neither old claims
 *       nor old debts decide about a new crowd.
 */
export const FIRST_TURN_MS = 10_000;
export const CREDIT_MAX_MS = 60_000;
export const DEBT_MAX_MS = 3_600_000;

export class ShareAccount {
  #credit = 0;
  #rate = 0;
  #width = 1;

  /** `share` of 0 turns the account off: the class never goes first. */
  setShare(share: number, slots: number): void {
    this.#rate = share * slots;
    // One above a whole number too: refilling a freed slot takes a moment, and what that loses must be caught up.
    this.#width = Math.floor(this.#rate) + 1;
    this.#clamp();
  }

  /** For `ms` the class had `inUse` slots and someone waiting (`waits`), and so had (`crowded`) a higher class. */
  pass(ms: number, waits: boolean, crowded: boolean, inUse: number): void {
    if (this.#rate === 0) return;
    if (crowded && (waits || inUse > 0)) {
      this.#credit += ((waits ? this.#rate : 0) - Math.min(inUse, this.#width)) * ms;
      this.#clamp();
    } else if (this.#credit !== 0) {
      const faded = Math.min(Math.abs(this.#credit), this.#rate * ms);
      this.#credit -= Math.sign(this.#credit) * faded;
    }
  }

  /** Whether the next waiter of the class, which holds `inUse` slots, may go before higher classes. */
  goesFirst(inUse: number, holdMs: number | undefined): boolean {
    if (this.#credit <= 0 || inUse >= this.#width) return false;
    const share = this.#rate * FIRST_TURN_MS;
    return this.#credit >= (holdMs === undefined ? share : Math.min(holdMs, share));
  }

  #clamp(): void {
    this.#credit = Math.min(this.#rate * CREDIT_MAX_MS, Math.max(-this.#width * DEBT_MAX_MS, this.#credit));
  }
}
