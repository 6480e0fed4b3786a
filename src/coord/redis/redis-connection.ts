import { Redis } from "ioredis";
import type { Clock } from "../../kernel/clock.ts";
import type { Secret } from "../../kernel/secret.ts";

/** What a command or script answers in RESP2, the form that is asked for; nested lists of texts, numbers and nulls. */
export type Reply = string | number | Buffer | null | readonly Reply[];
export type Argument = string | number | Buffer;

export type Answer =
  | { readonly kind: "reply"; readonly reply: Reply }
  | { readonly kind: "error"; readonly message: string }
  /** The connection broke first: it may have been done, or not. */
  | { readonly kind: "lost" };

/**
 * One connection to Redis, from its opening to its end; it never opens another. The library's own care is all turned off
 * (queue while offline, sending again, reconnecting), because each of these does something later that was asked for now.
 *
 * Invariants:
 *   R1. Each `send` is answered once: by the server, or by "lost" when the connection ends.
 *   R2. `onLost` is called once, and nothing is answered after it.
 */
export class RedisConnection {
  readonly #client: Redis;
  readonly #onLost: () => void;
  readonly #pending = new Set<(answer: Answer) => void>();
  #over = false;

  private constructor(client: Redis, onLost: () => void) {
    this.#client = client;
    this.#onLost = onLost;
    client.on("close", () => this.#end());
    client.on("end", () => this.#end());
  }

  /**
   * Rejects when it is not ready within `timeoutMs` and a turn of the event loop, whatever the server does: lateness is judged
   * after the sockets were read. The message holds nothing of the URL's password.
   */
  static async open(url: Secret, timeoutMs: number, clock: Clock, onLost: () => void): Promise<RedisConnection> {
    const client = new Redis(url.reveal(), {
      lazyConnect: true,
      protocol: 2,
      connectTimeout: timeoutMs,
      retryStrategy: null,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
      enableReadyCheck: false,
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      disableClientInfo: true,
    });
    let failure: Error | undefined;
    client.on("error", (error: Error) => (failure ??= error));
    // The library's own limit ends where the server has accepted the connection.
    const late = Promise.withResolvers<never>();
    const timer = clock.after(timeoutMs, () =>
      setImmediate(() => late.reject(new Error(`no connection within ${timeoutMs} ms`))),
    );
    try {
      await Promise.race([client.connect(), late.promise]);
    } catch (error) {
      client.disconnect();
      const cause = failure ?? error;
      throw new Error(url.maskIn(cause instanceof Error ? cause.message : String(cause)));
    } finally {
      timer.cancel();
    }
    return new RedisConnection(client, onLost);
  }

  get over(): boolean {
    return this.#over;
  }

  /** `buffers`: texts of the reply come as bytes, for values that are not text. */
  send(command: string, args: readonly Argument[], buffers = false): Promise<Answer> {
    const { promise, resolve } = Promise.withResolvers<Answer>();
    if (this.#over) {
      resolve({ kind: "lost" });
      return promise;
    }
    this.#pending.add(resolve);
    const settle = (answer: Answer): void => {
      if (this.#pending.delete(resolve)) resolve(answer);
    };
    const sent = buffers ? this.#client.callBuffer(command, [...args]) : this.#client.call(command, [...args]);
    sent.then(
      (reply) => settle({ kind: "reply", reply: reply as Reply }),
      (error: Error) => settle(isReplyError(error) ? { kind: "error", message: error.message } : { kind: "lost" }),
    );
    return promise;
  }

  /** From then on the connection can do nothing but subscribe. */
  onMessage(listener: (channel: string, message: string) => void): void {
    this.#client.on("message", listener);
  }

  close(): void {
    this.#client.disconnect();
    this.#end();
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    const pending = [...this.#pending];
    this.#pending.clear();
    for (const resolve of pending) resolve({ kind: "lost" });
    this.#onLost();
  }
}

/** A list's items; none where the server said something else. */
export const itemsOf = (reply: Reply | undefined): readonly Reply[] => (Array.isArray(reply) ? reply : []);

const isReplyError = (error: Error): boolean => error.name === "ReplyError";
