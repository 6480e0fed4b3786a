import { z } from "zod";
import { REPLICA_ENGINES } from "./catalog.ts";

/** The answers of the control plane's HTTP API. Null: nobody measured it. Sizes in MiB, times in seconds or ISO 8601. */

const unknown = z.number().nullable();
const words = z.string().nullable();
const count = z.record(z.string(), z.number());

export const CONTROL_ROUTES = {
  status: "/v1/status",
  leader: "/v1/leader",
  nodes: "/v1/nodes",
  gpus: "/v1/gpus",
  models: "/v1/models",
  replicas: "/v1/replicas",
  rollout: "/v1/rollout",
  weights: "/v1/weights",
  weightsCollect: "/v1/weights/collect",
  events: "/v1/events",
  auditChain: "/v1/audit/chain",
  enrolmentTokens: "/v1/enrolment-tokens",
  gateways: "/v1/gateways",
  restoredConfirm: "/v1/restored/confirm",
  catalog: "/v1/catalog",
  catalogDiff: "/v1/catalog/diff",
  catalogHistory: "/v1/catalog/history",
  catalogRevisions: "/v1/catalog/revisions",
  catalogRollback: "/v1/catalog/rollback",
  catalogConfirm: "/v1/catalog/confirm",
  queues: "/v1/queues",
  jobs: "/v1/jobs",
  overflow: "/v1/overflow",
  usage: "/v1/usage",
  try: "/v1/try",
  boardLinks: "/v1/board-links",
} as const;

export const leaderView = z.object({
  /** Of the control plane that answers. */
  self: z.string(),
  role: z.enum(["standby", "leading", "ended"]),
  /** The own one, while leading. */
  epoch: unknown,
  /** By the store's last word. */
  leader: z.object({ holder: z.string(), epoch: z.number() }).nullable(),
  /** For how long the store has not answered; null: it does. */
  store_silent_s: unknown,
});
export type LeaderAnswer = z.output<typeof leaderView>;

export const capacityView = z.object({
  class: z.string(),
  cards: z.number(),
  /** A sick card is neither used nor free. */
  used: z.number(),
  /** Held by no replica, and of which a model keeps room for the replacement of one that was stopped. */
  kept: z.number(),
  free: z.number(),
  sick: z.number(),
  /** Cards of nodes that can't be reached, or have not been seen. */
  unknown: z.number(),
});

export const fabricView = z.object({
  /** Null: of nodes that belong to none. */
  fabric: words,
  nodes: z.number(),
  /** Heard, open, with all cards well, and nothing on them. */
  free: z.number(),
  /** Not heard, or with cards that could not be read. */
  unknown: z.number(),
});
export type FabricAnswer = z.output<typeof fabricView>;

export const statusView = z.object({
  version: z.string(),
  cluster_id: z.string(),
  store: z.enum(["sqlite", "postgres"]),
  leader: leaderView,
  catalog: z.object({
    revision: z.number(),
    models: z.number(),
    /** A change of the watched file that waits for a confirmation. */
    held: z.object({ token: z.string(), why: z.string() }).nullable(),
    /** Why the watched file of the control plane that answers is not in force: mistakes, empty, missing, not saved yet. */
    refused: words,
  }),
  /** The store is an old copy: nothing is stopped until an operator confirms what runs. */
  restored: z.boolean(),
  nodes: count,
  gpus: z.array(capacityView),
  replicas: count,
  /** Models that want a replica and have no room, are parked or wait. */
  troubles: z.array(z.object({ model: z.string(), why: z.string() })),
  fabrics: z.array(fabricView),
  /** Models with replicas that are ready and that nobody has asked for, the longest first; not those of which that is not known. */
  not_asked: z.array(z.object({ model: z.string(), replicas: z.number(), idle_s: z.number(), since: z.string() })),
  /** Of which no word on their use is known, though they have a replica that is ready. */
  use_unknown: z.number(),
  /** Those that are connected to the control plane that answers. */
  gateways: z.object({ connected: z.number(), behind: z.number(), waiting: z.number(), in_flight: z.number() }),
  /** Of all stores of jobs that gateways told of; null: none did. */
  jobs: z.object({ queued: z.number(), running: z.number() }).nullable(),
});
export type StatusView = z.output<typeof statusView>;

