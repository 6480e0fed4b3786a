import type { SlotAnswer, SlotRequest } from "../decide/coordination/slot-request.ts";

/** A step's outcome when there is no answer to it. */
export type StoreFailure =
  /** The store said no, or it was never sent: nothing was granted, and what was to be given back was not. */
  | { readonly kind: "failed"; readonly reason: string }
  /** It may be done, or be done later. */
  | { readonly kind: "unknown"; readonly reason: string };

/** Where gateways meet to share the slots of upstreams. `redis/` for production; `local/` is its model, for simulations. */
export interface SlotStore {
  /** Settles within the store's own deadline; never rejects. `evenIfAway`: nobody waits for it, so it is tried while the store is given up on. */
  ask(upstream: string, request: SlotRequest, evenIfAway: boolean): Promise<SlotAnswer | StoreFailure>;
  /** Calls back when slots may have come free for this gateway, until disposed. Messages may be lost. */
  onFree(upstream: string, gateway: string, listener: () => void): Disposable;
}
