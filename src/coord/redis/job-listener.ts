import type { Clock, Timer } from "../../kernel/clock.ts";
import type { Secret } from "../../kernel/secret.ts";
import { RedisConnection } from "./redis-connection.ts";

const OPEN_MS = 1_000;
const REOPEN_MS = 1_000;

/**
 * Listens on one channel, on a connection of its own. What is told while there is no connection is lost: whoever listens looks
 * for itself now and then, and is told to look when a connection is there again.
 */
export class ChannelListener {
  readonly #url: Secret;
  readonly #clock: Clock;
  readonly #channel: string;
  readonly #onMessage: (message: string | null) => void;
  #connection: RedisConnection | null = null;
  #timer: Timer | undefined;
  #closed = false;

  constructor(
    options: { readonly url: Secret; readonly clock: Clock; readonly channel: string },
    onMessage: (message: string | null) => void,
  ) {
    this.#url = options.url;
    this.#clock = options.clock;
    this.#channel = options.channel;
    this.#onMessage = onMessage;
  }

  /** Resolves when it listens or the first try has failed; goes on trying by itself. */
  async open(): Promise<void> {
    let opened: RedisConnection | null = null;
    try {
      const connection = await RedisConnection.open(this.#url, OPEN_MS, () => {
        if (opened !== null && opened === this.#connection) this.#again();
      });
      opened = connection;
      if (this.#closed) return connection.close();
      this.#connection = connection;
      connection.onMessage((_channel, message) => this.#onMessage(message));
      const answer = await connection.send("subscribe", [this.#channel]);
      if (answer.kind !== "reply") connection.close();
      else this.#onMessage(null);
    } catch {
      this.#again();
    }
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#connection?.close();
  }

  #again(): void {
    this.#connection = null;
    this.#timer?.cancel();
    if (!this.#closed) this.#timer = this.#clock.after(REOPEN_MS, () => void this.open());
  }
}
