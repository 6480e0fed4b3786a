import type { RequestClass } from "../../contract/request-class.ts";
import type { BodySpan, ScannedObject } from "../../decide/http/json-splice.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { RetryCause } from "../../decide/routing/retry-policy.ts";
import type { RoutingWish } from "../upstreams/slot-seeker.ts";

/** A request that was read and checked, on its way to an upstream. */
export interface PreparedRequest {
  readonly class: RequestClass;
  /** As the client named it; empty for upstreams of kind `http`. */
  readonly model: string;
  readonly method: string;
  /** Path and query as the engine will be asked, before the adapter's own mapping. */
  readonly path: string;
  readonly query: string;
  /** Emptied when the body can't be needed any more: the call may go on for an hour. */
  chunks: readonly Buffer[];
  /** Undefined: no body at all. */
  readonly bytes: number | undefined;
  readonly wantsStream: boolean;
  /** What the scan of a JSON body found, for the few members that the gateway may have to change. */
  readonly scan: ScannedObject | null;
  /** Where the model stands in a form. */
  readonly modelAt: BodySpan | null;
  /** For an engine that answers in another form than the client speaks; null when the answer is not what it should be. */
  readonly rewriteAnswer: ((body: Buffer) => Buffer | null) | null;
  /** Asking twice does no harm: the inference calls, and safe methods. */
  readonly idempotent: boolean;
  /**
   * Of a job, which makes its tries itself, or paid for each time: see `RetryView`. It takes a fresh connection, since one that broke ends it.
   */
  readonly startsOnce: boolean;
  /** The answer may be given to others, who need not know any encoding. */
  readonly plainAnswer: boolean;
  readonly deadline: MonoMs | undefined;
  readonly wantsQueueEvents: boolean;
  readonly routing: RoutingWish;
  /**
   * For a call that failed before its client saw anything. Not null: somebody else goes on with the request, and is told when the call has
   * let go of it, which ends without an answer and without a record of its own.
   */
  goOn: ((cause: RetryCause) => (() => void) | null) | null;
  /**
   * For a call whose upstream leaves the configuration while it waits. Not null: another upstream serves its model now, and the request
   * goes on there, as after `goOn`.
   */
  moveOn: (() => (() => void) | null) | null;
  /** Given back as soon as the body can't be needed any more. */
  readonly memory: { free(unused: boolean): void };
}

/** Answers of an `http` upstream that another endpoint may do better. */
const RETRIED_STATUS: ReadonlySet<number> = new Set([429, 502, 503, 504]);

export const mayHoldStatus = ({ idempotent }: PreparedRequest, status: number): boolean =>
  idempotent && RETRIED_STATUS.has(status);

/** Who goes on with a request that failed; null: nobody, or its client has seen something already. */
export const takerOf = ({ goOn }: PreparedRequest, isSeen: boolean, cause: RetryCause): (() => void) | null =>
  isSeen || goOn === null ? null : goOn(cause);

/** Who goes on with a request whose upstream was removed; null: nobody, or its client has been told its place here. */
export const moverOf = ({ moveOn }: PreparedRequest, isSeen: boolean): (() => void) | null =>
  isSeen || moveOn === null ? null : moveOn();

/** The body can't be needed any more. Whoever could go on with the request holds it too, and the call may go on for an hour. */
export function letGoOfBody(request: PreparedRequest, unused: boolean): void {
  request.goOn = null;
  request.moveOn = null;
  request.memory.free(unused);
  request.chunks = [];
}
