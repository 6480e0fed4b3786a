import { BATCH, type Rank } from "../admission/ranks.ts";
import type { MonoMs } from "../../kernel/clock.ts";

/** A right to one slot of an upstream, over all gateways, on one endpoint. */
export interface Lease {
  readonly id: string;
  batch: boolean;
  endpoint: string;
  /** The endpoint on which the store still counts it, after its call went elsewhere. */
  countedAt: string | null;
  /** The store counts it, as far as we know. */
  known: boolean;
  /** It had lapsed, and there was no room for it any more. */
  lost: boolean;
  takenAt: MonoMs;
}

/** Whether a call of the rank on the endpoint may take it: one of batch is good for anyone, another for all but batch. */
export const isGoodFor = (lease: Lease, rank: Rank, endpoint: string): boolean =>
  lease.endpoint === endpoint && (rank !== BATCH || lease.batch);
