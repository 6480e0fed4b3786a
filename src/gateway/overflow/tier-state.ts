import type { Tier } from "../../contract/overflow-settings.ts";
import { Breaker, type BreakerState } from "../../decide/routing/breaker.ts";
import type { Clock } from "../../kernel/clock.ts";
import { placeOf } from "./providers/make-provider.ts";
import type { Provider } from "./providers/provider.ts";

/** What lives of a tier, at one place, beyond its configuration. It outlives reloads, and errands keep the one that they began with. */
export class TierState {
  readonly breaker: Breaker;
  /** Errands and calls of this gateway that are with the tier. */
  inFlight = 0;
  tier: Tier;
  provider: Provider;
  readonly #clock: Clock;

  constructor(tier: Tier, provider: Provider, clock: Clock) {
    this.tier = tier;
    this.provider = provider;
    this.#clock = clock;
    this.breaker = new Breaker(clock.mono());
  }

  get place(): string {
    return placeOf(this.tier.provider);
  }

  get mayTry(): boolean {
    return this.breaker.mayTry(this.#clock.mono());
  }

  get standing(): BreakerState {
    return this.breaker.state(this.#clock.mono());
  }

  enter(): void {
    this.inFlight += 1;
    this.breaker.beginProbe(this.#clock.mono());
  }

  leave(): void {
    this.inFlight -= 1;
  }

  /** How a submission went: "failed" is the tier's own fault. */
  onSubmission(result: "ok" | "failed" | "abandoned"): void {
    this.breaker.onResult(result === "failed" ? "connectFailed" : result, this.#clock.mono());
  }
}
