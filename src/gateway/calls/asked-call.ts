import { KIND_TRAITS } from "../../contract/kind-traits.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { RequestContext } from "../http/request-context.ts";
import type { CallDeps } from "./call-deps.ts";
import type { RoutingWish } from "../upstreams/slot-seeker.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { PreparedRequest } from "./prepared-request.ts";
import { injectsUsage } from "./upstream-request.ts";

/** What the queue and the tries know of a call: who asks, for what, until when, and what an answer is. */
export abstract class AskedCall {
  readonly id: number;
  readonly class: RequestClass;
  readonly keyId: string;
  readonly weight: number;
  readonly bytes: number;
  readonly model: string;
  readonly deadline: MonoMs | undefined;
  /** When it began to wait. */
  askedAt: MonoMs;
  readonly routing: RoutingWish;
  readonly streamEnd: RequestContext["route"]["streamEnd"];
  readonly answers: RequestContext["route"]["answers"];
  readonly mode: "engine" | "http";
  readonly removeUsageEvent: boolean;
  readonly showsProgress: boolean;
  readonly rewritesAnswer: boolean;

  constructor(deps: CallDeps, { key, route }: RequestContext, upstream: Upstream, request: PreparedRequest) {
    this.id = deps.nextCallId();
    this.class = request.class;
    this.keyId = key.id;
    this.weight = key.weight;
    this.bytes = request.bytes ?? 0;
    this.model = request.model;
    this.deadline = request.deadline;
    this.askedAt = deps.clock.mono();
    this.routing = request.routing;
    ({ streamEnd: this.streamEnd, answers: this.answers } = route);
    this.mode = KIND_TRAITS[upstream.settings.kind].anyAnswer ? "http" : "engine";
    this.removeUsageEvent = injectsUsage(upstream, request);
    this.showsProgress = request.wantsStream;
    this.rewritesAnswer = request.rewriteAnswer !== null;
  }
}
