import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import type { ErrorCode } from "../../kernel/errors.ts";
import { createServer } from "../../kernel/node-builtins.ts";
import { headerValue } from "../calls/answer-headers.ts";
import {
  DISCARDED_BYTES_MAX,
  refuseExpectation,
  renderRawRefusal,
  type EdgeHandlers,
  type EdgeServer,
} from "./edge-port.ts";
import { HEADER_BYTES_MAX } from "./request-head-reader.ts";
import { NodeClientReply, NodeClientRequest } from "./node-client.ts";

/** Requests that a connection may have in the pipe behind the running one. */
const PIPELINED_MAX = 16;
/** Of a body that waits behind a running answer; well below what a stream buffers before it stops its connection. */
const PIPELINED_BODY_BYTES_MAX = 16 * 1024;
const CONNECTIONS_CHECK_MS = 1_000;

type Waiting = readonly [IncomingMessage, ServerResponse, boolean];

interface ConnectionState {
  /** The answer that is being given, and the request behind it. */
  running: ServerResponse | null;
  readonly waiting: Waiting[];
  /** Nothing that comes on this connection is looked at any more. */
  over: boolean;
  /** The request that runs, or the last that waits, is the last one of this connection. */
  last: boolean;
}

/** The listening side on `node:http`, with its limits set to the product's. */
export class NodeEdgeServer implements EdgeServer {
  readonly #server: Server;
  readonly #handlers: EdgeHandlers;
  readonly #connections = new WeakMap<Socket, ConnectionState>();
  #open = 0;

  constructor(
    handlers: EdgeHandlers,
    http: GatewayConfig["http"],
    connectionsMax: number,
    onTurnedAway = (): void => {},
  ) {
    this.#handlers = handlers;
    this.#server = createServer({
      headersTimeout: http.headersTimeoutMs,
      // Bodies have their own clock, which lets a slow but steady upload go on (see RequestBody).
      requestTimeout: 0,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      keepAliveTimeout: http.keepAliveMs,
      maxHeaderSize: HEADER_BYTES_MAX,
      noDelay: true,
      // The header rules refuse a request without Host, in words.
      requireHostHeader: false,
      joinDuplicateHeaders: false,
      insecureHTTPParser: false,
    });
    // Node would cut the list short and go on; the header rules refuse instead, so all of them must be seen.
    this.#server.maxHeadersCount = 0;
    this.#server.maxConnections = connectionsMax;
    this.#server.on("drop", onTurnedAway);
    this.#server.on("connection", (socket) => {
      this.#open += 1;
      socket.once("close", () => (this.#open -= 1));
    });
    this.#server.on("request", (req, res) => this.#accept(req, res, false));
    this.#server.on("checkContinue", (req: IncomingMessage, res: ServerResponse) => this.#accept(req, res, true));
    this.#server.on("checkExpectation", (req: IncomingMessage, res: ServerResponse) => {
      refuseExpectation(this.#replyOf(res), this.#handlers);
    });
    this.#server.on("connect", (_req: IncomingMessage, socket: Duplex) => {
      const requestId = this.#handlers.onRefused("METHOD_NOT_ALLOWED");
      socket.on("error", () => {}); // No longer the server's: its client may leave in any way.
      answerRaw(socket, requestId, "METHOD_NOT_ALLOWED");
    });
    this.#server.on("clientError", (error: BadBytes, socket) => this.#onBadBytes(error, socket as Socket));
  }

  get connections(): number {
    return this.#open;
  }

  listen(host: string, port: number): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host, port, backlog: 4096 }, () => {
        this.#server.off("error", reject);
        resolve(this.#server.address() as AddressInfo);
      });
    });
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeIdleConnections();
    });
  }

  closeIdle(): void {
    this.#server.closeIdleConnections();
  }

  destroyAll(): void {
    this.#server.closeAllConnections();
  }

  setConnectionsMax(count: number): void {
    this.#server.maxConnections = count;
  }

  #stateOf(socket: Socket): ConnectionState {
    let state = this.#connections.get(socket);
    if (state === undefined)
      this.#connections.set(socket, (state = { running: null, waiting: [], over: false, last: false }));
    return state;
  }

  #replyOf(res: ServerResponse): NodeClientReply {
    return new NodeClientReply(res, () => this.#giveUp(this.#stateOf(res.req.socket)));
  }

  #giveUp(state: ConnectionState): void {
    state.over = true;
    state.waiting.length = 0;
  }

  #accept(req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void {
    const { socket } = req;
    const state = this.#stateOf(socket);
    // The parser goes on with what it has read, also behind the last answer of a connection.
    if (state.over || state.last || socket.writableEnded) return discard(req);
    // The parser takes what follows for another protocol, drops it, and loses its place in what comes after that.
    if (asksToUpgrade(req)) state.last = true;
    if (state.running === null) this.#start(state, req, res, expectsContinue);
    else if (state.waiting.length >= PIPELINED_MAX) socket.destroy();
    else if (bodyCanWait(req)) state.waiting.push([req, res, expectsContinue]);
    else {
      this.#giveUp(state);
      if (!state.running.headersSent) state.running.shouldKeepAlive = false;
      discard(req);
    }
  }

  #start(state: ConnectionState, req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void {
    state.running = res;
    if (asksToUpgrade(req)) res.shouldKeepAlive = false;
    const { socket } = req;
    res.once("close", () => {
      state.running = null;
      if (!res.writableFinished || socket.writableEnded || socket.destroyed) return this.#giveUp(state);
      if (state.over) return socket.destroySoon();
      const next = state.waiting.shift();
      if (next === undefined) return;
      if (res.statusCode < 400) return this.#start(state, ...next);
      this.#giveUp(state);
      socket.destroySoon();
    });
    this.#handlers.onRequest(new NodeClientRequest(req), this.#replyOf(res), expectsContinue);
  }

  #onBadBytes(error: BadBytes, socket: Socket): void {
    const code = edgeErrorCode(error);
    const requestId = this.#handlers.onRefused(code);
    const state = this.#stateOf(socket);
    const { running } = state;
    this.#giveUp(state);
    // While a request's own body is being read nothing has been answered, so the place for an answer is free.
    const answering = running !== null && (running.req.complete || running.headersSent);
    if (answering && (state.last || error.code === "HPE_CLOSED_CONNECTION")) {
      // Bytes behind a request that said it is the last one: its answer is still owed, and they are nobody's.
      state.last = true;
      return;
    }
    if (error.code === "ECONNRESET" || !socket.writable || answering) {
      socket.destroy();
      return;
    }
    answerRaw(socket, requestId, code);
  }
}

