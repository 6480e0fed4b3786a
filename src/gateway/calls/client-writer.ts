import { forwardTrailers } from "../../decide/http/forward-headers.ts";
import { asMono, type Clock, type MonoMs } from "../../kernel/clock.ts";
import type { TimerWheel } from "../../kernel/timer-wheel.ts";
import type { ClientReply, WriteResult } from "../http/client-port.ts";

/**
 * Writes one answer to a client, one write per upstream read, and knows how far it is.
 *
 * Invariants:
 *   W1. Nothing is written before the head, and nothing after the end or a break-off.
 *   W2. Bytes that are still needed after a write are reported as "retained": the caller gives them away.
 *   W3. The chunk framing on the wire is whole whenever payload is written: callers complete it first.
 */
export class ClientWriter {
  readonly #res: ClientReply;
  readonly #onBlocked: () => void;
  readonly #onDrain: () => void;
  #state: "before" | "open" | "ended" = "before";
  #hasLength = false;
  #blocked = false;
  bytesOut = 0;

  constructor(res: ClientReply, onBlocked: () => void, onDrain: () => void) {
    this.#res = res;
    this.#onBlocked = onBlocked;
    this.#onDrain = onDrain;
  }

  get committed(): boolean {
    return this.#state !== "before";
  }

  /** True while the client takes nothing: more bytes would only fill memory. */
  get blocked(): boolean {
    return this.#blocked;
  }

  /** Whether a chunked answer to this client can carry another server's framing. */
  get takesFraming(): boolean {
    return this.#res.takesFraming;
  }

  /** A whole answer in one write. */
  sendWhole(status: number, headers: string[], body: Buffer): void {
    if (this.committed) return;
    this.#state = "ended";
    this.bytesOut += body.length;
    this.#res.sendWhole(status, headers, body);
  }

  /** Sends the head of an answer that goes on; see `ClientReply.begin`. */
  commit(status: number, headers: string[], contentLength: number | undefined): boolean {
    if (this.committed || !this.#res.begin(status, headers, contentLength)) return false;
    this.#state = "open";
    this.#hasLength = contentLength !== undefined;
    this.#res.onDrain = () => {
      this.#blocked = false;
      this.#onDrain();
    };
    return true;
  }

  /** A 1xx answer of the engine, before the head. The headers are those that may go on. */
  sendInformational(status: number, rawHeaders: readonly string[]): void {
    if (!this.committed) this.#res.sendInformational(status, rawHeaders);
  }

  /** Bytes that are framed already (or belong to a body with a length). */
  writeFramed(bytes: Buffer): "done" | "retained" {
    if (this.#state !== "open") return "done";
    this.bytesOut += bytes.length;
    return this.#noted(this.#res.writeFramed(bytes));
  }

  /** Payload, framed where it must be. The bytes are copied or written before this returns. */
  writePayload(payload: Buffer): void {
    if (this.#state !== "open") return;
    this.bytesOut += payload.length;
    this.#noted(this.#res.writePayload(payload));
  }

  /** `trailers` as the engine sent them. */
  end(trailers: readonly string[]): void {
    if (this.#state !== "open") return;
    this.#state = "ended";
    this.#res.end(trailers.length > 0 ? forwardTrailers(trailers) : trailers);
  }

  /**
   * Ends in a way that no client can take for a regular end: what is given is sent, then the connection is closed inside
   * the body.
   */
  breakOff(last: Buffer | null): void {
    if (this.#state === "ended") return;
    if (last !== null && !this.#hasLength) this.writePayload(last);
    this.#state = "ended";
    this.#res.breakOff();
  }

  /** Closes at once, with what is not yet sent thrown away. */
  destroy(): void {
    this.#state = "ended";
    this.#res.destroy();
  }

  #noted(result: WriteResult): "done" | "retained" {
    if (result === "taken") return "done";
    if (result === "blocked" && !this.#blocked) {
      this.#blocked = true;
      this.#onBlocked();
    }
    return "retained";
  }
}

/**
 * The engine is done and the answer waits in the socket: a client that takes nothing of it for `stallMs` is cut, so that it
 * holds memory and a connection no longer than that.
 */
export function cutIfNotTaken(
  res: ClientReply,
  { clock, wheel }: { readonly clock: Clock; readonly wheel: TimerWheel },
  stallMs: number,
  cuts: { inc(): void },
): void {
  let untaken = res.untakenBytes;
  if (untaken === 0) return;
  const look = (now: MonoMs): void => {
    const left = res.untakenBytes;
    if (left === 0) return;
    if (left === untaken) {
      cuts.inc();
      res.destroy();
      return;
    }
    untaken = left;
    wheel.add(asMono(now + stallMs), look);
  };
  wheel.add(asMono(clock.mono() + stallMs), look);
}
