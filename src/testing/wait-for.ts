import { once, type EventEmitter } from "node:events";
import { systemClock } from "../kernel/clock.ts";

// Waiting in tests: for events, never for time to pass. Each wait has one overall patience, generous enough for a loaded
// machine, after which it fails and says what did not come.

export const PATIENCE_MS = 60_000;
const POLL_MS = 10;

/** The promise's own outcome, or a rejection that names `what` when it took longer than `ms`. */
export async function within<T>(what: string, promise: Promise<T>, ms: number = PATIENCE_MS): Promise<T> {
  const settled = new AbortController();
  const expiry = systemClock.sleep(ms, settled.signal).then((): never => {
    throw new Error(`${what}: not within ${ms} ms`);
  });
  expiry.catch(() => {}); // Cancelled below in the everyday case.
  try {
    return await Promise.race([promise, expiry]);
  } finally {
    settled.abort();
  }
}

/** The arguments of the emitter's next `event`. Rejects on its `error`, as `once` does. */
export function nextEvent(emitter: EventEmitter, event: string, ms: number = PATIENCE_MS): Promise<unknown[]> {
  return within(`event ${event}`, once(emitter, event), ms);
}

/**
 * Reads a state outside this process (a page, a file, a process table) until it is accepted. What lives in this process
 * tells of its changes: use `Watched`.
 */
export async function eventually<T>(
  what: string,
  read: () => T | Promise<T>,
  accept: (value: T) => boolean,
  ms: number = PATIENCE_MS,
): Promise<T> {
  const never = new AbortController().signal;
  const end = systemClock.mono() + ms;
  for (;;) {
    const value = await read();
    if (accept(value)) return value;
    if (systemClock.mono() >= end) throw new Error(`${what}: not within ${ms} ms; last seen: ${JSON.stringify(value)}`);
    await systemClock.sleep(POLL_MS, never);
  }
}

/** A state that calls `changed` when it changed; others wait for a condition on it without polling. */
export class Watched {
  readonly #waiting = new Set<() => void>();

  changed(): void {
    for (const check of this.#waiting) check();
  }

  /** Resolves at once when the condition holds already. */
  until(what: string, condition: () => boolean, ms: number = PATIENCE_MS): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const check = (): void => {
      try {
        if (condition()) resolve();
      } catch (error) {
        reject(error);
      }
    };
    this.#waiting.add(check);
    check();
    return within(what, promise, ms).finally(() => this.#waiting.delete(check));
  }
}
