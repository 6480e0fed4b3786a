import { peerGroup, WrongKeyLimit } from "../../access/wrong-key-limit.ts";
import { asMono, type MonoMs } from "../../kernel/clock.ts";

/** Peers that are held; the one that has waited longest goes first. */
const PEERS_MAX = 10_000;
/** An address that goes on is told of again after this time. */
const TELL_AGAIN_MS = 3_600_000;

interface Held {
  readonly until: MonoMs;
  readonly toldAt: MonoMs;
}

/**
 * Slows down who tries tokens. Unlike a key, a token is not known before the store was asked, so nothing from the address is tried
 * until its next try is due, a right token included: its agent comes again.
 */
export class WrongTokenLimit {
  readonly #wrong = new WrongKeyLimit();
  readonly #held = new Map<string, Held>();

  mayTry(peer: string, now: MonoMs): boolean {
    return (this.#held.get(peerGroup(peer))?.until ?? now) <= now;
  }

  /** Counts one; true: this address is to be told of. */
  spend(peer: string, now: MonoMs): boolean {
    const waitMs = this.#wrong.spend(peer, now);
    if (waitMs === 0) return false;
    const name = peerGroup(peer);
    const before = this.#held.get(name);
    const tells = before === undefined || now - before.toldAt >= TELL_AGAIN_MS;
    this.#held.delete(name);
    this.#held.set(name, { until: asMono(now + waitMs), toldAt: tells ? now : before.toldAt });
    for (const oldest of this.#held.keys()) if (this.#held.size > PEERS_MAX) this.#held.delete(oldest);
    return tells;
  }
}
