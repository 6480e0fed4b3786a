import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { Client, type Dispatcher } from "undici";
import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { TimerWheel } from "../../kernel/timer-wheel.ts";
import { type ConnectOptions, describeConnectError, formatAddress, lacksMeans, openSocket } from "./connect.ts";
import { IDLE_MS_MAX } from "./connection-pool.ts";
import { HEAD_BYTES_MAX } from "./field-reader.ts";
import type {
  UpstreamClient,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamHandler,
  UpstreamHead,
  UpstreamRequest,
  UpstreamTarget,
} from "./port.ts";
import { buildRequestHead } from "./request-head.ts";
import { INFORMATIONAL_MAX } from "./response-reader.ts";

export interface UndiciUpstreamClientOptions extends ConnectOptions {
  readonly clock: Clock;
  readonly wheel: TimerWheel;
}

const NO_BYTES = Buffer.alloc(0);
/** Bodies in several parts up to this size are joined; larger ones are streamed part by part. */
const JOINED_BYTES_MAX = 65_536;

/**
 * The same port over undici's dispatcher, kept for comparison and as a second opinion. One undici `Client` per connection, chosen here
 * and not by undici's pool: only so it is known whether a connection was used before. Differences to `NetUpstreamClient`: `onChunks` is
 * never called, undici adds `connection` and puts `host` first, 100 is a failure, the details of malformed answers are its own.
 */
export class UndiciUpstreamClient implements UpstreamClient {
  readonly #options: UndiciUpstreamClientOptions;
  readonly #idle = new Map<string, UndiciConnection[]>();
  readonly #all = new Set<UndiciConnection>();
  #closed = false;

  constructor(options: UndiciUpstreamClientOptions) {
    this.#options = options;
  }

