/** What a control plane knows of the connection that a node has already. */
export interface Incumbent {
  readonly bootId: string;
  /** Since it was last heard, in ms. */
  readonly silentMs: number;
}

/** A machine that was started anew is let in at the latest after this. */
const HEARD_MS_MAX = 10_000;
/** A report may be late. */
const LATE_MS = 1_000;

/**
 * Whether who shows a connected node's credential is another machine: it is of another start of a machine, while the one that is
 * connected still reports. Let in, both would take the node's place in turns, and each time all replicas of the node would count as
 * gone. The same start may be the same agent with a new connection, which takes the place of the old one at once.
 */
export const isAnotherMachine = (incumbent: Incumbent, bootId: string, heartbeatMs: number): boolean =>
  incumbent.bootId !== bootId && incumbent.silentMs < Math.min(HEARD_MS_MAX, 2 * heartbeatMs + LATE_MS);
