import { servedName } from "../../decide/usage/count-call.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { Endpoint, RunningCall } from "../upstreams/endpoint.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { CallDeps } from "./call-deps.ts";

/** Whose slot it is. */
export interface SlotHolder extends RunningCall {
  readonly id: number;
  readonly keyId: string;
  readonly model: string;
}

/**
 * The slot that one call holds, and the endpoint it runs on.
 *
 * Invariants:
 *   H1. Whatever was taken is given back once: the endpoint by `leave` or `release`, the slot by `release`.
 *   H2. After an abort both come back when the connection is torn down and the engine had the time to see it.
 *   H3. An engine that does not stop for a client that is gone keeps both until it is seen free (lingering).
 *   H4. The time from `take` to the slot's end is counted once, as what its key has used; none of an upstream outside the house, where no
 *       GPU of ours was held.
 */
export class SlotHold {
  readonly #upstream: Upstream;
  readonly #call: SlotHolder;
  readonly #streamed: boolean;
  readonly #deps: Pick<CallDeps, "clock" | "usage">;
  #endpoint: Endpoint | null = null;
  #heldSince: MonoMs | null = null;

  constructor(upstream: Upstream, call: SlotHolder, streamed: boolean, deps: Pick<CallDeps, "clock" | "usage">) {
    this.#upstream = upstream;
    this.#call = call;
    this.#streamed = streamed;
    this.#deps = deps;
  }

  /** The pool has admitted the call. */
  take(): void {
    this.#heldSince = this.#deps.clock.mono();
  }

  enter(endpoint: Endpoint): void {
    this.#endpoint = endpoint;
    this.#upstream.enterEndpoint(endpoint, this.#call);
  }

  /** The try is over and the call goes on with its slot. `aborted`: the engine was not done. */
  leave(aborted: boolean): void {
    const endpoint = this.#endpoint;
    if (endpoint === null) return;
    this.#endpoint = null;
    if (this.#worksOn(endpoint, aborted)) this.#upstream.linger(null, endpoint, this.#call);
    else this.#upstream.leaveEndpoint(endpoint, this.#call);
  }

  /** The call is over. */
  release(aborted: boolean): void {
    const endpoint = this.#endpoint;
    const since = this.#heldSince;
    this.#endpoint = null;
    this.#heldSince = null;
    if (endpoint !== null && this.#worksOn(endpoint, aborted)) {
      const { id } = this.#call;
      const freed = since === null ? undefined : (): void => this.#count(since);
      this.#upstream.linger(since === null ? null : id, endpoint, this.#call, freed);
      return;
    }
    if (aborted && endpoint !== null) afterTheEngineSawIt(() => this.#giveBack(endpoint, since));
    else this.#giveBack(endpoint, since);
  }

  #giveBack(endpoint: Endpoint | null, since: MonoMs | null): void {
    if (endpoint !== null) this.#upstream.leaveEndpoint(endpoint, this.#call);
    if (since === null) return;
    this.#upstream.endSlot(this.#call.id);
    this.#count(since);
  }

  #count(since: MonoMs): void {
    const { keyId, model } = this.#call;
    const { id, external } = this.#upstream.settings;
    const { usage, clock } = this.#deps;
    if (!external) usage.slotHeld(keyId, servedName(model, id), clock.mono() - since);
  }

  #worksOn({ adapter: { stopsAbandoned: stops } }: Endpoint, aborted: boolean): boolean {
    return aborted && !(this.#streamed ? stops.streamed : stops.nonStreamed);
  }
}

/**
 * The connection's end is on its way to the engine, and the next request may take another connection and come with it: an engine
 * with one slot would see two requests at once. Two turns of the event loop are enough for an engine that is as fast as we are.
 */
function afterTheEngineSawIt(giveBack: () => void): void {
  setImmediate(() => setImmediate(giveBack));
}