export const nodeView = z.object({
  id: z.string(),
  name: z.string(),
  state: z.enum(["never_seen", "ready", "unreachable", "lost"]),
  /** Since it was last heard. */
  silent_s: unknown,
  cordoned: z.boolean(),
  /** What runs there is to run elsewhere. */
  draining: z.boolean(),
  agent_version: words,
  address: words,
  labels: z.record(z.string(), z.string()),
  fabric: words,
  cores: unknown,
  memory_mib: unknown,
  memory_free_mib: unknown,
  disk_free_mib: unknown,
  gpus: unknown,
  sick_gpus: unknown,
  /** Why its cards are not known. */
  gpu_discovery: words,
  replicas: z.number(),
});
export type NodeAnswer = z.output<typeof nodeView>;

export const gpuView = z.object({
  node: z.string(),
  uuid: z.string(),
  index: z.number(),
  name: z.string(),
  class: z.string(),
  health: z.enum(["ok", "sick", "unknown"]),
  health_why: words,
  memory_mib: unknown,
  used_mib: unknown,
  foreign_mib: unknown,
  /** 0 to 1. */
  utilization: unknown,
  temperature_c: unknown,
  replicas: z.array(z.string()),
});
export type GpuAnswer = z.output<typeof gpuView>;

export const modelView = z.object({
  name: z.string(),
  aliases: z.array(z.string()),
  priority: z.number(),
  min: z.number(),
  max: z.number(),
  /** How many should run now. */
  wanted: z.number(),
  ready: z.number(),
  replicas: z.number(),
  state: z.enum(["ready", "starting", "waiting", "parked", "stopped", "removed"]),
  why: words,
  /** What it may do that is a risk. */
  warnings: z.array(z.string()),
  failures_in_row: z.number(),
});
export type ModelAnswer = z.output<typeof modelView>;

export const replicaView = z.object({
  id: z.string(),
  model: z.string(),
  engine: z.enum(REPLICA_ENGINES),
  state: z.enum(["placing", "fetching", "starting", "ready", "draining", "stopping", "stopped", "failed"]),
  generation: z.number(),
  nodes: z.array(z.string()),
  gpus: z.array(z.string()),
  /** Its profile is no longer one of its model's. */
  outdated: z.boolean(),
  /** none, queued, replacing, in place, or "refused: " and why. */
  restart: z.string(),
  /** What a queued restart waits for. */
  restart_why: words,
  /** The replica that it replaces. */
  replaces: words,
  /** Without a request, at least; null: not every gateway knows. */
  idle_s: unknown,
  /** How far its weights have come, over all its nodes; null while nothing is fetched. */
  fetch: z.object({ bytes: z.number(), total_bytes: unknown, bytes_per_s: unknown, left_s: unknown }).nullable(),
  created: z.string(),
  ready: words,
  why: words,
});
export type ReplicaAnswer = z.output<typeof replicaView>;

/** What an action that was done answers: to be sure that it was the control plane that answered. */
export const nodeDoneView = z.object({ node: z.string(), cordoned: z.boolean(), draining: z.boolean() });
export const nodeRemovedView = z.object({ node: z.string(), removed: z.literal(true) });
export const retriedView = z.object({ model: z.string(), retried: z.literal(true) });
export const scaledView = z.object({ model: z.string(), replicas: z.number() });
export const confirmedView = z.object({ confirmed: z.literal(true) });
export const gatewayRevokedView = z.object({ name: z.string(), revoked: z.literal(true) });
export const restartView = z.object({ replica: z.string(), restart: z.string() });
export const rolloutView = z.object({ replicas: z.array(z.string()) });
/** What lies in the caches of nodes that are heard. */
export const weightsView = z.object({
  node: z.string(),
  /** The computed name, or for what is not the node's own the one that it has. */
  name: z.string(),
  bytes: unknown,
  /** "damaged": fetched by the node, changed since, and set aside by it. */
  kind: z.enum(["whole", "partial", "damaged", "foreign"]),
  in_use: z.boolean(),
  /** Models of this catalog, of the one before, and of replicas that run. */
  wanted_by: z.array(z.string()),
  /** `ctl weights gc --collect` would ask its node to remove it; of what is damaged `ctl weights gc --damaged --collect` would. */
  unwanted: z.boolean(),
});
export type WeightsAnswer = z.output<typeof weightsView>;

