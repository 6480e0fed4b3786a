import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { renderErrorBody } from "../../contract/error-body.ts";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { ERRORS, type ErrorCode } from "../../kernel/errors.ts";

/**
 * The listening side: limits of `node:http` set to the product's, one request of a connection at a time, and answers to
 * what is not HTTP.
 *
 * Invariants:
 *   E1. A pipelined request is looked at only when the answer before it has ended well; after a refusal that closes the
 *       connection it is never looked at.
 *   E2. Bytes that are no HTTP get one JSON answer and the connection is closed; if another answer is under way on that
 *       connection, it is cut instead of being mixed up.
 */
export interface EdgeHandlers {
  onRequest(req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void;
  onRefusedBytes(code: ErrorCode): void;
}

/** Requests that a connection may have in the pipe behind the running one. */
const PIPELINED_MAX = 16;
export const HEADER_BYTES_MAX = 16 * 1024;
const CONNECTIONS_CHECK_MS = 1_000;

type Waiting = readonly [IncomingMessage, ServerResponse, boolean];

interface ConnectionState {
  busy: boolean;
  readonly waiting: Waiting[];
}

export class EdgeServer {
  readonly #server: Server;
  readonly #handlers: EdgeHandlers;
  readonly #connections = new WeakMap<Socket, ConnectionState>();
  #open = 0;

  constructor(handlers: EdgeHandlers, http: GatewayConfig["http"], connectionsMax: number) {
    this.#handlers = handlers;
    this.#server = createServer({
      headersTimeout: http.headersTimeoutMs,
      // Bodies have their own clock, which lets a slow but steady upload go on (see RequestBody).
      requestTimeout: 0,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      keepAliveTimeout: http.keepAliveMs,
      maxHeaderSize: HEADER_BYTES_MAX,
      noDelay: true,
      requireHostHeader: true,
      joinDuplicateHeaders: false,
      insecureHTTPParser: false,
    });
    // Node would cut the list short and go on; the header rules refuse instead, so all of them must be seen.
    this.#server.maxHeadersCount = 0;
    this.#server.maxConnections = connectionsMax;
    this.#server.on("connection", (socket) => {
      this.#open += 1;
      socket.once("close", () => (this.#open -= 1));
    });
    this.#server.on("request", (req, res) => this.#accept(req, res, false));
    this.#server.on("checkContinue", (req: IncomingMessage, res: ServerResponse) => this.#accept(req, res, true));
    this.#server.on("checkExpectation", (req: IncomingMessage, res: ServerResponse) => {
      this.refuse(res, "EXPECTATION_FAILED", "only Expect: 100-continue is understood");
    });
    this.#server.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#onBadBytes(error, socket as Socket));
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

  /** Stops listening and closes idle connections; running answers go on. Resolves when all connections are gone. */
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

  /** A refusal at the edge: answered, and the connection is of no further use. */
  refuse(res: ServerResponse, code: ErrorCode, message: string): void {
    const socket = res.socket;
    if (socket !== null) this.#connections.get(socket)?.waiting.splice(0);
    const { status, text } = renderErrorBody(code, message, { dialect: "openai" });
    res.writeHead(status, ["content-type", "application/json", "connection", "close", "content-length", String(Buffer.byteLength(text))]);
    res.end(text);
  }

  #accept(req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void {
    const socket = req.socket;
    let state = this.#connections.get(socket);
    if (state === undefined) {
      state = { busy: false, waiting: [] };
      this.#connections.set(socket, state);
    }
    if (state.busy) {
      if (state.waiting.length >= PIPELINED_MAX) socket.destroy();
      else state.waiting.push([req, res, expectsContinue]);
      return;
    }
    this.#start(state, req, res, expectsContinue);
  }

  #start(state: ConnectionState, req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void {
    state.busy = true;
    res.once("close", () => {
      state.busy = false;
      const next = state.waiting.shift();
      if (next === undefined) return;
      if (!res.writableFinished || res.shouldKeepAlive === false || next[0].socket.destroyed) {
        state.waiting.length = 0;
        return;
      }
      this.#start(state, ...next);
    });
    this.#handlers.onRequest(req, res, expectsContinue);
  }

  #onBadBytes(error: NodeJS.ErrnoException, socket: Socket): void {
    const code = edgeErrorCode(error);
    this.#handlers.onRefusedBytes(code);
    const state = this.#connections.get(socket);
    state?.waiting.splice(0);
    if (error.code === "ECONNRESET" || !socket.writable || state?.busy === true) {
      socket.destroy();
      return;
    }
    const { status, text } = renderErrorBody(code, ERRORS[code].meaning, { dialect: "openai" });
    socket.end(
      `HTTP/1.1 ${status} ${REASONS[status] ?? "Bad Request"}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
      () => socket.destroySoon(),
    );
  }
}

const REASONS: Readonly<Record<number, string>> = {
  400: "Bad Request",
  408: "Request Timeout",
  413: "Payload Too Large",
  431: "Request Header Fields Too Large",
};

function edgeErrorCode(error: NodeJS.ErrnoException): ErrorCode {
  switch (error.code) {
    case "HPE_HEADER_OVERFLOW":
      return "HEADERS_TOO_LARGE";
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return "BODY_TOO_LARGE";
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return "REQUEST_TIMEOUT";
    default:
      return "BAD_REQUEST";
  }
}
