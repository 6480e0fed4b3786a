import type { Clock } from "./clock.ts";
import { YardmasterError } from "./errors.ts";

/** A signal that follows `parent` and is also aborted after `ms`. Dispose it when the work has ended. */
export function withDeadline(
  clock: Clock,
  ms: number,
  parent: AbortSignal,
): Disposable & { readonly signal: AbortSignal } {
  const expiry = new AbortController();
  const timer = clock.after(ms, () =>
    expiry.abort(new YardmasterError("UPSTREAM_TIMEOUT", `no answer within ${ms} ms`)),
  );
  return { signal: AbortSignal.any([parent, expiry.signal]), [Symbol.dispose]: () => timer.cancel() };
}

/** Resolves when the signal is aborted, at once if it is already. */
export const untilAborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
