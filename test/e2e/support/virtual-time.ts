import type { VirtualClock } from "../../../src/testing/virtual-clock.ts";

// A gateway whose time is told and whose sockets are real. What is on the way between sockets of this one process arrives
// within a few turns of its event loop, however slow the machine is, so a step of virtual time waits for turns, not for time.

const TURNS = 40;
const STEP_MS = 500;

export async function turns(count = TURNS): Promise<void> {
  for (let i = 0; i < count; i += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}

export async function passTime(clock: VirtualClock, ms: number, stepMs = STEP_MS): Promise<void> {
  for (let left = ms; left > 0; left -= stepMs) {
    await clock.advance(Math.min(stepMs, left));
    await turns();
  }
}

/** Lets time pass until the condition holds; returns how much passed. */
export async function passTimeUntil(
  clock: VirtualClock,
  what: string,
  holds: () => boolean | Promise<boolean>,
  msMax: number,
): Promise<number> {
  const from = clock.mono();
  await turns();
  while (!(await holds())) {
    if (clock.mono() - from >= msMax) throw new Error(`${what}: not within ${msMax} ms of virtual time`);
    await passTime(clock, STEP_MS);
  }
  return clock.mono() - from;
}

/** Time that goes on while something is waited for that needs it, such as a stop. */
export async function whileTimePasses<T>(clock: VirtualClock, work: Promise<T>): Promise<T> {
  let over = false;
  const done = work.finally(() => (over = true));
  done.catch(() => {}); // Told to the caller below.
  while (!over) await passTime(clock, STEP_MS);
  return done;
}

/** Ends what needs a little time and a thread that knows no virtual time: the thread gets as long as it needs. */
export async function stopInVirtualTime(clock: VirtualClock, gateway: { stop(): Promise<void> }): Promise<void> {
  const stopped = gateway.stop();
  stopped.catch(() => {}); // Told to the caller below.
  await passTime(clock, 1_000);
  await whileTimePasses(clock, stopped); // What it waits for may take longer than that.
}
