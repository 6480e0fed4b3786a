import type { Endpoint, RunningCall } from "../upstreams/endpoint.ts";
import type { Upstream } from "../upstreams/upstream.ts";

/**
 * The slot that one call holds, and the endpoint it runs on.
 *
 * Invariants:
 *   H1. Whatever was taken is given back once: the endpoint by `leave` or `release`, the slot by `release`.
 *   H2. After an abort both come back when the connection is torn down and the engine had the time to see it.
 *   H3. An engine that does not stop for a client that is gone keeps both until it is seen free (lingering).
 */
export class SlotHold {
  readonly #upstream: Upstream;
  readonly #call: RunningCall;
  readonly #id: number;
  readonly #streamed: boolean;
  #endpoint: Endpoint | null = null;
  #held = false;

  constructor(upstream: Upstream, call: RunningCall, id: number, streamed: boolean) {
    this.#upstream = upstream;
    this.#call = call;
    this.#id = id;
    this.#streamed = streamed;
  }

  /** The pool has admitted the call. */
  take(): void {
    this.#held = true;
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
    const held = this.#held;
    this.#endpoint = null;
    this.#held = false;
    if (endpoint !== null && this.#worksOn(endpoint, aborted)) {
      this.#upstream.linger(held ? this.#id : null, endpoint, this.#call);
      return;
    }
    if (aborted && endpoint !== null) afterTheEngineSawIt(() => this.#giveBack(endpoint, held));
    else this.#giveBack(endpoint, held);
  }

  #giveBack(endpoint: Endpoint | null, held: boolean): void {
    if (endpoint !== null) this.#upstream.leaveEndpoint(endpoint, this.#call);
    if (held) this.#upstream.endSlot(this.#id);
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
