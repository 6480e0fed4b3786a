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
  /** Jobs of this gateway that are with the upstream now, waiting or running, by class. */
  readonly held: Readonly<Record<RequestClass, number>>;
}

/** So many jobs of one class, from these lanes. */
export interface ClaimWish {
  readonly class: RequestClass;
  readonly lanes: readonly string[];
  readonly max: number;
}

/** Jobs that wait at an upstream for the next free slot, so that it does not stand idle for a round trip to the store. */
const PREFETCH = 1;

/**
 * What to ask the store for: as many jobs of each class as the upstream has slots for that class, and one more. The rest stays
 * in the store, where it costs no memory, can be had by another gateway and survives this one. Nothing for an upstream that is
 * away: its jobs wait, and no attempt is spent on finding out. Where batch is refused, one at a time is taken when it `mayProbe`: so
 * each is told (some would rather fail than wait), and a backlog is not turned over again and again.
 */
export function planClaims(rooms: readonly ClaimRoom[], holdMax: number, mayProbe: boolean): ClaimWish[] {
  let left = holdMax - rooms.reduce((sum, { held }) => sum + held.interactive + held.system + held.batch, 0);
  const wishes: ClaimWish[] = [];
  for (const requestClass of REQUEST_CLASSES) {
    for (const room of rooms) {
      if (room.away !== null || room.lanes.length === 0) continue;
      const slots = requestClass === "batch" ? Math.min(room.batchMax, room.slots) : room.slots;
      const refused = requestClass === "batch" && room.shedsBatch;
      const most = refused ? Number(mayProbe) : slots + PREFETCH;
      const max = Math.min(left, most - room.held[requestClass]);
      if (max <= 0) continue;
      left -= max;
      wishes.push({ class: requestClass, lanes: room.lanes, max });
    }
  }
  return wishes;
}