export const weightsListView = z.object({
  weights: z.array(weightsView),
  /** Why nothing may be removed now; null when it may. */
  held: words,
});
export type WeightsListAnswer = z.output<typeof weightsListView>;

/** Without a body: what nobody wants. */
export const collectRequest = z.strictObject({
  /** What is damaged, in place of what nobody wants. */
  damaged: z.boolean().default(false),
});

/** What was asked for, then what each node did. */
export const collectionView = z.object({
  asked: z.object({ nodes: z.number(), weights: z.number(), bytes: z.number() }),
  nodes: z.array(
    z.object({
      node: z.string(),
      /** Why the node did not answer; null when it did. What it removed then is in the list of weights. */
      silent: words,
      results: z.array(
        z.object({
          name: z.string(),
          outcome: z.enum(["removed", "kept", "refused", "failed"]),
          freed_bytes: z.number(),
          why: words,
        }),
      ),
    }),
  ),
});
export type CollectionAnswer = z.output<typeof collectionView>;

/** Gateways that are connected to the control plane that answers. */
export const gatewayView = z.object({
  id: z.string(),
  name: z.string(),
  version: z.string(),
  /** Since its last report. */
  silent_s: unknown,
  /** The version of the feed that it goes by; null: of none, or of another leader. */
  at: unknown,
  behind: z.boolean(),
  /** Requests that wait for a replica. */
  waiting: z.number(),
  in_flight: z.number(),
});
export type GatewayAnswer = z.output<typeof gatewayView>;

/** The only answer that ever holds a gateway's credential. */
export const gatewayCredentialView = z.object({ name: z.string(), credential: z.string() });
export const gatewayCredentialsView = z.object({
  credentials: z.array(z.object({ name: z.string(), author: z.string(), created: z.string() })),
});

export const logsView = z.object({ replica: z.string(), shard: z.number(), lines: z.array(z.string()) });

export const eventView = z.object({
  seq: z.number(),
  at: z.string(),
  kind: z.string(),
  model: words,
  replicaId: words,
  nodeId: words,
  why: z.string(),
  by: words,
});
export type EventAnswer = z.output<typeof eventView>;

export const placementView = z.object({
  model: z.string(),
  /** Whether one more replica would find room now. */
  fits: z.boolean(),
  /** What else keeps it from being started, and others from making room. */
  notes: z.array(z.string()),
  profiles: z.array(
    z.object({
      engine: z.enum(REPLICA_ENGINES),
      nodes: z.array(
        z.object({
          node: z.string(),
          fits: z.boolean(),
          /** The first thing that keeps the node out, and by how much; null where it fits. */
          why: words,
          /** The same for programs. */
          reason: z.record(z.string(), z.unknown()),
        }),
      ),
    }),
  ),
});
export type PlacementAnswer = z.output<typeof placementView>;

const revisionFields = {
  revision: z.number(),
  at: z.string(),
  author: z.string(),
  origin: z.string(),
  digest: z.string(),
};
export const revisionView = z.object(revisionFields);
export const catalogView = z.object({ ...revisionFields, text: z.string() });

export const diffView = z.object({
  base: z.number(),
  added: z.array(z.string()),
  removed: z.array(z.string()),
  changed: z.array(z.object({ model: z.string(), fields: z.array(z.string()) })),
  replicas: z.number(),
  lost: z.number(),
  emptied: z.array(z.string()),
  destructive: z.boolean(),
  /** Confirms this change and no other. */
  token: z.string(),
  warnings: z.array(z.string()),
});
export type DiffAnswer = z.output<typeof diffView>;

export const appliedView = z.object({ revision: z.number(), changed: z.boolean(), diff: diffView.nullable() });

/** The only answer that ever holds a token. */
export const tokenView = z.object({ node: z.string(), node_id: z.string(), token: z.string(), expires: z.string() });

/** What goes with a refusal, beside its code and message: mistakes of a catalog, or the change that waits for a confirmation. */
export const refusalDetails = z.object({
  problems: z
    .array(
      z.object({
        file: z.string(),
        line: z.number(),
        column: z.number(),
        path: z.string(),
        found: z.string(),
        message: z.string(),
        hint: z.string().optional(),
      }),
    )
    .optional(),
  diff: diffView.optional(),
  revision: z.number().optional(),
});
export type RefusalDetails = z.output<typeof refusalDetails>;
