import { PROBE_MS } from "../../decide/coordination/link-breaker.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import type { Random } from "../../kernel/random.ts";
import { RedisConnection } from "./redis-connection.ts";
import type { RedisLink } from "./redis-link.ts";

const OPEN_MS = 1_000;

export interface SubscriberDeps {
  readonly clock: Clock;
  readonly random: Random;
}

interface Subscription {
  readonly onMessage: (message: string) => void;
  /** Listening began, or began again: what was said before was not heard. */
  readonly onListening: () => void;
}

/**
 * Hears what other gateways publish, on a connection of its own, since one that listens can do nothing else. A message may
 * be lost at any time; whoever listens must get on without it, only later.
 *
 * Invariants:
 *   M1. It tries to connect only while the link works, and at least PROBE_MS apart: a dead server is looked for by one.
 *   M2. After `onListening` each message published is heard until the connection breaks.
 */
export class RedisSubscriber {
  readonly #link: RedisLink;
  readonly #deps: SubscriberDeps;
  readonly #channels = new Map<string, Set<Subscription>>();
  readonly #linkState: Disposable;
  #connection: RedisConnection | null = null;
  #opening = false;
  #triedAt: MonoMs | undefined;
  #timer: Timer | undefined;
  #closed = false;

  constructor(link: RedisLink, deps: SubscriberDeps) {
    this.#link = link;
    this.#deps = deps;
    this.#linkState = link.onState(() => this.#plan());
  }

  listen(channel: string, subscription: Subscription): Disposable {
    const known = this.#channels.get(channel);
    if (known !== undefined) known.add(subscription);
    else {
      this.#channels.set(channel, new Set([subscription]));
      if (this.#connection === null) this.#plan();
      else void this.#subscribe(this.#connection, [channel]);
    }
    return { [Symbol.dispose]: () => this.#leave(channel, subscription) };
  }

  #leave(channel: string, subscription: Subscription): void {
    const subscriptions = this.#channels.get(channel);
    if (subscriptions?.delete(subscription) !== true || subscriptions.size > 0) return;
    this.#channels.delete(channel);
    void this.#connection?.send("unsubscribe", [channel]);
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#linkState[Symbol.dispose]();
    this.#connection?.close();
  }

  #plan(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#closed || this.#opening || this.#connection !== null) return;
    if (this.#channels.size === 0 || this.#link.state !== "closed") return;
    const { clock, random } = this.#deps;
    const now = clock.mono();
    const next = this.#triedAt === undefined ? now : this.#triedAt + PROBE_MS * (1 + random.next() / 4);
    this.#timer = clock.after(Math.max(0, next - now), () => void this.#open());
  }

  async #open(): Promise<void> {
    this.#opening = true;
    this.#triedAt = this.#deps.clock.mono();
    let made: RedisConnection | undefined;
    try {
      made = await RedisConnection.open(this.#link.settings.url, OPEN_MS, this.#deps.clock, () => this.#lost(made));
    } catch {
      made = undefined; // The next try is planned below; the link tells of a server that is away.
    }
    this.#opening = false;
    if (made === undefined || made.over || this.#closed) {
      made?.close();
      this.#plan();
      return;
    }
    this.#connection = made;
    made.onMessage((channel, message) => {
      for (const { onMessage } of this.#channels.get(channel) ?? []) onMessage(message);
    });
    await this.#subscribe(made, [...this.#channels.keys()]);
  }

  async #subscribe(connection: RedisConnection, channels: readonly string[]): Promise<void> {
    if (channels.length === 0) return;
    const answer = await connection.send("subscribe", channels);
    if (answer.kind !== "reply") {
      connection.close();
      return;
    }
    for (const channel of channels) for (const { onListening } of this.#channels.get(channel) ?? []) onListening();
  }

  #lost(connection: RedisConnection | undefined): void {
    if (connection === undefined || connection !== this.#connection) return;
    this.#connection = null;
    this.#plan();
  }
}
