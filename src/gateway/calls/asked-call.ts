import type { RequestClass } from "../../contract/request-class.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { CallDeps } from "./call-deps.ts";
import type { RoutingWish } from "../upstreams/slot-seeker.ts";
import type { PreparedRequest } from "./prepared-request.ts";

/** What the queue knows of a call: who asks, for what, and until when. */
export abstract class AskedCall {
  readonly id: number;
  readonly class: RequestClass;
  readonly keyId: string;
  readonly weight: number;
  readonly bytes: number;
  readonly model: string;
  readonly deadline: MonoMs | undefined;
  readonly askedAt: MonoMs;
  readonly routing: RoutingWish;

  constructor(deps: CallDeps, { key }: RequestContext, request: PreparedRequest) {
    this.id = deps.nextCallId();
    this.class = request.class;
    this.keyId = key.id;
    this.weight = key.weight;
    this.bytes = request.bytes ?? 0;
    this.model = request.model;
    this.deadline = request.deadline;
    this.askedAt = deps.clock.mono();
    this.routing = request.routing;
  }
}
