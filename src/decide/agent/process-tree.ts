/**
 * Which processes belong to an engine. A child may leave its parent, its group and its session, so several marks count: the
 * proof that the engine was started with, which children inherit in their environment; the control group, where there is one;
 * the session; and descent, also from a process that was seen to belong and has ended since.
 *
 * Invariants:
 *   T1. A process is only ever told by number and start time together: a number that was given out again is another process.
 *   T2. The agent itself, its parents and kernel threads never belong.
 */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly session: number;
  /** Ticks from the machine's start to the process's. */
  readonly startTicks: number;
  /** Ended, and not yet collected by its parent: it holds no memory any more. */
  readonly zombie: boolean;
  /** What the process's environment holds as proof; null when there is none, or it can't be read. */
  readonly proof: string | null;
}

export interface ProcessId {
  readonly pid: number;
  readonly startTicks: number;
}

export interface TreeSeed {
  readonly proof: string;
  /** The engine's first process; null when it was never seen. */
  readonly main: ProcessId | null;
  /** Members at the last look. */
  readonly before: readonly ProcessId[];
  /** Numbers in the engine's control group; empty where there is none. */
  readonly inGroup: ReadonlySet<number>;
  /** Never to be touched. */
  readonly exempt: ReadonlySet<number>;
}

export interface ProcessTree {
  /** Living members, the first process included. */
  readonly members: readonly ProcessEntry[];
  readonly main: "alive" | "gone";
}

export function findTree(processes: readonly ProcessEntry[], seed: TreeSeed): ProcessTree {
  const known = new Map(
    [...seed.before, ...(seed.main === null ? [] : [seed.main])].map((id) => [id.pid, id.startTicks]),
  );
  const byPid = new Map(processes.map((entry) => [entry.pid, entry]));
  const isKnown = (entry: ProcessEntry): boolean => known.get(entry.pid) === entry.startTicks;
  const main = seed.main === null ? undefined : byPid.get(seed.main.pid);
  const mainAlive = main !== undefined && isKnown(main) && !main.zombie;
  // The session carries the first process's number, which can't be given out again while the session has members: where another
  // process has the number, the session is another one too.
  const session = main === undefined || isKnown(main) ? seed.main?.pid : undefined;
  const belongs = new Set<number>();
  for (const entry of processes) {
    if (seed.exempt.has(entry.pid) || entry.pid <= 1) continue;
    const sameSession = session !== undefined && entry.session === session && startedSince(entry, seed.main);
    if (isKnown(entry) || entry.proof === seed.proof || seed.inGroup.has(entry.pid) || sameSession)
      belongs.add(entry.pid);
  }
  addDescendants(processes, belongs, seed.exempt);
  return {
    members: processes.filter((entry) => belongs.has(entry.pid) && !entry.zombie),
    main: mainAlive ? "alive" : "gone",
  };
}

/** A process older than the engine is none of its children, whatever session it is in. */
const startedSince = (entry: ProcessEntry, main: ProcessId | null): boolean =>
  main !== null && entry.startTicks >= main.startTicks;

function addDescendants(processes: readonly ProcessEntry[], belongs: Set<number>, exempt: ReadonlySet<number>): void {
  const children = new Map<number, number[]>();
  for (const { pid, parent } of processes) children.set(parent, [...(children.get(parent) ?? []), pid]);
  const open = [...belongs];
  for (let pid = open.pop(); pid !== undefined; pid = open.pop()) {
    for (const child of children.get(pid) ?? []) {
      if (belongs.has(child) || exempt.has(child)) continue;
      belongs.add(child);
      open.push(child);
    }
  }
}

export type Adoption =
  | { readonly kind: "adopt"; readonly main: ProcessId }
  /** Nothing of it runs. */
  | { readonly kind: "gone" }
  /** Its first process has ended, others of it have not. */
  | { readonly kind: "orphans" };

/**
 * What of a recorded engine still runs. The number alone proves nothing: it may have been given to another program since. A
 * record without a number was written just before the start that the agent did not survive.
 */
export function judgeAdoption(
  processes: readonly ProcessEntry[],
  record: { readonly proof: string; readonly main: ProcessId | null },
): Adoption {
  const proven = processes.filter((entry) => entry.proof === record.proof && !entry.zombie);
  const main =
    record.main === null
      ? proven.find((entry) => entry.session === entry.pid)
      : proven.find((entry) => entry.pid === record.main?.pid && entry.startTicks === record.main.startTicks);
  if (main !== undefined) return { kind: "adopt", main: { pid: main.pid, startTicks: main.startTicks } };
  return { kind: proven.length > 0 ? "orphans" : "gone" };
}