/** An answer where there is no `ServerResponse` to give it with; ends the connection. */
function answerRaw(socket: Duplex, requestId: string, code: ErrorCode): void {
  socket.end(renderRawRefusal(requestId, code), () => socket.destroy());
}

function bodyCanWait({ rawHeaders }: IncomingMessage): boolean {
  return (
    headerValue(rawHeaders, "transfer-encoding") === undefined &&
    Number(headerValue(rawHeaders, "content-length") ?? 0) <= PIPELINED_BODY_BYTES_MAX
  );
}

function asksToUpgrade({ rawHeaders }: IncomingMessage): boolean {
  return (
    headerValue(rawHeaders, "upgrade") !== undefined &&
    (headerValue(rawHeaders, "connection") ?? "").toLowerCase().includes("upgrade")
  );
}

function discard(req: IncomingMessage): void {
  let bytes = 0;
  req.on("data", (part: Buffer) => {
    bytes += part.length;
    if (bytes > DISCARDED_BYTES_MAX) req.socket.destroy();
  });
}

type BadBytes = NodeJS.ErrnoException & { readonly rawPacket?: Buffer; readonly bytesParsed?: number };

function edgeErrorCode(error: BadBytes): ErrorCode {
  switch (error.code) {
    case "HPE_INVALID_METHOD":
      return isRequestLine(error) ? "METHOD_NOT_ALLOWED" : "BAD_REQUEST";
    case "HPE_HEADER_OVERFLOW":
      return "HEADERS_TOO_LARGE";
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return "REQUEST_TIMEOUT";
    default:
      return "BAD_REQUEST";
  }
}

/** Whether the bytes at fault are a whole request line that only the method spoils. */
function isRequestLine({ rawPacket = Buffer.alloc(0), bytesParsed = 0 }: BadBytes): boolean {
  const from = rawPacket.lastIndexOf(0x0a, bytesParsed) + 1;
  return /^[A-Za-z]{1,20} \/[\x21-\x7e]* HTTP\/1\.[01]\r\n/.test(rawPacket.toString("latin1", from, from + 9_000));
}
