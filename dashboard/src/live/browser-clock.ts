/** The one place that asks the browser for time and chance. */
export const browserClock = {
  /** Since the page was opened: for durations. */
  mono: (): number => performance.now(),
  wall: (): number => Date.now(),
  offsetMinutes: (): number => new Date().getTimezoneOffset(),
  chance: (): number => Math.random(),
  after: (ms: number, run: () => void): (() => void) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  every: (ms: number, run: () => void): (() => void) => {
    const timer = setInterval(run, ms);
    return () => clearInterval(timer);
  },
};
