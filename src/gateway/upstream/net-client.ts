import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { Deadline, TimerWheel } from "../../kernel/timer-wheel.ts";
import type { ConnectOptions } from "./connect.ts";
import { Connection, type ConnectionOwner } from "./connection.ts";
import { ConnectionPool } from "./connection-pool.ts";
import { NetExchange } from "./net-exchange.ts";
import type { UpstreamClient, UpstreamExchange, UpstreamHandler, UpstreamRequest, UpstreamTarget } from "./port.ts";
import { buildRequestHead } from "./request-head.ts";
import { SendBuffer } from "./send-buffer.ts";

export interface NetUpstreamClientOptions extends ConnectOptions {
  readonly clock: Clock;
  readonly wheel: TimerWheel;
}

/**
 * Keep-alive HTTP/1.1 client on plain sockets. Opens as many connections as there are exchanges at once; how many that may be is
 * decided by those who hand out slots.
 *
 * Invariants:
 *   N1. A request goes out on a used connection only after the events of the current turn of the event loop were seen (two turns when
 *       its last response ended in this one): bytes behind that response, or its closing, show up before the request does. HTTP/1.1
 *       offers no way to tell a late leftover from an answer, so this is as close as a client can look.
 *   N2. An exchange whose request did not go out yet survives the loss of its connection.
 */
export class NetUpstreamClient implements UpstreamClient, ConnectionOwner {
  readonly sendBuffer = new SendBuffer();
  readonly #wheel: TimerWheel;
  readonly #clock: Clock;
  readonly #options: ConnectOptions;
  readonly #pool: ConnectionPool;
  readonly #open = new Set<Connection>();
  readonly #connecting = new Map<Connection, Deadline>();
  #starting: Connection[] = [];
  #settling: Connection[] = [];
  #turnArmed = false;
  #closed = false;

  constructor(options: NetUpstreamClientOptions) {
    this.#clock = options.clock;
    this.#wheel = options.wheel;
    this.#options = options;
    this.#pool = new ConnectionPool(options.clock, options.wheel);
  }

  exchange(target: UpstreamTarget, request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange {
    const head = buildRequestHead(request);
    const exchange = new NetExchange(target, request, head.kind === "head" ? head.text : "", handler);
    if (head.kind === "refused" || this.#closed) {
      const reason = head.kind === "refused" ? head.reason : "the client is closed";
      setImmediate(() => exchange.fail("connect", `the request was not sent: ${reason}`, false, undefined, true));
      return exchange;
    }
    const connection = request.freshConnection ? undefined : this.#pool.take(target.origin);
    if (connection === undefined) {
      this.#connect(exchange);
    } else {
      connection.attach(exchange);
      this.#starting.push(connection);
      this.#armTurn();
    }
    return exchange;
  }

  closeOrigin(origin: string): void {
    for (const connection of this.#open) {
      if (connection.target.origin === origin) connection.retired = true;
    }
    this.#pool.closeOrigin(origin);
  }

  close(): void {
    this.#closed = true;
    for (const connection of this.#open) connection.retired = true;
    this.#pool.closeAll();
  }

  counts(): { readonly open: number; readonly idle: number } {
    return { open: this.#open.size, idle: this.#pool.count };
  }

  onReady(connection: Connection): void {
    this.#stopConnectTimer(connection);
    connection.send();
  }

  onFree(connection: Connection): void {
    if (!this.#pool.put(connection)) {
      connection.close();
      return;
    }
    connection.settled = false;
    this.#settling.push(connection);
    this.#armTurn();
  }

  onClosed(connection: Connection, unsent: NetExchange | undefined): void {
    this.#open.delete(connection);
    this.#stopConnectTimer(connection);
    this.#pool.remove(connection);
    if (unsent !== undefined && !unsent.done) this.#connect(unsent);
  }

  #connect(exchange: NetExchange): void {
    const connection = new Connection(exchange.target, this, exchange, this.#options);
    this.#open.add(connection);
    const at = (this.#clock.mono() + exchange.target.connectTimeoutMs) as MonoMs;
    this.#connecting.set(
      connection,
      this.#wheel.add(at, () => connection.expireConnect()),
    );
  }

  #stopConnectTimer(connection: Connection): void {
    const deadline = this.#connecting.get(connection);
    if (deadline === undefined) return;
    this.#connecting.delete(connection);
    this.#wheel.remove(deadline);
  }

  #armTurn(): void {
    if (this.#turnArmed) return;
    this.#turnArmed = true;
    setImmediate(this.#onTurn);
  }

  readonly #onTurn = (): void => {
    this.#turnArmed = false;
    const starting = this.#starting;
    const settling = this.#settling;
    this.#starting = [];
    this.#settling = [];
    for (const connection of starting) {
      if (connection.settled) connection.send();
      else this.#starting.push(connection);
    }
    for (const connection of settling) connection.settled = true;
    if (this.#starting.length > 0) this.#armTurn();
  };
}
