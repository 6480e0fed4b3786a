import { RedisLink } from "../../coord/redis/redis-link.ts";
import { RedisReplies } from "../../coord/redis/redis-replies.ts";
import { RedisSubscriber } from "../../coord/redis/subscriber.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { Random } from "../../kernel/random.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { GatewayMetrics } from "../metrics/gateway-metrics.ts";

export interface SharedRepliesOptions {
  readonly url: Secret;
  readonly timeoutMs: number;
  readonly keyPrefix: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: GatewayMetrics;
}

/**
 * Answers in one Redis, over connections of their own: a large answer on its way must hold up nobody who asks for a slot.
 */
export class SharedReplies {
  readonly #options: SharedRepliesOptions;
  #opened: { readonly link: RedisLink; readonly subscriber: RedisSubscriber } | undefined;

  constructor(options: SharedRepliesOptions) {
    this.#options = options;
  }

  store(purpose: string, bytesMax: number): RedisReplies {
    return new RedisReplies({ ...this.connect(), clock: this.#options.clock, purpose, bytesMax });
  }

  /** Before anybody needs it: the first to ask would spend their time for the store on the connection, and go on unprotected. */
  connect(): { readonly link: RedisLink; readonly subscriber: RedisSubscriber } {
    return (this.#opened ??= this.#open());
  }

  close(): void {
    this.#opened?.subscriber.close();
    this.#opened?.link.close();
  }

  #open(): { readonly link: RedisLink; readonly subscriber: RedisSubscriber } {
    const { url, timeoutMs, keyPrefix, clock, random, log, metrics } = this.#options;
    const link = new RedisLink(
      { url, timeoutMs, keyPrefix },
      { clock, random, log: ownLines(log), onStep: (script, outcome) => metrics.coordinationStep(script, outcome) },
    );
    // Steps wait for the connection within their own time.
    void link.open();
    return { link, subscriber: new RedisSubscriber(link, { clock, random }) };
  }
}

/** The link's lines under a name that tells them from the coordination's; what it says of jobs is not about this server. */
function ownLines(log: Logger): Logger {
  const through =
    (level: "debug" | "info" | "warn" | "error"): Logger["info"] =>
    (op, fields) => {
      if (op === "coordination.link") log[level]("replies.link", fields);
      else if (op !== "coordination.server") log[level](op, fields);
    };
  return { debug: through("debug"), info: through("info"), warn: through("warn"), error: through("error") };
}
