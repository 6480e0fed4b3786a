import type { Clock, MonoMs } from "../../kernel/clock.ts";
import type { Deadline, TimerWheel } from "../../kernel/timer-wheel.ts";
import type { Connection } from "./connection.ts";

/** Below the 5 s after which the most common engine server (uvicorn) closes an idle connection, so that ours is the first to go. */
export const IDLE_MS_MAX = 4_000;
/** How much earlier than the engine says we let go. */
const IDLE_MARGIN_MS = 1_000;

/**
 * Connections that wait for a request, by origin. The last one freed is the first one taken: it is the warmest, and those not
 * needed grow old together.
 */
export class ConnectionPool {
  readonly #clock: Clock;
  readonly #wheel: TimerWheel;
  readonly #idle = new Map<string, Connection[]>();
  #count = 0;
  #sweep: Deadline | undefined;

  constructor(clock: Clock, wheel: TimerWheel) {
    this.#clock = clock;
    this.#wheel = wheel;
  }

  get count(): number {
    return this.#count;
  }

  /** False when the engine would close the connection too soon for it to be of use. */
  put(connection: Connection): boolean {
    const idleMs = idleMsFor(connection.keepAliveS);
    if (idleMs <= 0) return false;
    const now = this.#clock.mono();
    connection.idleUntil = (now + idleMs) as MonoMs;
    const list = this.#idle.get(connection.target.origin);
    if (list === undefined) this.#idle.set(connection.target.origin, [connection]);
    else list.push(connection);
    this.#count += 1;
    if (this.#sweep === undefined) this.#sweep = this.#wheel.add(connection.idleUntil, (at) => this.#closeExpired(at));
    else if (connection.idleUntil < this.#sweep.at) this.#wheel.move(this.#sweep, connection.idleUntil);
    return true;
  }

  take(origin: string): Connection | undefined {
    const list = this.#idle.get(origin);
    while (list !== undefined && list.length > 0) {
      const connection = list.pop() as Connection;
      this.#count -= 1;
      // A busy event loop may be late with its timers; the engine may have been the first to close.
      if (connection.idleUntil > this.#clock.mono()) return connection;
      connection.close();
    }
    return undefined;
  }

  /** Takes a connection out of the pool that closed while it waited. */
  remove(connection: Connection): void {
    const list = this.#idle.get(connection.target.origin);
    const at = list?.lastIndexOf(connection) ?? -1;
    if (list === undefined || at === -1) return;
    list.splice(at, 1);
    this.#count -= 1;
    if (list.length === 0) this.#idle.delete(connection.target.origin);
    this.#stopWhenEmpty();
  }

  closeOrigin(origin: string): void {
    for (const connection of [...(this.#idle.get(origin) ?? [])]) connection.close();
  }

  closeAll(): void {
    for (const origin of [...this.#idle.keys()]) this.closeOrigin(origin);
  }

  #closeExpired(now: MonoMs): void {
    this.#sweep = undefined;
    let next = Number.POSITIVE_INFINITY;
    for (const [origin, list] of [...this.#idle]) {
      if (list.length === 0) this.#idle.delete(origin);
      for (const connection of [...list]) {
        if (connection.idleUntil <= now) connection.close();
        else next = Math.min(next, connection.idleUntil);
      }
    }
    if (this.#sweep === undefined && next < Number.POSITIVE_INFINITY)
      this.#sweep = this.#wheel.add(next as MonoMs, (at) => this.#closeExpired(at));
  }

  /** An idle gateway does not wake up. */
  #stopWhenEmpty(): void {
    if (this.#count > 0 || this.#sweep === undefined) return;
    this.#wheel.remove(this.#sweep);
    this.#sweep = undefined;
  }
}

function idleMsFor(keepAliveS: number): number {
  if (keepAliveS < 0) return IDLE_MS_MAX;
  const engineMs = keepAliveS * 1_000;
  return Math.min(IDLE_MS_MAX, engineMs - Math.min(IDLE_MARGIN_MS, engineMs / 2));
}
