import type { MonoMs } from "../../kernel/clock.ts";
import { SETTLE_MS } from "./slot-request.ts";

export interface Hello {
  readonly nonce: string;
  /** Of the store, by its own clock. */
  readonly ageMs: number;
  /** Gateways that are there, this one included. */
  readonly gateways: number;
}

/**
 * How many gateways share, by what a store tells that may be emptied.
 *
 * Invariants:
 *   G1. Until as many gateways are seen as before the store was emptied, or one lease's time has passed, those before count.
 *   G2. A store never seen has one gateway more than is known of: who was told to share is hardly alone.
 */
export class GatewayCount {
  readonly #ttlMs: number;
  #nonce: string | null = null;
  #gateways: number;
  #settled = false;
  #before: { readonly gateways: number; readonly until: MonoMs } | null = null;

  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
    this.#gateways = 2;
  }

  /** For shares; at least 1. */
  gateways(now: MonoMs): number {
    return Math.max(1, this.#gateways, this.complete(now) ? 0 : (this.#before?.gateways ?? 0));
  }

  complete(now: MonoMs): boolean {
    return this.#before === null || now >= this.#before.until || this.#gateways >= this.#before.gateways;
  }

  get settled(): boolean {
    return this.#settled;
  }

  /** `serverUpMs`: how long the server behind it runs, when it was last asked; undefined where it does not tell. True when the store was emptied. */
  heard({ nonce, ageMs, gateways }: Hello, serverUpMs: number | undefined, now: MonoMs): boolean {
    const emptied = this.#nonce !== null && this.#nonce !== nonce;
    if (emptied) this.#before = { gateways: this.gateways(now), until: (now + this.#ttlMs) as MonoMs };
    this.#nonce = nonce;
    this.#gateways = gateways;
    this.#settled = ageMs >= SETTLE_MS || (!emptied && serverUpMs !== undefined && serverUpMs >= SERVER_UP_MS);
    return emptied;
  }

  /** Another server may be behind the address from now on. */
  reconnected(): void {
    this.#settled = false;
  }
}

/** A server that runs for longer has not been emptied by a restart while gateways were looking for it. */
const SERVER_UP_MS = 60_000;
