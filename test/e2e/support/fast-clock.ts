import { asMono, systemClock, type Clock } from "../../../src/kernel/clock.ts";

/** Real time that runs faster: for limits of a minute and more beside real processes. Only lower bounds can be judged by it. */
export const fastClock = (times: number): Clock => ({
  mono: () => asMono(systemClock.mono() * times),
  wall: () => systemClock.wall(),
  sleep: (ms, signal) => systemClock.sleep(ms / times, signal),
  after: (ms, callback) => systemClock.after(ms / times, callback),
});
