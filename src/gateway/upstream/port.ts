/**
 * The narrow interface between the relay and whatever speaks HTTP/1.1 to an engine. Callbacks, not promises or
 * streams: a token costs one call. Order of the callbacks of one exchange:
 *
 *   onInformational* → onHead → (onData | onChunks)* → exactly one of onEnd | onError
 *
 * onError may come at any point; after onEnd or onError nothing follows. After `abort()` nothing follows either, not even
 * onError. Callbacks are never made inside `exchange()`, `pause()` or `resume()`, so the caller always holds the handle first.
 */

/** Where to connect. `origin` names the pool of connections. */
export interface UpstreamTarget {
  readonly origin: string;
  readonly protocol: "http:" | "https:";
  /** Without brackets for IPv6. */
  readonly hostname: string;
  readonly port: number;
  readonly connectTimeoutMs: number;
}

export interface UpstreamRequest {
  readonly method: string;
  /** Origin-form target: path and query. */
  readonly path: string;
  /** Flat list: name, value, name, value. Complete but for framing: the client adds Content-Length, and nothing else. */
  readonly headers: readonly string[];
  readonly body: readonly Buffer[];
  /** Sum of the body's parts. `undefined` with an empty body: no Content-Length is sent (GET, HEAD). */
  readonly bodyBytes: number | undefined;
  /** Never use a connection that was used before: for requests that must not be sent twice (their loss could not be told from their effect). */
  readonly freshConnection: boolean;
}

export type BodyFraming = "chunked" | "length" | "close" | "none";

export interface UpstreamHead {
  readonly status: number;
  /** Flat list as received, names in their original case. Valid after the callback. */
  readonly rawHeaders: string[];
  readonly framing: BodyFraming;
  /** Bytes of the body when `framing` is "length". */
  readonly contentLength: number | undefined;
}

/** Payload ranges inside a raw read: [start, end, start, end, …]; only the first `count` numbers are valid. */
export interface PayloadSpans {
  readonly offsets: readonly number[] | Int32Array;
  readonly count: number;
}

export type UpstreamFailure =
  /** No connection: refused, unreachable, name unknown, or `connectTimeoutMs` spent. Nothing was sent. */
  | "connect"
  /** The connection broke before a byte of the response. `reused` tells whether it had served before. */
  | "reset"
  /** The connection broke inside the response. */
  | "truncated"
  /** The response is not valid HTTP/1.1, or a limit of its size was passed. The connection is destroyed. */
  | "protocol";

export interface UpstreamError {
  readonly kind: UpstreamFailure;
  /** No secrets. For "connect" it names the addresses tried, so it is for the log only; others may go to the client. */
  readonly message: string;
  /** Only of "connect": we had no means to connect (file descriptors, memory), or could not send it. It says nothing of the engine. */
  readonly ours?: boolean;
  readonly reused: boolean;
  /**
   * Only after onChunks: bytes that complete the chunk already begun towards the client (line feeds, then CRLF), so that
   * a well-formed chunk can follow. Empty when the framing stands at a chunk boundary.
   */
  readonly completeFraming: Buffer;
}

export interface UpstreamHandler {
  /** 102 and 103 and other 1xx but 100 and 101. */
  onInformational(status: number, rawHeaders: string[]): void;
  /** Return true to get a chunked body by `onChunks` with its framing; false for plain payload by `onData`. */
  onHead(head: UpstreamHead): boolean;
  /** Payload. The bytes are valid only during the call unless the callee copies them. Return false to pause until `resume()`. */
  onData(payload: Buffer): boolean;
  /**
   * A read of a chunked body: whole framing elements, never a part of a size line, and without the last chunk and the trailers.
   * Return "retained" when the bytes of `raw` may still be needed after the call: the client then never touches them again.
   */
  onChunks(raw: Buffer, spans: PayloadSpans): "done" | "retained";
  /** Trailers as a flat list. */
  onEnd(trailers: readonly string[]): void;
  onError(error: UpstreamError): void;
}

export interface UpstreamExchange {
  /** All bytes of the request have left the process: its body is not looked at any more. Absent where nobody can tell. */
  readonly requestTaken?: boolean;
  /** Destroys the connection at once. Idempotent. */
  abort(): void;
  pause(): void;
  resume(): void;
  /**
   * As `UpstreamError.completeFraming`, for a caller that wants to end a chunked answer by itself before the engine does.
   * Ask before `abort()`. Empty for plain payload.
   */
  completeFraming(): Buffer;
}

export interface UpstreamClient {
  exchange(target: UpstreamTarget, request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange;
  /** Closes idle connections of one origin; running exchanges go on, and their connections close at their end. */
  closeOrigin(origin: string): void;
  /** Closes all idle connections and refuses new exchanges. */
  close(): void;
  /** For metrics: connections open and idle. */
  counts(): { readonly open: number; readonly idle: number };
}