  exchange(target: UpstreamTarget, request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange {
    const head = buildRequestHead(request);
    const refusal = head.kind === "refused" ? head.reason : this.#closed ? "the client is closed" : undefined;
    const exchange = new UndiciExchange(request, handler, {
      release: (connection) => this.#release(connection),
      reopen: () => this.#connect(target),
    });
    if (refusal === undefined) {
      const idle = request.freshConnection ? undefined : this.#idle.get(target.origin)?.pop();
      if (idle === undefined) exchange.start(this.#connect(target));
      else exchange.startLater(idle);
    } else {
      setImmediate(() => exchange.fail("connect", `the request was not sent: ${refusal}`, false, true));
    }
    return exchange;
  }

  closeOrigin(origin: string): void {
    for (const connection of this.#all) if (connection.target.origin === origin) connection.retired = true;
    for (const connection of [...(this.#idle.get(origin) ?? [])]) connection.close();
  }

  close(): void {
    this.#closed = true;
    for (const connection of this.#all) connection.retired = true;
    for (const list of [...this.#idle.values()]) for (const connection of [...list]) connection.close();
  }

  counts(): { readonly open: number; readonly idle: number } {
    let idle = 0;
    for (const list of this.#idle.values()) idle += list.length;
    return { open: this.#all.size, idle };
  }

  #connect(target: UpstreamTarget): UndiciConnection {
    const connection = new UndiciConnection(target, this.#options, (ended) => this.#onGone(ended));
    this.#all.add(connection);
    return connection;
  }

  #release(connection: UndiciConnection): void {
    if (connection.retired || connection.closed || !connection.client.stats.connected || connection.isSending) {
      connection.close();
      return;
    }
    const list = this.#idle.get(connection.target.origin);
    if (list === undefined) this.#idle.set(connection.target.origin, [connection]);
    else list.push(connection);
  }

  #onGone(connection: UndiciConnection): void {
    this.#all.delete(connection);
    const list = this.#idle.get(connection.target.origin);
    const at = list?.indexOf(connection) ?? -1;
    if (list === undefined || at === -1) return;
    list.splice(at, 1);
    if (list.length === 0) this.#idle.delete(connection.target.origin);
  }
}

/** An undici client that lives as long as its one socket. */
class UndiciConnection {
  readonly target: UpstreamTarget;
  readonly client: Client;
  readonly attempts: string[] = [];
  retired = false;
  closed = false;
  served = 0;
  connectError: Error | undefined;
  /** What broke the socket. Undici takes a reset for the end of a body that only the end of its connection delimits. */
  broken: Error | undefined;
  #socket: Socket | undefined;
  readonly #onGone: (connection: UndiciConnection) => void;

  constructor(
    target: UpstreamTarget,
    options: UndiciUpstreamClientOptions,
    onGone: (connection: UndiciConnection) => void,
  ) {
    this.target = target;
    this.#onGone = onGone;
    const host = target.hostname.includes(":") ? `[${target.hostname}]` : target.hostname;
    this.client = new Client(`${target.protocol}//${host}:${target.port}`, {
      pipelining: 1,
      allowH2: false,
      headersTimeout: 0, // The relay owns these limits.
      bodyTimeout: 0,
      maxHeaderSize: HEAD_BYTES_MAX,
      keepAliveTimeout: IDLE_MS_MAX,
      keepAliveMaxTimeout: IDLE_MS_MAX,
      keepAliveTimeoutThreshold: 1_000,
      connect: (_: unknown, done: (...args: [Error, null] | [null, Socket]) => void) => this.#connect(options, done),
    });
    // Its socket is gone; undici would open another one at the next request, which is then no reused connection.
    this.client.on("disconnect", () => this.close());
    this.client.on("connectionError", () => this.close());
  }

  /** The engine has answered before it took the whole request. */
  get isSending(): boolean {
    return (this.#socket?.writableLength ?? 0) > 0;
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.#socket?.destroy();
    this.client.destroy().catch(() => {}); // Its requests have been told; nothing else can fail.
    this.#onGone(this);
  }

  #connect(options: UndiciUpstreamClientOptions, done: (...args: [Error, null] | [null, Socket]) => void): void {
    if (this.#socket !== undefined || this.closed) {
      done(new Error("the connection is closed"), null);
      return;
    }
    const { target } = this;
    const { clock, wheel } = options;
    const socket = openSocket(target, options);
    this.#socket = socket;
    let settled = false;
    const settle = (error: Error | undefined): void => {
      if (settled) return;
      settled = true;
      wheel.remove(deadline);
      this.connectError = error;
      if (error === undefined) done(null, socket);
      else done(error, null);
    };
    const deadline = wheel.add((clock.mono() + target.connectTimeoutMs) as MonoMs, () => {
      settle(new Error(`no connection within ${target.connectTimeoutMs} ms`));
      socket.destroy();
    });
    socket.on("connectionAttempt", (ip: string, port: number) => this.attempts.push(formatAddress(ip, port)));
    socket.on("error", (error) => {
      this.broken = error;
      settle(error);
    });
    socket.once("close", () => settle(new Error("the connection closed before it was ready")));
    socket.once(target.protocol === "https:" ? "secureConnect" : "connect", () => settle(undefined));
  }
}

interface UndiciOwner {
  release(connection: UndiciConnection): void;
  reopen(): UndiciConnection;
}

class UndiciExchange implements UpstreamExchange, Dispatcher.DispatchHandler {
  readonly #request: UpstreamRequest;
  readonly #handler: UpstreamHandler;
  readonly #owner: UndiciOwner;
  #connection: UndiciConnection | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #done = false;
  #dispatching = false;
  #paused = false;
  #answered = false;
  #informational = 0;
  #ended: readonly string[] | undefined;

  constructor(request: UpstreamRequest, handler: UpstreamHandler, owner: UndiciOwner) {
    this.#request = request;
    this.#handler = handler;
    this.#owner = owner;
  }

  /** For a used connection: bytes behind its last response, or its closing, show up in the two turns of the event loop before. */
  startLater(connection: UndiciConnection): void {
    this.#connection = connection;
    setImmediate(() =>
      setImmediate(() => {
        if (!this.#done) this.start(connection.closed ? this.#owner.reopen() : connection);
      }),
    );
  }

  start(connection: UndiciConnection): void {
    this.#connection = connection;
    const { method, path, headers, body, bodyBytes } = this.#request;
    const flat = bodyBytes === undefined ? [...headers] : [...headers, "content-length", String(bodyBytes)];
    this.#dispatching = true;
    connection.client.dispatch({ method, path, headers: flat, body: joinBody(body, bodyBytes ?? 0) }, this);
    this.#dispatching = false;
  }

  abort(): void {
    if (this.#done) return;
    this.#done = true;
    this.#controller?.abort(new Error("aborted"));
    this.#connection?.close();
  }

  pause(): void {
    this.#paused = true;
    this.#controller?.pause();
  }

  resume(): void {
    this.#paused = false;
    // The handler is called later, not inside its own call of resume().
    queueMicrotask(() => {
      if (this.#done || this.#paused) return;
      if (this.#ended === undefined) this.#controller?.resume();
      else this.#end();
    });
  }

  completeFraming(): Buffer {
    return NO_BYTES;
  }

  fail(kind: UpstreamFailure, message: string, reused = false, ours = false): void {
    if (this.#done) return;
    this.#done = true;
    this.#handler.onError({ kind, message, ours, reused, completeFraming: NO_BYTES });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#done) controller.abort(new Error("aborted"));
    else if (this.#paused) controller.pause();
  }

  onResponseStarted(): void {
    this.#answered = true;
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    if (this.#done) return;
    const rawHeaders = toStrings(controller.rawHeaders);
    if (status >= 200) {
      this.#handler.onHead(headOf(status, rawHeaders, this.#request.method));
      return;
    }
    this.#informational += 1;
    if (this.#informational <= INFORMATIONAL_MAX) this.#handler.onInformational(status, rawHeaders);
    else {
      this.fail("protocol", "the engine's answer is not valid HTTP/1.1: too many informational answers");
      this.#connection?.close();
    }
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#done && chunk.length > 0 && !this.#handler.onData(chunk)) this.pause();
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    if (this.#done) return;
    const broken = this.#connection?.broken;
    if (broken !== undefined) return this.#failBy(broken);
    this.#ended = toStrings(controller.rawTrailers);
    // Only after this call undici decides whether it keeps the socket.
    queueMicrotask(() => this.#end());
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    if (this.#done) return;
    if (this.#dispatching) setImmediate(() => this.#failBy(error));
    else this.#failBy(error);
  }

  #end(): void {
    if (this.#done || this.#paused || this.#ended === undefined) return;
    this.#done = true;
    if (this.#connection !== undefined) {
      this.#connection.served += 1;
      this.#owner.release(this.#connection);
    }
    this.#handler.onEnd(this.#ended);
  }

  #failBy(error: Error): void {
    const connection = this.#connection as UndiciConnection;
    const code = "code" in error && typeof error.code === "string" ? error.code : error.name;
    const reused = connection.served > 0;
    connection.close();
    if (this.#controller === undefined && reused) {
      this.start(this.#owner.reopen()); // It closed while it waited: nothing was sent.
      return;
    }
    if (connection.connectError !== undefined || this.#controller === undefined) {
      const cause = connection.connectError ?? error;
      const message = describeConnectError(cause, connection.target, connection.attempts);
      this.fail("connect", message, false, lacksMeans(cause));
    } else if (isProtocolError(error, code)) {
      this.fail("protocol", `the engine's answer is not valid HTTP/1.1: ${code}`);
    } else if (this.#answered) this.fail("truncated", `the engine broke the connection inside its answer (${code})`);
    else this.fail("reset", `the engine broke the connection before it answered (${code})`, reused);
  }
}

function isProtocolError(error: Error, code: string): boolean {
  // undici has one code for all that ends a socket; what it refused on its own account it calls "bad".
  if (code === "UND_ERR_SOCKET") return error.message.startsWith("bad ");
  return (
    code.startsWith("HPE_") || code === "UND_ERR_HEADERS_OVERFLOW" || code === "UND_ERR_RES_CONTENT_LENGTH_MISMATCH"
  );
}

function joinBody(parts: readonly Buffer[], bytes: number): Buffer | Readable | null {
  if (parts.length === 0 || bytes === 0) return null;
  if (parts.length === 1) return parts[0] as Buffer;
  return bytes <= JOINED_BYTES_MAX ? Buffer.concat(parts) : Readable.from(parts, { objectMode: false });
}

function headOf(status: number, rawHeaders: string[], method: string): UpstreamHead {
  let length: string | undefined;
  let chunked = false;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = (rawHeaders[i] as string).toLowerCase();
    if (name === "content-length") length = rawHeaders[i + 1];
    else if (name === "transfer-encoding") chunked = true;
  }
  if (method === "HEAD" || status === 204 || status === 304)
    return { status, rawHeaders, framing: "none", contentLength: undefined };
  if (chunked) return { status, rawHeaders, framing: "chunked", contentLength: undefined };
  if (length === undefined) return { status, rawHeaders, framing: "close", contentLength: undefined };
  return { status, rawHeaders, framing: "length", contentLength: Number(length) };
}

function toStrings(raw: Dispatcher.DispatchController["rawHeaders"]): string[] {
  return Array.isArray(raw) ? raw.map((item) => (typeof item === "string" ? item : item.toString("latin1"))) : [];
}
