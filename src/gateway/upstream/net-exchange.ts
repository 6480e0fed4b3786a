import type { UpstreamExchange, UpstreamFailure, UpstreamHandler, UpstreamRequest, UpstreamTarget } from "./port.ts";

const NO_BYTES = Buffer.alloc(0);

/** What carries an exchange at the moment. */
export interface ExchangeCarrier {
  abandon(): void;
  pause(): void;
  resume(): void;
  completeFraming(): Buffer;
  /** All of the request has left the process. */
  readonly requestTaken: boolean;
}

/** One request and its answer. Knows whether it has ended; the connection that carries it does the rest. */
export class NetExchange implements UpstreamExchange {
  readonly target: UpstreamTarget;
  readonly method: string;
  readonly head: string;
  /** Pieces of the request's body; none once they are the socket's, since an answer may run for an hour. */
  body: readonly Buffer[];
  readonly bodyBytes: number;
  readonly handler: UpstreamHandler;
  carrier: ExchangeCarrier | undefined;
  done = false;
  paused = false;

  constructor(target: UpstreamTarget, request: UpstreamRequest, head: string, handler: UpstreamHandler) {
    this.target = target;
    this.method = request.method;
    this.head = head;
    this.body = request.body;
    this.bodyBytes = request.bodyBytes ?? 0;
    this.handler = handler;
  }

  #takenAtEnd = false;

  get requestTaken(): boolean {
    return this.done ? this.#takenAtEnd : this.carrier?.requestTaken === true;
  }

  abort(): void {
    if (this.done) return;
    this.#takenAtEnd = true; // The connection is torn down, and writes nothing any more.
    this.done = true;
    this.carrier?.abandon();
  }

  pause(): void {
    if (this.done || this.paused) return;
    this.paused = true;
    this.carrier?.pause();
  }

  resume(): void {
    if (this.done || !this.paused) return;
    this.paused = false;
    this.carrier?.resume();
  }

  completeFraming(): Buffer {
    return this.done ? NO_BYTES : (this.carrier?.completeFraming() ?? NO_BYTES);
  }

  /** `taken`: as `requestTaken`, at the end; the connection may carry another exchange by now. */
  end(trailers: readonly string[], taken: boolean): void {
    if (this.done) return;
    this.#takenAtEnd = taken;
    this.done = true;
    this.handler.onEnd(trailers);
  }

  fail(kind: UpstreamFailure, message: string, reused = false, completeFraming: Buffer = NO_BYTES, ours = false): void {
    if (this.done) return;
    this.done = true;
    this.handler.onError({ kind, message, ours, reused, completeFraming });
  }
}
