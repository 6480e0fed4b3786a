import type { UpstreamSettings } from "../../contract/gateway-config.ts";
import { EndpointWatch, type WatchDeps } from "./endpoint-watch.ts";
import { LeftBehind } from "./left-behind.ts";
import { Upstream, type UpstreamDeps } from "./upstream.ts";

/**
 * All upstreams, found by id and by served name. A reload changes what must change and leaves the rest alone. One that was
 * removed is kept while calls of its run, so that it counts them if it comes back.
 */
export class UpstreamRegistry {
  readonly #deps: UpstreamDeps;
  readonly #byId = new Map<string, Upstream>();
  readonly #leaving = new Map<string, Upstream>();
  #byModel = new Map<string, Upstream>();

  constructor(deps: Omit<UpstreamDeps, "watch" | "left"> & WatchDeps) {
    this.#deps = {
      ...deps,
      left: new LeftBehind((key) => this.#roomAt(key)),
      watch: (upstream, endpoint) => new EndpointWatch(upstream, endpoint, deps),
    };
  }

  apply(list: readonly UpstreamSettings[]): void {
    const wanted = new Set(list.map((settings) => settings.id));
    for (const [id, upstream] of this.#byId) {
      if (wanted.has(id)) continue;
      upstream.remove();
      this.#byId.delete(id);
      this.#leaving.set(id, upstream);
      this.#deps.metrics.forgetUpstream(id);
    }
    for (const settings of list) this.#byId.get(settings.id)?.letGo(settings.endpoints);
    const byModel = new Map<string, Upstream>();
    for (const settings of list) {
      const known = this.#byId.get(settings.id) ?? this.#leaving.get(settings.id);
      const upstream = known ?? new Upstream(settings, this.#deps);
      // What came back from leaving has to take its endpoints back, though its settings are the same.
      if (known !== undefined && (known.settings !== settings || this.#leaving.has(settings.id)))
        known.applySettings(settings);
      this.#leaving.delete(settings.id);
      this.#byId.set(settings.id, upstream);
      for (const model of settings.models) byModel.set(model, upstream);
    }
    this.#byModel = byModel;
    for (const [id, upstream] of this.#leaving) {
      upstream.expel("removed");
      if (upstream.leaving.size > 0) continue;
      upstream.dispose();
      this.#leaving.delete(id);
    }
  }

  #roomAt(key: string): void {
    for (const upstream of this.#byId.values())
      if (upstream.endpoints.some((endpoint) => endpoint.key === key)) upstream.roomChanged();
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

  /** Those that left the configuration while something runs there, too: for pages that tell what is. */
  shown(): readonly Upstream[] {
    return [...this.#byId.values(), ...[...this.#leaving.values()].filter((upstream) => upstream.leaving.size > 0)];
  }

  models(): readonly (readonly [string, Upstream])[] {
    return [...this.#byModel.entries()];
  }

  /** Who waits is told that the gateway stops. */
  drain(): void {
    for (const upstream of this.#byId.values()) upstream.expel("draining");
  }

  dispose(): void {
    for (const upstream of [...this.#byId.values(), ...this.#leaving.values()]) upstream.dispose();
  }
}
