import type { FairQueue, Flow, Ticket } from "./fair-queue.ts";
import { type Rank, RANKS } from "./ranks.ts";

/**
 * Who leaves a full queue so that a newcomer may wait.
 *
 * Invariants:
 *   M1. The lowest class is shed first, in it the key that fills most of the queue, of that key the newest request.
 *   M2. A class that fills no more of the queue than the floor (`batchMinShare`, at most a quarter) keeps its places: without
 *       waiting requests its share of the slots' time would be an empty promise. A newcomer within its class's floor may
 *       displace higher classes too. Queues too small for the floor to hold one request have none.
 *   M3. In the newcomer's own class only the key that fills most of the queue gives way, and only if it keeps at least as
 *       much as the newcomer's key then has: one key's backlog can't shut the others out.
 *   M4. Nobody is displaced in vain.
 */
const FLOOR_MAX = 0.25;

/** The queues of the classes, by rank. */
export type ClassQueues = readonly [FairQueue, FairQueue, FairQueue];

export interface QueueLimits {
  readonly queueMax: number;
  readonly queueBytesMax: number;
  readonly batchMinShare: number;
}

export interface Newcomer {
  readonly key: string;
  readonly weight: number;
  readonly bytes: number;
}

export type FullQueue = "queueFull" | "queueBytesFull";

/** Calls `displace`, which must take the request out, until one more may wait; else says which limit is full. */
export function makeSpace(
  queues: ClassQueues,
  limits: QueueLimits,
  newcomer: Newcomer,
  rank: Rank,
  displace: (ticket: Ticket) => void,
): FullQueue | undefined {
  const { queueMax, queueBytesMax } = limits;
  if (queueMax === 0) return "queueFull";
  if (newcomer.bytes > queueBytesMax) return "queueBytesFull";
  const [interactive, system, batch] = queues;
  const over = {
    count: interactive.waiting + system.waiting + batch.waiting + 1 - queueMax,
    bytes: interactive.bytes + system.bytes + batch.bytes + newcomer.bytes - queueBytesMax,
  };
  if (over.count <= 0 && over.bytes <= 0) return undefined;

  const why = over.count > 0 ? "queueFull" : "queueBytesFull";
  const floor = Math.min(limits.batchMinShare, FLOOR_MAX);
  const own = queues[rank];
  const withinFloor = own.loadOf(own.waiting + 1, own.bytes + newcomer.bytes, 1) <= floor;
  const others = RANKS.toReversed()
    .filter((other) => other > rank || (withinFloor && other !== rank))
    .map((other) => queues[other]);
  const rest = { ...over };
  for (const queue of others) {
    rest.count -= Math.max(0, queue.waiting - Math.floor(floor * queueMax));
    rest.bytes -= Math.max(0, queue.bytes - floor * queueBytesMax);
  }
  const peer = own.heaviest();
  if ((rest.count > 0 || rest.bytes > 0) && !givesWay(own, peer, newcomer, rest)) return why;

  const shed = (queue: FairQueue, flow: Flow | undefined): void => {
    const ticket = flow === undefined ? undefined : queue.newestOf(flow);
    if (ticket === undefined) throw new Error("admission: the full queue has nobody left to displace");
    over.count -= 1;
    over.bytes -= ticket.bytes;
    displace(ticket);
  };
  for (const queue of others) {
    while ((over.count > 0 || over.bytes > 0) && queue.loadOf(queue.waiting, queue.bytes, 1) > floor)
      shed(queue, queue.heaviest());
  }
  while (over.count > 0 || over.bytes > 0) shed(own, peer);
  return undefined;
}

/** Whether the flow can leave `rest` of the queue without ending below the newcomer's key. */
function givesWay(
  queue: FairQueue,
  flow: Flow | undefined,
  newcomer: Newcomer,
  rest: { readonly count: number; readonly bytes: number },
): boolean {
  if (flow === undefined || flow.key === newcomer.key) return false;
  const left = flow.waiting - Math.max(0, rest.count);
  const leftBytes = flow.bytes - Math.max(0, rest.bytes);
  return (
    left >= 0 &&
    leftBytes >= 0 &&
    queue.loadOf(left, leftBytes, flow.weight) >= queue.loadWith(newcomer.key, newcomer.bytes, newcomer.weight)
  );
}
