import { createServer, type AddressInfo, type Server } from "node:net";
import type { GatewayConfig } from "../../contract/gateway-config.ts";
import { httpDate, type Clock, type Timer } from "../../kernel/clock.ts";
import { bodyBlocks } from "./body-blocks.ts";
import type { AnswerLines } from "./edge-exchange.ts";
import { EdgeConnection, type EdgeOwner } from "./edge-connection.ts";
import type { EdgeHandlers, EdgeServer } from "./edge-port.ts";

const READ_BYTES = 64 * 1024;
const CHECK_MS = 1_000;
const BACKLOG = 4_096;

/** The listening side on `node:net`: our own reader of requests and writer of answers. */
export class NetEdgeServer implements EdgeServer, EdgeOwner, AnswerLines {
  readonly clock: Clock;
  readonly handlers: EdgeHandlers;
  readonly headersTimeoutMs: number;
  readonly keepAliveMs: number;
  readonly keepAlive: string;
  readonly lines = this;
  readonly readInto = Buffer.allocUnsafeSlow(READ_BYTES);
  closing = false;
  readonly #server: Server;
  readonly #connections: EdgeConnection[] = [];
  #connectionsMax: number;
  #timer: Timer | undefined;
  #whenEmpty: (() => void) | undefined;
  #dateSecond = -1;
  #date = "";

  constructor(
    handlers: EdgeHandlers,
    clock: Clock,
    http: GatewayConfig["http"],
    connectionsMax: number,
    onTurnedAway = (): void => {},
  ) {
    this.handlers = handlers;
    this.clock = clock;
    this.headersTimeoutMs = http.headersTimeoutMs;
    this.keepAliveMs = http.keepAliveMs;
    this.keepAlive = `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(http.keepAliveMs / 1000)}\r\n`;
    this.#connectionsMax = connectionsMax;
    this.#server = createServer({ noDelay: true, pauseOnConnect: true }, (socket) => {
      if (this.#connections.length >= this.#connectionsMax) {
        socket.destroy();
        onTurnedAway();
        return;
      }
      const connection = new EdgeConnection(socket, this);
      connection.index = this.#connections.push(connection) - 1;
      this.#timer ??= this.clock.after(CHECK_MS, this.#check);
    });
  }

  get connections(): number {
    return this.#connections.length;
  }

  listen(host: string, port: number): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host, port, backlog: BACKLOG }, () => {
        this.#server.off("error", reject);
        resolve(this.#server.address() as AddressInfo);
      });
    });
  }

  close(): Promise<void> {
    this.closing = true;
    return new Promise((resolve) => {
      this.#server.close(() => {
        if (this.#connections.length === 0) resolve();
        else this.#whenEmpty = resolve;
      });
      this.closeIdle();
    });
  }

  closeIdle(): void {
    for (const connection of [...this.#connections]) if (connection.idle) connection.destroy();
  }

  destroyAll(): void {
    for (const connection of [...this.#connections]) connection.destroy();
  }

  setConnectionsMax(count: number): void {
    this.#connectionsMax = count;
  }

  /** One text a second. */
  date(): string {
    const second = Math.floor(this.clock.wall() / 1000);
    if (second !== this.#dateSecond) {
      this.#dateSecond = second;
      this.#date = `Date: ${httpDate(this.clock.wall())}\r\n`;
    }
    return this.#date;
  }

  onClosed(connection: EdgeConnection): void {
    const { index } = connection;
    const last = this.#connections.pop();
    if (last !== undefined && last !== connection) {
      this.#connections[index] = last;
      last.index = index;
    }
    if (this.#connections.length > 0) return;
    this.#timer?.cancel(); // An idle gateway does not wake up.
    this.#timer = undefined;
    bodyBlocks.clear();
    this.#whenEmpty?.();
  }

  readonly #check = (): void => {
    this.#timer = undefined;
    const now = this.clock.mono();
    for (const connection of [...this.#connections]) connection.check(now);
    bodyBlocks.trim();
    if (this.#connections.length > 0) this.#timer = this.clock.after(CHECK_MS, this.#check);
  };
}
