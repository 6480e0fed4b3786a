import { isIPv6 } from "node:net";
import type { MonoMs } from "../kernel/clock.ts";

/**
 * Counts wrong keys per peer of the socket; `X-Forwarded-For` is anyone's to write and is not looked at.
 *
 * Invariants:
 *   L1. At most `PEERS_MAX` peers are held; the one that was wrong longest ago goes first, so that an attacker with many
 *       addresses costs no memory.
 *   L2. A valid key is never held up: clients behind the same proxy as an attacker are not locked out.
 */
export const WRONG_KEYS_BURST = 20;
export const WRONG_KEYS_PER_MS = 20 / 60_000;
const PEERS_MAX = 10_000;

interface Bucket {
  tokens: number;
  at: MonoMs;
}

export class WrongKeyLimit {
  readonly #buckets = new Map<string, Bucket>();

  get size(): number {
    return this.#buckets.size;
  }

  /** Counts one wrong key. 0: answer it as wrong; otherwise the milliseconds until this peer's next wrong key is looked at. */
  spend(peer: string, now: MonoMs): number {
    const name = peerGroup(peer);
    const bucket = this.#buckets.get(name) ?? { tokens: WRONG_KEYS_BURST, at: now };
    bucket.tokens = Math.min(WRONG_KEYS_BURST, bucket.tokens + (now - bucket.at) * WRONG_KEYS_PER_MS);
    bucket.at = now;
    this.#buckets.delete(name);
    this.#buckets.set(name, bucket);
    if (this.#buckets.size > PEERS_MAX) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
    if (bucket.tokens < 1) return Math.ceil((1 - bucket.tokens) / WRONG_KEYS_PER_MS);
    bucket.tokens -= 1;
    return 0;
  }
}

/** An IPv6 customer holds a /64 and may take any address in it, so the /64 is the peer. */
export function peerGroup(address: string): string {
  const plain =
    address.toLowerCase().startsWith("::ffff:") && address.includes(".") ? address.slice("::ffff:".length) : address;
  if (!isIPv6(plain)) return plain;
  const [head = "", tail] = (plain.split("%", 1)[0] ?? "").toLowerCase().split("::");
  const groups = head === "" ? [] : head.split(":");
  const after = tail === undefined || tail === "" ? [] : tail.split(":");
  const missing = tail === undefined ? 0 : Math.max(0, 8 - groups.length - after.length);
  const all = [...groups, ...Array.from({ length: missing }, () => "0"), ...after];
  return `${all
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ""))
    .join(":")}::/64`;
}
