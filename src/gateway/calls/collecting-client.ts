import type { ErrorCode } from "../../kernel/errors.ts";
import type { BodyReader, ClientReply, ClientRequest, WriteResult } from "../http/client-port.ts";

/** What a client in this process was given, once nothing more comes. */
export type CollectedEnd =
  | {
      readonly kind: "whole";
      readonly status: number;
      /** Flat list as it would go out, without framing. */
      readonly headers: readonly string[];
      readonly body: Buffer;
      readonly trailers: readonly string[];
    }
  /** The gateway's own no: `body` is its error as JSON. */
  | {
      readonly kind: "refused";
      readonly code: ErrorCode;
      readonly status: number;
      readonly headers: readonly string[];
      readonly body: Buffer;
    }
  /** The answer ended inside; status 0: before anything of it came. */
  | { readonly kind: "brokenOff"; readonly status: number; readonly body: Buffer }
  /** The answer is larger than `bytesMax`; the call was left. */
  | { readonly kind: "tooLarge"; readonly status: number }
  /** `abort` was called. */
  | { readonly kind: "aborted" };

/** Of a request's body that are given in one turn of the event loop. */
const PIECE_BYTES = 256 * 1024;

export interface CollectingClientOptions {
  readonly method: string;
  /** As a request line would say it. */
  readonly target: string;
  /** Flat list, as a client would send them. */
  readonly rawHeaders: readonly string[];
  /** The request's, for a call that reads it. */
  readonly body?: Buffer;
  /** Of the answer's body. */
  readonly bytesMax: number;
  /** Answers of the 1xx kind. */
  readonly onInformational?: (status: number, headers: readonly string[]) => void;
  readonly onHead?: (status: number, headers: readonly string[]) => void;
  /** A piece of a streamed body, valid only during the call. */
  readonly onProgress?: (payload: Buffer) => void;
  /** Called once, in the same turn of the event loop but behind the call that ended it. */
  readonly onEnd: (end: CollectedEnd) => void;
}

/**
 * A client in memory: both sides of the port for a call that no connection waits for.
 *
 * Invariants:
 *   M1. `onEnd` is called once, whatever ends the answer, and nothing is called after it.
 *   M2. No more than `bytesMax` bytes of a body are held; one byte more and the client leaves.
 *   M3. Everything is taken at once: there is no back-pressure, so the limit is what bounds memory.
 */
export class CollectingClient implements ClientRequest, ClientReply {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  readonly httpVersion = "1.1";
  readonly remoteAddress = undefined;
  /** The body is already with the call. */
  readonly complete = true;
  /** Chunk framing belongs to a connection. */
  readonly takesFraming = false;
  readonly takesInformational: boolean;
  readonly untakenBytes = 0;
  onGone: (() => void) | null = null;
  onDrain: (() => void) | null = null;
  begun = false;

  readonly #options: CollectingClientOptions;
  #over = false;
  #gone = false;
  #status = 0;
  #headers: readonly string[] = [];
  #parts: Buffer[] = [];
  #bytes = 0;

  constructor(options: CollectingClientOptions) {
    this.#options = options;
    this.method = options.method;
    this.target = options.target;
    this.rawHeaders = options.rawHeaders;
    this.takesInformational = options.onInformational !== undefined;
  }

  get gone(): boolean {
    return this.#gone;
  }

  /** The client leaves: its call ends in the same turn of the event loop. Does nothing after the end. */
  abort(): void {
    this.#leave({ kind: "aborted" });
  }

  /** As it would come from a connection: whoever looks through it does so a piece at a time, and others have their turns between. */
  readBody(reader: BodyReader): void {
    const { body } = this.#options;
    const giveFrom = (at: number): void => {
      if (this.#over) return reader.onBroken();
      if (body !== undefined && at < body.length) reader.onData(body.subarray(at, at + PIECE_BYTES));
      const next = at + PIECE_BYTES;
      if (body !== undefined && next < body.length) setImmediate(() => giveFrom(next));
      else reader.onEnd();
    };
    queueMicrotask(() => giveFrom(0));
  }

  /** A body in memory is given to who holds all of it. */
  pauseBody(): void {}

  resumeBody(): void {}

  sendContinue(): void {}

  sendInformational(status: number, rawHeaders: readonly string[]): void {
    if (!this.#over) this.#options.onInformational?.(status, rawHeaders);
  }

  sendWhole(status: number, headers: string[], body: Buffer | string, refusal?: ErrorCode): void {
    if (this.#over || this.begun) return;
    this.#head(status, headers);
    const bytes = typeof body === "string" ? Buffer.from(body) : Buffer.from(body);
    if (bytes.length > this.#options.bytesMax) this.#finish({ kind: "tooLarge", status });
    else if (refusal !== undefined) this.#finish({ kind: "refused", code: refusal, status, headers, body: bytes });
    else this.#finish({ kind: "whole", status, headers, body: bytes, trailers: [] });
  }

  begin(status: number, headers: string[]): boolean {
    if (this.#over || this.begun) return false;
    this.#head(status, headers);
    return true;
  }

  writeFramed(bytes: Buffer): WriteResult {
    return this.writePayload(bytes);
  }

  writePayload(payload: Buffer): WriteResult {
    if (this.#over || !this.begun || payload.length === 0) return "taken";
    this.#bytes += payload.length;
    if (this.#bytes > this.#options.bytesMax) {
      this.#leave({ kind: "tooLarge", status: this.#status });
      return "taken";
    }
    this.#parts.push(Buffer.from(payload));
    this.#options.onProgress?.(payload);
    return "taken";
  }

  end(trailers: readonly string[]): void {
    if (!this.begun) return;
    this.#finish({ kind: "whole", status: this.#status, headers: this.#headers, body: this.#body(), trailers });
  }

  breakOff(): void {
    this.#finish({ kind: "brokenOff", status: this.#status, body: this.#body() });
  }

  destroy(): void {
    this.breakOff();
  }

  endConnection(): void {}

  #head(status: number, headers: readonly string[]): void {
    this.begun = true;
    this.#status = status;
    this.#headers = headers;
    this.#options.onHead?.(status, headers);
  }

  #body(): Buffer {
    return Buffer.concat(this.#parts);
  }

  #leave(end: CollectedEnd): void {
    if (this.#over) return;
    this.#gone = true;
    // Not at once: who writes the byte too many is not told inside its own call. The call is over before its end is told.
    queueMicrotask(() => this.onGone?.());
    this.#finish(end);
  }

  #finish(end: CollectedEnd): void {
    if (this.#over) return;
    this.#over = true;
    this.#parts = [];
    queueMicrotask(() => this.#options.onEnd(end));
  }
}
