import type { RequestClass } from "../../contract/request-class.ts";
import type { Admission, PoolEvent } from "../../decide/admission/admission-pool.ts";
import type { AffinityWish } from "../../decide/routing/affinity-table.ts";
import type { EndpointChoice } from "../../decide/routing/choose-endpoint.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { Endpoint } from "./endpoint.ts";

/** Why a request gets no slot. */
export type LeaveQueue =
  | Extract<Admission, { kind: "refused" }>["why"]
  | Extract<PoolEvent, { kind: "expired" }>["why"]
  | "displaced"
  /** Nothing of the model runs, and its start has come to nothing, or can't be. */
  | "notStarted"
  | "draining"
  | "removed";

/** What a request asks of the choice of its endpoint. */
export interface RoutingWish {
  /** An operator asks how the endpoint is chosen: the scores are then left in `choice`. */
  readonly explain: boolean;
  /** What it would like to find warm; null where the upstream does not look for it. */
  readonly affinity: AffinityWish | null;
}

/** A request that asks for a slot. Exactly one of the callbacks follows a queued arrival, unless it is withdrawn. */
export interface SlotSeeker {
  readonly id: number;
  readonly class: RequestClass;
  readonly keyId: string;
  readonly weight: number;
  readonly bytes: number;
  readonly model: string;
  readonly deadline: MonoMs | undefined;
  readonly askedAt: MonoMs;
  readonly routing: RoutingWish;
  /** Endpoints that it has been on in vain. */
  readonly tried: ReadonlySet<string>;
  choice: EndpointChoice | null;
  /** The endpoint booked for it; set by the upstream in the same step as the admission. */
  endpoint: Endpoint | null;
  onAdmitted(waitedMs: number): void;
  /** `detail`: further words for `startTimeout` and `notStarted`. */
  onExpired(why: LeaveQueue, waitedMs: number, retryAfterMs: number, detail?: string): void;
}
