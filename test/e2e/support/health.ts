import type { RequestClass } from "../../../src/contract/request-class.ts";

/** What tests read of an endpoint in `/health`. */
export interface ShownEndpoint {
  readonly id: string;
  readonly public_id: string;
  readonly url: string;
  readonly replica: string | null;
  readonly in_flight: number;
  readonly lingering: number;
  readonly external: number;
  readonly draining: boolean;
  readonly health: string;
  readonly health_reason: string | null;
  readonly breaker: string;
  readonly breaker_reason: string | null;
  readonly ejected: boolean;
  readonly stalled: boolean;
  readonly models: readonly string[] | null;
  readonly reported: {
    readonly running: number | null;
    readonly waiting: number | null;
    readonly kv_cache_use: number | null;
    readonly memory_use: number | null;
    readonly missing: string | null;
  };
}

/** What tests read of how an upstream's slots are shared. */
interface ShownSharing {
  readonly state: "joining" | "shared" | "failed_open";
  readonly reason: string | null;
  readonly held: number;
  readonly elsewhere: number | null;
  readonly own_limit: number | null;
  readonly unreleased: number;
  readonly lost: number;
}

/** What tests read of an upstream in `/health`. */
export interface UpstreamHealth {
  readonly id: string;
  readonly available: boolean;
  readonly reason: string | null;
  readonly slots: number;
  readonly in_use: Readonly<Record<RequestClass, number>>;
  readonly lingering: number;
  /** Null under `coordination: local`. */
  readonly sharing: ShownSharing | null;
  readonly queue: { readonly waiting: Readonly<Record<RequestClass, number>>; readonly waiting_bytes: number };
  readonly endpoints: readonly ShownEndpoint[];
  readonly choice: { readonly scores: readonly { readonly id: string; readonly total: number }[] };
}

export interface HealthPage {
  readonly coordination: {
    readonly mode: "local" | "redis";
    readonly state: "local" | "shared" | "failed_open";
    readonly reason: string | null;
    readonly gateways: number | null;
    readonly unfit_for_jobs: string | null;
  };
  /** Null where no control plane is followed. */
  readonly control: {
    readonly state: "following" | "on_its_own" | "nothing_known";
    readonly epoch: number | null;
    readonly version: number | null;
    readonly age_ms: number | null;
    readonly links: readonly { readonly url: string; readonly standing: string; readonly why: string | null }[];
    readonly warnings: readonly string[];
  } | null;
  readonly upstreams: readonly UpstreamHealth[];
  readonly audit: { readonly recorded: number; readonly dropped: number; readonly pending: number };
  readonly draining: boolean;
  readonly jobs: { readonly store: string; readonly running: number };
  readonly config: { readonly ok: boolean; readonly message: string | null };
}

interface Asked {
  health(): Promise<HealthPage>;
}

/** The upstream of this id. */
export async function upstreamHealth(gateway: Asked, id = "u"): Promise<UpstreamHealth> {
  const found = (await gateway.health()).upstreams.find((upstream) => upstream.id === id);
  if (found === undefined) throw new Error(`no upstream ${id} on /health`);
  return found;
}

/** The only upstream of a gateway that has one. */
export async function onlyUpstream(gateway: Asked): Promise<UpstreamHealth> {
  const [upstream] = (await gateway.health()).upstreams;
  if (upstream === undefined) throw new Error("no upstream on /health");
  return upstream;
}

export async function waitingIn(gateway: Asked): Promise<number> {
  const { waiting } = (await upstreamHealth(gateway)).queue;
  return waiting.interactive + waiting.system + waiting.batch;
}
