/** Milliseconds on a clock that never steps; for durations, deadlines and leases. Fractions are kept. */
export type MonoMs = number & { readonly __brand: "MonoMs" };
/** Milliseconds since 1970 on the wall clock; for records only, never for a decision. */
export type EpochMs = number & { readonly __brand: "EpochMs" };

export interface Timer {
  cancel(): void;
}

export interface Clock {
  mono(): MonoMs;
  wall(): EpochMs;
  /** Rejects with the signal's reason when it is aborted first. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  /** Calls back once after `ms`. A pending timer does not keep the process alive. */
  after(ms: number, callback: () => void): Timer;
}

export const asMono = (ms: number): MonoMs => ms as MonoMs;
export const asEpoch = (ms: number): EpochMs => ms as EpochMs;
/** For records and log lines, `2026-01-01T00:00:00.000Z`. */
export const isoTime = (wall: EpochMs): string => new Date(wall).toISOString();

/** ISO 8601 with a zone; undefined for anything else that `Date` can't place. Reads no clock. */
export function parseIsoTime(text: string): EpochMs | undefined {
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : (ms as EpochMs);
}

/** As the `Date` header has it, to the second. */
export const httpDate = (wall: EpochMs): string => new Date(wall).toUTCString();

export const formatIsoTime = (time: EpochMs): string => new Date(time).toISOString();

export const systemClock: Clock = {
  mono: () => performance.now() as MonoMs,
  wall: () => Date.now() as EpochMs,
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      const onAbort = (): void => {
        clearTimeout(timer);
        reject(signal.reason);
      };
      const timer = setTimeout(() => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      }, ms);
      signal.addEventListener("abort", onAbort, { once: true });
    }),
  after: (ms, callback) => {
    const timer = setTimeout(callback, ms);
    timer.unref();
    return { cancel: () => clearTimeout(timer) };
  },
};
