import type { GpuHealthSettings } from "../../contract/gateway-config.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { GpuPolicy } from "../../decide/gpu/gpu-policy.ts";
import { isSaturated } from "../../decide/gpu/judge-upstream.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { GpuMetrics } from "../metrics/gpu-metrics.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import type { EndpointGpus } from "./endpoint-gpus.ts";
import { isAble } from "./gpu-guard.ts";

/** Where batch work is let in. `jobAgain`: a job that was refused for saturation before, which is on record already. */
export type ShedSite = "sync" | "document" | "job" | "jobAgain";

export interface Shed {
  readonly message: string;
  readonly retryAfterMs: number;
}

export interface GpuShedderDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: GpuMetrics;
  readonly gpus: EndpointGpus;
  readonly settings: () => GpuHealthSettings;
  readonly policy: () => GpuPolicy;
}

/** Refuses batch work while the cards under an upstream are saturated. People and system calls are never asked about. */
export class GpuShedder {
  readonly #deps: GpuShedderDeps;
  /** Upstreams of which it was said that work is, or would be, refused. */
  readonly #said = new Set<string>();

  constructor(deps: GpuShedderDeps) {
    this.#deps = deps;
  }

  /** Null: it may go on to the queue. What is refused is counted here. */
  ask(upstream: Upstream, requestClass: RequestClass, site: ShedSite): Shed | null {
    const { settings, metrics } = this.#deps;
    const { shedBatch, dryRun, pollMs } = settings();
    if (requestClass !== "batch" || !shedBatch) return null;
    const saturated = this.saturated(upstream);
    this.#say(upstream, saturated);
    if (!saturated) return null;
    const { id } = upstream.settings;
    if (dryRun) {
      metrics.wouldShed(id);
      return null;
    }
    if (site !== "jobAgain") metrics.shed(id, site);
    return { message: `the GPUs of ${id} are saturated, and batch work waits`, retryAfterMs: pollMs };
  }

  /** Whether batch jobs for it would only be refused. */
  shedsJobs(upstream: Upstream): boolean {
    const { shedBatch, dryRun } = this.#deps.settings();
    return shedBatch && !dryRun && this.saturated(upstream);
  }

  saturated(upstream: Upstream): boolean {
    const { clock, gpus, policy } = this.#deps;
    const now = clock.mono();
    const rules = policy();
    const able: boolean[][] = [];
    for (const endpoint of upstream.endpoints) {
      if (endpoint.guard === "fail" || !isAble(endpoint, now)) continue;
      const cards = gpus
        .of(upstream, endpoint)
        .flatMap((named) =>
          named.cards.length === 0 ? [false] : named.cards.map((card) => card.saturated(now, rules)),
        );
      // One that is not saturated is enough, and looking at the others would cost each batch request.
      if (!isSaturated([cards])) return false;
      able.push(cards);
    }
    return isSaturated(able);
  }

  #say(upstream: Upstream, saturated: boolean): void {
    const { id } = upstream.settings;
    if (saturated === this.#said.has(id)) return;
    if (saturated) this.#said.add(id);
    else this.#said.delete(id);
    const { dryRun } = this.#deps.settings();
    const state = saturated ? (dryRun ? "would_shed" : "shedding") : "over";
    this.#deps.log[saturated ? "warn" : "info"]("gpu.shed", { upstream: id, state });
  }
}
