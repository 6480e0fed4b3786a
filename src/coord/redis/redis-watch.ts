import type { StoreView } from "../../decide/coordination/book-view.ts";
import { GatewayCount } from "../../decide/coordination/gateway-count.ts";
import { BOOT_TTL_MS } from "../../decide/coordination/slot-request.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { StoreWatch } from "../store-watch.ts";
import type { RedisLink } from "./redis-link.ts";
import { loadScript } from "./script.ts";

const HELLO = loadScript(new URL("./hello.lua", import.meta.url));
const HELLO_MS = 2_000;
/** Three hellos may be missed. */
const PRESENT_MS = 7_000;

export interface WatchPorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly onEmptied: () => void;
}

type Change = "up" | "down" | "reconnected";

/**
 * Says every two seconds that this gateway is there, and keeps what it hears.
 *
 * Invariants:
 *   W1. A store that was emptied is noticed with the first hello after it, and told once.
 *   W2. "up" is told after the first hello of that time: who comes back knows how many share.
 */
export class RedisWatch implements StoreWatch {
  readonly gateway: string;
  readonly #link: RedisLink;
  readonly #ports: WatchPorts;
  readonly #count: GatewayCount;
  readonly #listeners = new Set<(change: Change) => void>();
  readonly #subscriptions: readonly Disposable[];
  #timer: Timer | undefined;
  #closed = false;
  #hellos = 0;

  constructor(link: RedisLink, gateway: string, ttlMs: number, ports: WatchPorts) {
    this.gateway = gateway;
    this.#link = link;
    this.#ports = ports;
    this.#count = new GatewayCount(ttlMs);
    this.#subscriptions = [
      link.onState((state) => {
        if (state === "closed") void this.#hello("up");
        else this.#tell("down");
      }),
      link.onConnected(() => {
        this.#count.reconnected();
        if (link.state === "closed") void this.#hello("reconnected");
      }),
    ];
  }

  /** Says hello for the first time, where there is somebody to say it to. */
  async open(): Promise<void> {
    await this.#hello(null);
  }

  get reason(): string {
    return this.#link.reason;
  }

  get gateways(): number {
    return this.#count.gateways(this.#ports.clock.mono());
  }

  view(): StoreView {
    const now = this.#ports.clock.mono();
    return {
      up: this.#link.state === "closed",
      stepMs: this.#link.settings.timeoutMs,
      gateways: this.#count.gateways(now),
      settled: this.#count.settled,
    };
  }

  onChange(listener: (change: Change) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(listener) };
  }

  /** The others part the slots among themselves from now on. Waits for no answer. */
  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    void this.#say(0);
  }

  async #hello(then: Change | null): Promise<void> {
    this.#timer?.cancel();
    const { clock, random, log, onEmptied } = this.#ports;
    const outcome = await this.#say(PRESENT_MS);
    if (this.#closed) return;
    this.#timer?.cancel();
    this.#timer = clock.after(HELLO_MS * (0.75 + random.next() / 4), () => void this.#hello(null));
    if (outcome.kind === "reply" && Array.isArray(outcome.reply)) {
      const [nonce, age, gateways] = outcome.reply;
      const hello = { nonce: String(nonce), ageMs: Number(age), gateways: Number(gateways) };
      if (this.#count.heard(hello, this.#link.facts?.upMs ?? undefined, clock.mono())) {
        log.warn("coordination.store_emptied", { gateways: this.#count.gateways(clock.mono()) });
        onEmptied();
      }
    }
    if (then !== null && this.#link.state === "closed") this.#tell(then);
  }

  #say(presentMs: number): ReturnType<RedisLink["run"]> {
    const { keyPrefix } = this.#link.settings;
    const keys = [`{${keyPrefix}}:boot`, `{${keyPrefix}}:gateways`];
    // A name of its own for each life of the store: the first at an emptied one may have been the first before.
    const nonce = `${this.gateway}-${(this.#hellos += 1)}`;
    return this.#link.run(HELLO, keys, [this.gateway, nonce, presentMs, BOOT_TTL_MS]);
  }

  #tell(change: Change): void {
    for (const listener of this.#listeners) listener(change);
  }
}
