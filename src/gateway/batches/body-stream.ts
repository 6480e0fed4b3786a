import type { Clock, Timer } from "../../kernel/clock.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import type { BodyReader, ClientReply, ClientRequest } from "../http/client-port.ts";

/** Waiting to be taken; above it the client is held up. */
const WAITING_BYTES_MAX = 512 * 1024;
/** A body that came slower than this is one that will never end. */
const BYTES_PER_MS_MIN = 1;

/**
 * A request's body as it comes, no faster than it is taken: of one of any size a little is in memory.
 *
 * Invariants:
 *   S1. Every wait for the next piece ends: by a piece, the end, the client's leaving, or `idleMs` in which the body came too slowly.
 *   S2. Time in which the client was held up does not count against it.
 */
export class BodyStream implements BodyReader {
  readonly #req: ClientRequest;
  readonly #clock: Clock;
  readonly #idleMs: number;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #bytes = 0;
  #waitedMs = 0;
  #paused = false;
  #end: "whole" | "broken" | null = null;
  #wake: (() => void) | null = null;

  constructor(req: ClientRequest, { clock, idleMs }: { readonly clock: Clock; readonly idleMs: number }) {
    this.#req = req;
    this.#clock = clock;
    this.#idleMs = idleMs;
  }

  /** To be called before control returns to the event loop, as the port wants. `waiting`: the client that waits to be told to go on. */
  begin(waiting: ClientReply | null): void {
    this.#req.readBody(this);
    waiting?.sendContinue();
  }

  onData(chunk: Buffer): void {
    this.#bytes += chunk.length;
    this.#waiting.push(chunk);
    this.#waitingBytes += chunk.length;
    if (!this.#paused && this.#waitingBytes > WAITING_BYTES_MAX) {
      this.#paused = true;
      this.#req.pauseBody();
    }
    this.#wake?.();
  }

  onEnd(): void {
    this.#end ??= "whole";
    this.#wake?.();
  }

  onBroken(): void {
    this.#end ??= "broken";
    this.#wake?.();
  }

  /** Undefined at the end. Throws CLIENT_CLOSED or REQUEST_TIMEOUT. */
  async next(): Promise<Buffer | undefined> {
    for (;;) {
      const chunk = this.#waiting.shift();
      if (chunk !== undefined) {
        this.#waitingBytes -= chunk.length;
        return chunk;
      }
      if (this.#end === "whole") return undefined;
      if (this.#end === "broken") throw new YardmasterError("CLIENT_CLOSED", "the client left while sending its file");
      await this.#more();
    }
  }

  async #more(): Promise<void> {
    const since = this.#clock.mono();
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer: Timer = this.#clock.after(this.#idleMs, resolve);
    this.#wake = resolve;
    if (this.#paused) {
      this.#paused = false;
      this.#req.resumeBody();
    }
    await promise;
    this.#wake = null;
    timer.cancel();
    this.#waitedMs += this.#clock.mono() - since;
    const slow = this.#waitedMs >= this.#idleMs && this.#bytes < this.#waitedMs * BYTES_PER_MS_MIN;
    if (slow && this.#end === null) throw new YardmasterError("REQUEST_TIMEOUT", "the file came too slowly");
  }
}
