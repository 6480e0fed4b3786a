import { systemClock, type Clock } from "../kernel/clock.ts";

/** The machine's clock, on which a deadline comes ten times later: for tests of what must be done, and not of how soon. */
export const patientClock: Clock = { ...systemClock, after: (ms, callback) => systemClock.after(10 * ms, callback) };
