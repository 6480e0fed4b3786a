import type { SlotAnswer, SlotRequest } from "../../decide/coordination/slot-request.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { SlotStore, StoreFailure } from "../slot-store.ts";
import { SlotModel } from "./slot-model.ts";

/** The slots of upstreams shared by gateways inside one process: what simulations of many gateways meet in. */
export class LocalSlots implements SlotStore {
  readonly #clock: Clock;
  readonly #upstreams = new Map<string, SlotModel>();
  readonly #listeners = new Map<string, () => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  modelOf(upstream: string): SlotModel {
    const known = this.#upstreams.get(upstream);
    if (known !== undefined) return known;
    const made = new SlotModel();
    this.#upstreams.set(upstream, made);
    return made;
  }

  /** The store's own clock: not that of any gateway, as far as they can tell. */
  now(): number {
    return Math.floor(this.#clock.wall());
  }

  ask(upstream: string, request: SlotRequest): Promise<SlotAnswer | StoreFailure> {
    const tell = (gateway: string): void => this.#listeners.get(`${upstream} ${gateway}`)?.();
    return Promise.resolve(this.modelOf(upstream).ask(request, this.now(), tell));
  }

  onFree(upstream: string, gateway: string, listener: () => void): Disposable {
    const key = `${upstream} ${gateway}`;
    this.#listeners.set(key, listener);
    return { [Symbol.dispose]: () => this.#listeners.delete(key) };
  }
}
