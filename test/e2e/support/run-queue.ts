import { readFileSync } from "node:fs";

/** A main thread's time, in ns, from `/proc/PID/schedstat`. */
interface RunQueue {
  readonly ranNs: number;
  readonly waitedNs: number;
}

/** Of the process, or of its child that ran the most: a launcher does nothing but wait. */
function runQueueOf(pid: number): RunQueue {
  const [ranNs = 0, waitedNs = 0] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ").map(Number);
  let most: RunQueue = { ranNs, waitedNs };
  for (const child of readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean)) {
    const found = runQueueOf(Number(child));
    if (found.ranNs > most.ranNs) most = found;
  }
  return most;
}

/**
 * How many times longer a process takes, from here to the call of what is returned, than it would if no other process wanted its
 * processor: 1 on an idle machine. Bounds on a time are multiplied by it, so that they tell of the process and not of the machine.
 */
export function crowdingOf(pid: number): () => number {
  const before = runQueueOf(pid);
  return () => {
    const { ranNs, waitedNs } = runQueueOf(pid);
    const ran = ranNs - before.ranNs;
    return ran > 0 ? 1 + (waitedNs - before.waitedNs) / ran : 1;
  };
}
