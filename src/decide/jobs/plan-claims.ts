import { REQUEST_CLASSES, type RequestClass } from "../../contract/request-class.ts";

/** What one upstream of this gateway could do for jobs. */
export interface ClaimRoom {
  readonly lanes: readonly string[];
  readonly slots: number;
  readonly batchMax: number;
  /** Null: it can take work. */
  readonly away: string | null;
  /** Batch jobs would only be refused, since its GPUs are saturated. */
  readonly shedsBatch: boolean;
  /** Null: its jobs always run here. `spare`: so many could go to tiers. `held`: its card is busy, and nobody takes any. */
  readonly overflow: { readonly spare: number; readonly held: boolean } | null;
  /** Jobs of this gateway that are with the upstream now, waiting or running, by class. */
  readonly held: Readonly<Record<RequestClass, number>>;
}

/** So many jobs of one class, from these lanes. */
export interface ClaimWish {
  readonly class: RequestClass;
  readonly lanes: readonly string[];
  readonly max: number;
  /** The last ones first, and nobody's turn is counted by it. */
  readonly fromEnd?: true;
}

/** Jobs that wait at an upstream for the next free slot, so that it does not stand idle for a round trip to the store. */
const PREFETCH = 1;

/**
 * What to ask the store for: as many jobs of each class as the upstream has slots for that class, and one more. The rest stays
 * in the store, where it costs no memory, can be had by another gateway and survives this one. Nothing for an upstream that is
 * away: its jobs wait, and no attempt is spent on finding out. Where batch is refused, one at a time is taken when it `mayProbe`, and the
 * newest first: so one that would rather fail than wait is told soon, also behind a backlog, and that is not turned over again and again.
 */
export function planClaims(rooms: readonly ClaimRoom[], holdMax: number, mayProbe: boolean): ClaimWish[] {
  let left = holdMax - rooms.reduce((sum, { held }) => sum + held.interactive + held.system + held.batch, 0);
  const spare = rooms.map(({ overflow }) => overflow?.spare ?? 0);
  const wishes: ClaimWish[] = [];
  for (const requestClass of REQUEST_CLASSES) {
    for (const [index, room] of rooms.entries()) {
      const usual = usualRoom(room, requestClass, mayProbe);
      if (usual === null || room.lanes.length === 0) continue;
      const here = Math.max(0, usual - room.held[requestClass]);
      const max = Math.min(left, here + (spare[index] ?? 0));
      if (max <= 0) continue;
      left -= max;
      // What one class may send elsewhere is not there for the next.
      spare[index] = Math.max(0, (spare[index] ?? 0) - Math.max(0, max - here));
      const tells = requestClass === "batch" && room.shedsBatch && room.away === null && max === here;
      wishes.push({ class: requestClass, lanes: room.lanes, max, ...(tells ? { fromEnd: true } : {}) });
    }
  }
  return wishes;
}

/** Jobs of the class that may be with the upstream; null: none is asked for. */
function usualRoom(room: ClaimRoom, requestClass: RequestClass, mayProbe: boolean): number | null {
  const { overflow } = room;
  if (room.away !== null) return overflow === null ? null : Number(mayProbe);
  const slots = requestClass === "batch" ? Math.min(room.batchMax, room.slots) : room.slots;
  const refused = (requestClass === "batch" && room.shedsBatch) || overflow?.held === true;
  return refused ? Number(mayProbe) : slots + PREFETCH;
}
