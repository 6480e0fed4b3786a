import type { Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw, createZstdDecompress } from "node:zlib";
import type { ContentCoding } from "../../decide/http/content-coding.ts";
import type { UpstreamError, UpstreamExchange, UpstreamHandler } from "../upstream/port.ts";

const NOTHING = Buffer.alloc(0);
/** The low half of a zlib header's first byte. Some servers send bare deflate under the same name. */
const ZLIB_METHOD = 8;

/**
 * An exchange whose body is taken out of its coding before anybody looks at it: each piece goes on when it has come, and
 * whoever is too slow for what comes out makes the engine wait, so that no body grows in memory.
 *
 * Invariants:
 *   D1. The callbacks are those of the port, in its order: decoded payload, then one end or error; none after `abort`.
 *   D2. An error of the connection is told behind all that could be decoded before it.
 */
export class DecodedAnswer implements UpstreamExchange {
  readonly #inner: UpstreamExchange;
  readonly #coding: ContentCoding;
  readonly #handler: Pick<UpstreamHandler, "onData" | "onEnd" | "onError">;
  #stream: Transform | null = null;
  #trailers: readonly string[] = [];
  #broken: UpstreamError | null = null;
  /** The connection has told its end: there is nothing to hold back any more. */
  #received = false;
  #over = false;

  constructor(
    inner: UpstreamExchange,
    coding: ContentCoding,
    handler: Pick<UpstreamHandler, "onData" | "onEnd" | "onError">,
  ) {
    this.#inner = inner;
    this.#coding = coding;
    this.#handler = handler;
  }

  get requestTaken(): boolean {
    return this.#inner.requestTaken === true;
  }

  /** Payload as it came. False: hold the rest back until `resume` of the exchange inside. */
  push(payload: Buffer): boolean {
    if (this.#over) return true;
    this.#stream ??= this.#open(payload[0] ?? 0);
    return this.#stream.write(Buffer.from(payload));
  }

  /** The coded body has ended. */
  end(trailers: readonly string[]): void {
    this.#trailers = trailers;
    this.#received = true;
    if (this.#stream === null) this.#finish(null);
    else this.#stream.end();
  }

  /** The connection broke. */
  fail(error: UpstreamError): void {
    this.#broken = error;
    this.#received = true;
    if (this.#stream === null) this.#finish(error);
    else this.#stream.end();
  }

  abort(): void {
    this.#over = true;
    this.#stream?.destroy();
    this.#inner.abort();
  }

  pause(): void {
    this.#stream?.pause();
  }

  resume(): void {
    this.#stream?.resume();
    this.#readOn();
  }

  completeFraming(): Buffer {
    return NOTHING;
  }

  #readOn(): void {
    if (!this.#over && !this.#received && this.#stream?.writableNeedDrain !== true) this.#inner.resume();
  }

  #open(firstByte: number): Transform {
    const stream = newDecoder(this.#coding, firstByte);
    stream.on("data", (bytes: Buffer) => {
      if (!this.#over && !this.#handler.onData(bytes)) stream.pause();
    });
    stream.on("drain", () => this.#readOn());
    stream.on("end", () => this.#finish(this.#broken));
    stream.on("error", () => {
      const message = "the engine's answer is not in the encoding that it names";
      this.#finish(this.#broken ?? { kind: "protocol", message, reused: false, completeFraming: NOTHING });
    });
    return stream;
  }

  #finish(error: UpstreamError | null): void {
    if (this.#over) return;
    this.#over = true;
    if (error === null) {
      this.#handler.onEnd(this.#trailers);
      return;
    }
    if (!this.#received) this.#inner.abort();
    this.#handler.onError(error);
  }
}

function newDecoder(coding: ContentCoding, firstByte: number): Transform {
  switch (coding) {
    case "gzip":
      return createGunzip();
    case "br":
      return createBrotliDecompress();
    case "zstd":
      return createZstdDecompress();
    case "deflate":
      return (firstByte & 0x0f) === ZLIB_METHOD ? createInflate() : createInflateRaw();
  }
}
