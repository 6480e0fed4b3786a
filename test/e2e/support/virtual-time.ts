import { stat } from "node:fs/promises";
import type { VirtualClock } from "../../../src/testing/virtual-clock.ts";

// A program whose time is told and whose sockets and files are real. What is on the way between sockets of this one process,
// or in its threads, arrives within a few turns of its event loop and a few trips to a thread, so a step of virtual time
// waits for those, which take longer where the machine is slower, and not for time.

const TRIPS = 4;
const TURNS_PER_TRIP = 10;
const STEP_MS = 500;

export async function turns(): Promise<void> {
  for (let trip = 0; trip < TRIPS; trip += 1) {
    for (let turn = 0; turn < TURNS_PER_TRIP; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
    await stat("/");
  }
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
