import { systemClock } from "../kernel/clock.ts";

/** The longest time for which this thread did not come to its timers, in ms. */
export function watchLoop(): { stop(): number } {
  let last = systemClock.mono();
  let longest = 0;
  const end = new AbortController();
  const tick = (): void => {
    const now = systemClock.mono();
    longest = Math.max(longest, now - last);
    last = now;
    if (!end.signal.aborted) systemClock.after(5, tick);
  };
  tick();
  return {
    stop: () => {
      end.abort();
      return longest;
    },
  };
}
