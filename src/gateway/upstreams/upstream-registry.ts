import type { UpstreamSettings } from "../../contract/gateway-config.ts";
import { EndpointWatch, type WatchDeps } from "./endpoint-watch.ts";
import { Upstream, type UpstreamDeps } from "./upstream.ts";

/** All upstreams, found by id and by served name. A reload changes what must change and leaves the rest alone. */
export class UpstreamRegistry {
  readonly #deps: UpstreamDeps;
  readonly #byId = new Map<string, Upstream>();
  #byModel = new Map<string, Upstream>();

  constructor(deps: Omit<UpstreamDeps, "watch"> & WatchDeps) {
    this.#deps = { ...deps, watch: (upstream, endpoint) => new EndpointWatch(upstream, endpoint, deps) };
  }

  apply(list: readonly UpstreamSettings[]): void {
    const wanted = new Set(list.map((settings) => settings.id));
    for (const [id, upstream] of this.#byId) {
      if (wanted.has(id)) continue;
      upstream.remove();
      this.#byId.delete(id);
      this.#deps.metrics.forgetUpstream(id);
    }
    const byModel = new Map<string, Upstream>();
    for (const settings of list) {
      let upstream = this.#byId.get(settings.id);
      if (upstream === undefined) this.#byId.set(settings.id, (upstream = new Upstream(settings, this.#deps)));
      else upstream.applySettings(settings);
      for (const model of settings.models) byModel.set(model, upstream);
    }
    this.#byModel = byModel;
  }

  byModel(name: string): Upstream | undefined {
    return this.#byModel.get(name);
  }

  byId(id: string): Upstream | undefined {
    return this.#byId.get(id);
  }

  all(): readonly Upstream[] {
    return [...this.#byId.values()];
  }

  models(): readonly (readonly [string, Upstream])[] {
    return [...this.#byModel.entries()];
  }

  /** Who waits is told that the gateway stops. */
  drain(): void {
    for (const upstream of this.#byId.values()) upstream.drain();
  }

  dispose(): void {
    for (const upstream of this.#byId.values()) upstream.dispose();
  }
}
