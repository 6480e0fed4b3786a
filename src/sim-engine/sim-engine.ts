import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { serveAdmin } from "./admin.ts";
import { EngineCore } from "./engine-core.ts";
import type { LedgerView, SimLedger } from "./ledger.ts";
import { Ledger } from "./ledger.ts";
import { KEEP_ALIVE_MS, type SimEngineOptions } from "./options.ts";
import { RequestHandler } from "./request-handler.ts";
import type { Json } from "./json.ts";
import { parseRules, type SimRule } from "./script.ts";
import { createServer } from "../kernel/node-builtins.ts";

export type { SimEngineOptions } from "./options.ts";
export type { LedgerEntry, LedgerView, SimLedger } from "./ledger.ts";
export type { SimRule } from "./script.ts";

export interface SimEngine extends AsyncDisposable {
  /** `http://host:port`, without a slash at the end. */
  readonly url: string;
  readonly port: number;
  /** Applies to coming requests, after the rules that are there. Throws when the rule is wrong. */
  script(rule: SimRule): void;
  /** Removes all rules and every state that they set. */
  clearScript(): void;
  ledger(): SimLedger;
  resetLedger(): void;
  /** True as soon as the predicate holds, false after `timeoutMs`. */
  waitFor(met: (ledger: LedgerView) => boolean, timeoutMs: number): Promise<boolean>;
  /** What the real engine does on SIGTERM by default; resolves when the port is closed and the answers are out. */
  terminate(): Promise<void>;
  /** Breaks everything off and resolves when all is closed. */
  close(): Promise<void>;
  /** All sockets destroyed at once, port closed, as when the process is killed. */
  kill(): void;
}

const HEADER_BYTES_MAX = 1024 * 1024;
/** Answers cut short by a stop get this long to leave before their connections are broken. */
const TERMINATE_MS_MAX = 500;

/** Rejects when the address can't be had. */
export async function startSimEngine(options: SimEngineOptions): Promise<SimEngine> {
  if (options.models.length === 0) throw new RangeError("a simulated engine serves at least one model");
  const host = options.host ?? "127.0.0.1";
  const ledger = new Ledger(options.clock);
  const core = new EngineCore(options);
  const sockets = new Set<Socket>();
  const server = createServer({
    maxHeaderSize: HEADER_BYTES_MAX,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveTimeoutBuffer: 0,
    requestTimeout: 0,
    noDelay: true,
  });
  const kill = (): void => {
    core.close();
    ledger.close();
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  const handler = new RequestHandler(options, core, ledger, kill);
  wire(server, handler, ledger, sockets, options);
  await listen(server, host, options.port ?? 0);

  const port = (server.address() as AddressInfo).port;
  const closed = new Promise<void>((resolve) => server.once("close", () => resolve()));
  const close = async (): Promise<void> => {
    kill();
    await closed;
  };
  return {
    url: `http://${host.includes(":") ? `[${host}]` : host}:${port}`,
    port,
    script: (rule) => {
      const checked = parseRules(rule as unknown as Json);
      if (checked.kind === "wrong") throw new RangeError(checked.message);
      handler.addRule(rule);
    },
    clearScript: () => handler.clearScript(),
    ledger: () => ledger.read(),
    resetLedger: () => ledger.reset(),
    waitFor: (met, timeoutMs) => ledger.waitFor(met, timeoutMs),
    terminate: async () => {
      server.close();
      handler.beginShutdown();
      core.failAll("stopping");
      server.closeIdleConnections();
      const timer = options.clock.after(TERMINATE_MS_MAX, kill);
      await ledger.waitFor((now) => now.concurrentNow === 0, TERMINATE_MS_MAX);
      timer.cancel();
      kill();
      await closed;
    },
    close,
    kill,
    [Symbol.asyncDispose]: close,
  };
}

function wire(
  server: Server,
  handler: RequestHandler,
  ledger: Ledger,
  sockets: Set<Socket>,
  options: SimEngineOptions,
): void {
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => {}); // A reset by the client; the request's own close event tells its handler.
  });
  const serve = (request: IncomingMessage, response: ServerResponse): void => {
    if (request.url?.startsWith("/sim/") === true) {
      void serveAdmin(
        {
          ledger,
          script: handler.script,
          addRule: (rule) => handler.addRule(rule),
          clearScript: () => handler.clearScript(),
        },
        request,
        response,
      );
    } else {
      void handler.handle(request, response);
    }
  };
  server.on("request", serve);
  server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    const path = (request.url ?? "/").split("?")[0] ?? "/";
    const how = handler.script.expectation(path);
    if (how === "refuse") {
      response.writeHead(417, ["content-length", "0", "connection", "close"]).end();
      return;
    }
    for (let times = how === "ignore" ? 0 : how === "twice" ? 2 : 1; times > 0; times -= 1) response.writeContinue();
    serve(request, response);
  });
  server.on("clientError", (_error: Error, socket: Socket) => {
    const text = "Invalid HTTP request received.";
    const body =
      options.dialect === "vllm"
        ? `content-type: text/plain; charset=utf-8\r\ncontent-length: ${text.length}\r\nconnection: close\r\n\r\n${text}`
        : "connection: close\r\ncontent-length: 0\r\n\r\n";
    if (socket.writable && !socket.destroyed) socket.end(`HTTP/1.1 400 Bad Request\r\n${body}`);
    else socket.destroy();
  });
}

const listen = (server: Server, host: string, port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port, backlog: 4_096 }, () => {
      server.off("error", reject);
      resolve();
    });
  });
