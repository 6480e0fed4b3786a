import type { GatewayAnswer, ModelAnswer, NodeAnswer, ReplicaAnswer } from "./control-api.ts";
import type { StoredEvent } from "./control-event.ts";
import type { JobView } from "./job-view.ts";
import type { ApprovalView, OverflowStateView, SpendView } from "./overflow-view.ts";
import type { RequestClass } from "./request-class.ts";
import type { Role } from "./roles.ts";

/**
 * What the board in the browser and the control plane say to each other. Nothing here is validated at run time, so that the browser's
 * part stays small: what the server reads is checked by `board-schema.ts`.
 *
 * Everything is served by the control plane's listener. A page of another origin is refused (403, ORIGIN_REFUSED), as is a `Host` that
 * is none of the listener's (403, HOST_REFUSED). Errors are `{ error: { code, message, … } }` as everywhere: `BoardError`.
 *
 * Rules that both sides rely on:
 *   B1. The session's cookie stands for the key that it was made with, on every route of the control plane's API. The board does what
 *       `ctl` does by the same requests (`BOARD_ACTIONS`), so roles, errors and records are the same. No other header is needed; a
 *       body is JSON with `content-type: application/json`.
 *   B2. 401 on any route: the session has ended, whatever the reason. The page shows the sign-in.
 *   B3. Null is unknown, and never drawn as 0. Times are epoch milliseconds by the server's clock (`at` of each message is its "now");
 *       in members taken over from the API they are ISO 8601.
 *   B4. A version is told once. Over a lost connection the browser says the last id that it has taken, and gets the changes since, or a
 *       whole snapshot: both are right, and a snapshot replaces everything.
 *   B5. Whatever an engine, a node or a client named is text. It may hold anything, HTML and escapes included.
 */
export const BOARD_ROUTES = {
  /** The page, and below it what it is made of. */
  page: "/board/",
  /** GET: `Who`, or 401. POST `SignIn`: `Who` with the cookie. DELETE: 204, and the session has ended. */
  session: "/board/api/session",
  /** GET, `text/event-stream`: see `StreamMessage`. */
  stream: "/board/api/stream",
  /** GET `?upstream=ID`: `Plot`. */
  plot: "/board/api/plot",
} as const;

/** Either a key of an operator, admin or approver, or the secret of a one-time link (`/board/#once=SECRET`). */
export type SignIn = { readonly key: string } | { readonly once: string };

export interface Who {
  /** Id of the key; "anonymous" where no keys are asked for, and then there is nothing to sign in or out of. */
  readonly keyId: string;
  readonly role: Role;
  /** False: nobody has signed in, and nobody has to. */
  readonly signedIn: boolean;
  /** Epoch ms at which the session ends at the latest; null: never. */
  readonly expiresAt: number | null;
  /** It ends after so long without a request or open stream; null: never. */
  readonly idleMs: number | null;
  /** What this role may do. A button for anything else isn't there. */
  readonly may: readonly BoardAction[];
  readonly clusterId: string;
  readonly version: string;
}

/**
 * The actions, each as the request that `ctl` makes for it. `:name` stands for a path segment (encodeURIComponent). Bodies are JSON;
 * null: none.
 */
export const BOARD_ACTIONS = {
  /** `:node` is a name or id. 200 `{node, cordoned, draining}` */
  cordon: { method: "POST", path: "/v1/nodes/:node/cordon" },
  uncordon: { method: "POST", path: "/v1/nodes/:node/uncordon" },
  drain: { method: "POST", path: "/v1/nodes/:node/drain" },
  nodeRemove: { method: "DELETE", path: "/v1/nodes/:node" },
  /** Lifts a park and a back-off. 200 `{model, retried}` */
  retry: { method: "POST", path: "/v1/models/:model/retry" },
  /** Body `{max_surge?, max_unavailable?, min_available?, continue?}`. 200 `{replicas: string[]}` */
  rollout: { method: "POST", path: "/v1/models/:model/rollout" },
  /** What is outdated, of all models. */
  rolloutAll: { method: "POST", path: "/v1/rollout" },
  /** Body `{replicas}`. 200 `{model, replicas}` */
  scale: { method: "POST", path: "/v1/models/:model/scale" },
  /** Body `{in_place?}`. 200 `{replica, restart}` */
  restart: { method: "POST", path: "/v1/replicas/:replica/restart" },
  /** After an old copy of the store: what runs was looked at. */
  restoredConfirm: { method: "POST", path: "/v1/restored/confirm" },
  /** What waits as `cluster.catalog.held`. Body `{token}` */
  catalogConfirm: { method: "POST", path: "/v1/catalog/confirm" },
  weightsCollect: { method: "POST", path: "/v1/weights/collect" },
  /** 200 `JobView`. */
  jobCancel: { method: "DELETE", path: "/v1/jobs/:job" },
  /** Body `{job, tier, max_price, expires_s?}`. 201 `ApprovalView` */
  overflowApprove: { method: "POST", path: "/v1/overflow/approvals" },
  /** 200 `ApprovalView` */
  overflowRevoke: { method: "DELETE", path: "/v1/overflow/approvals/:tier/:job" },
  /** Nothing more is sent to any tier. Body `{why}` */
  overflowStop: { method: "POST", path: "/v1/overflow/stop" },
  overflowGo: { method: "POST", path: "/v1/overflow/go" },
  /** A tier that has halted goes on. */
  overflowResume: { method: "POST", path: "/v1/overflow/tiers/:tier/resume" },
  /** Body `Try`. 200, `application/x-ndjson`: one `TryEvent` a line, streamed. */
  try: { method: "POST", path: "/v1/try" },
} as const;
export type BoardAction = keyof typeof BOARD_ACTIONS;

/** What is fetched when it is looked at, with GET. */
export const BOARD_READS = {
  /** `PlacementAnswer`: why it is placed where it is, or what each node lacks. */
  placement: "/v1/models/:model/placement",
  /** `?lines=N&shard=N`: `{replica, shard, lines}`. The lines are an engine's. */
  logs: "/v1/replicas/:replica/logs",
  /** `?limit=1..1000&after_seq=N&kind=K`: `{events: StoredEvent[]}`, the newest first (with `after_seq` the oldest first). */
  events: "/v1/events",
  /** `?state=S&limit=1..100&cursor=C`: `{data: JobView[], next_cursor}`. Cursors are one gateway's: add `gateway=ID` from the answer's member `gateway`. */
  jobs: "/v1/jobs",
  /** `JobView`, with the whole plan. */
  job: "/v1/jobs/:job",
  /** Evaluates the signals now: `OverflowStateView`. */
  overflow: "/v1/overflow/upstreams/:upstream",
  /** `?from=YYYY-MM-DD&to=YYYY-MM-DD&group=…`, and `&format=csv`: as `GET /usage` of a gateway answers. */
  usage: "/v1/usage",
  /** `WeightsListAnswer` */
  weights: "/v1/weights",
  /** `{catalog: …}`: `{revision, at, author, origin, digest, text}` */
  catalog: "/v1/catalog",
} as const;

// The stream

/**
 * The stream's events. `event: snapshot` and `event: change` carry these as JSON in `data`, with `id: STREAM.VERSION` (opaque; resume
 * with `Last-Event-ID`, or `?since=` where the header can't be set). `event: end` says why the stream ends on purpose
 * (`{code, message}`; with UNAUTHORIZED nobody reconnects). Where nothing has changed, a `change` with nothing but `at` is sent all the
 * same, once a second and without an id: every message shows that the link lives. Without any for `BOARD_SILENT_MS` the page says how
 * old it is.
 */
export type StreamMessage =
  | ({ readonly event: "snapshot" } & Snapshot)
  | ({ readonly event: "change" } & Change)
  | { readonly event: "end"; readonly code: string; readonly message: string };

export const BOARD_TICK_MS = 1_000;
export const BOARD_SILENT_MS = 5_000;

export interface Snapshot {
  /** "Now" of the server. */
  readonly at: number;
  readonly top: TopLine;
  readonly cluster: ClusterState;
  /** By key; a table that the role may not see is empty. */
  readonly tables: { readonly [T in BoardTable]: Readonly<Record<string, BoardTables[T]>> };
}

/** Laid over what the browser has: the members that are there replace, the rest stays. */
export interface Change {
  readonly at: number;
  readonly top?: TopLine;
  readonly cluster?: ClusterState;
  /** Whole rows that are new or different, by key. */
  readonly set?: { readonly [T in BoardTable]?: Readonly<Record<string, BoardTables[T]>> };
  readonly gone?: { readonly [T in BoardTable]?: readonly string[] };
}

export interface BoardTables {
  /** By node id. */
  nodes: NodeRow;
  /** By node id. A node without a row has no cards that anybody knows of. */
  gpus: GpuRow;
  /** By model name. */
  models: ModelRow;
  /** By replica id. */
  replicas: ReplicaRow;
  /** By upstream id. */
  upstreams: UpstreamRow;
  /** By job id: those that run, wait or were held, and the newest that ended; a few hundred at most. */
  jobs: JobRow;
  /** By upstream id: those with overflow rules. */
  overflow: OverflowRow;
  /** By `TIER/JOB`. */
  approvals: ApprovalView;
  /** By gateway id. */
  gateways: GatewayRow;
  /** By number. The newest 200. */
  events: StoredEvent;
}
export type BoardTable = keyof BoardTables;
export const BOARD_TABLES = [
  "nodes",
  "gpus",
  "models",
  "replicas",
  "upstreams",
  "jobs",
  "overflow",
  "approvals",
  "gateways",
  "events",
] as const satisfies readonly BoardTable[];

/** Is it us, and what do I do: the worst thing first. */
export interface TopLine {
  readonly severity: "ok" | "notice" | "warning" | "critical";
  /** One sentence with its reason in words and numbers. */
  readonly sentence: string;
  /** Where something can be done or seen about it; null: nothing is to be done. */
  readonly action: BoardLink | null;
  /** What else is wrong, worst first, a few at most. */
  readonly others: readonly {
    readonly severity: TopLine["severity"];
    readonly sentence: string;
    readonly action: BoardLink | null;
  }[];
  /** How many more there are than `others` holds. */
  readonly more: number;
}

export interface BoardLink {
  readonly view: "fleet" | "models" | "queues" | "jobs" | "overflow" | "events" | "usage" | "try";
  /** A key of the view's table; null: the whole view. */
  readonly id: string | null;
  /** What the link says, such as "see what each node lacks". */
  readonly words: string;
  /** An action that is offered there; null: one looks. */
  readonly does: BoardAction | null;
}

export interface ClusterState {
  readonly version: string;
  readonly clusterId: string;
  readonly store: "sqlite" | "postgres";
  /** Of the control plane that serves this page. */
  readonly self: string;
  readonly role: "standby" | "leading" | "ended";
  readonly leader: { readonly holder: string; readonly epoch: number } | null;
  /** Since when the store has not answered; null: it does. */
  readonly storeSilentSince: number | null;
  readonly catalog: {
    readonly revision: number;
    readonly models: number;
    readonly held: { readonly token: string; readonly why: string } | null;
    readonly refused: string | null;
  };
  /** The store is an old copy: nothing is stopped until an operator confirms. */
  readonly restored: boolean;
  /** Cards by class; as `ctl status` has them. */
  readonly capacity: readonly {
    readonly class: string;
    readonly cards: number;
    readonly used: number;
    readonly kept: number;
    readonly free: number;
    readonly sick: number;
    readonly unknown: number;
  }[];
  /** Money over all tiers; null: no overflow is configured, or nobody has told. */
  readonly spend: SpendView | null;
  /** Whether any gateway has told of queues, jobs and overflow; null members elsewhere follow from it. */
  readonly gatewaysTell: boolean;
}

/** Free memory and disk are rounded to whole GiB, so that a row is sent when something has changed that can be seen. */
export interface NodeRow extends Omit<NodeAnswer, "silent_s"> {
  /** Since when it has not been heard; null: it is heard, or never was. */
  readonly silentSince: number | null;
  /** Requests that run on replicas there; null: not every gateway has told. */
  readonly inFlight: number | null;
}

export interface GpuRow {
  readonly node: string;
  readonly gpus: readonly GpuTile[];
}

export interface GpuTile {
  readonly uuid: string;
  readonly index: number;
  readonly name: string;
  readonly class: string;
  readonly health: "ok" | "sick" | "unknown";
  readonly why: string | null;
  readonly memoryMib: number | null;
  readonly usedMib: number | null;
  /** Of processes that are not ours. */
  readonly foreignMib: number | null;
  /** 0 to 1. */
  readonly utilization: number | null;
  readonly temperatureC: number | null;
  /** Who holds it. */
  readonly held: readonly { readonly replica: string; readonly model: string }[];
}

export type ModelRow = ModelAnswer;

export interface ReplicaRow extends Omit<ReplicaAnswer, "idle_s"> {
  /** Since when no request has come, at the latest; null: not known. */
  readonly idleSince: number | null;
  /** Null: not every gateway has told. */
  readonly inFlight: number | null;
}

export type ByClass = Readonly<Record<RequestClass, number>>;

/** Of the requests of the last minute; null: none came. */
export interface Percentiles {
  readonly p50: number | null;
  readonly p95: number | null;
  readonly count: number;
}

/** Over all gateways that tell: what can be added is added. */
export interface UpstreamRow {
  readonly id: string;
  readonly models: readonly string[];
  readonly engine: string;
  /** Of the catalog; null: of a gateway's file. */
  readonly catalogModel: string | null;
  /** Names of the gateways that have it. */
  readonly gateways: readonly string[];
  readonly slots: number;
  readonly batchMax: number;
  readonly inUse: ByClass;
  /** Slots of requests whose client has gone, on which the engine may still work. */
  readonly lingering: number;
  readonly waiting: ByClass;
  /** How long the one that waits longest has waited, in ms; null: nobody waits. */
  readonly oldestWaitMs: number | null;
  readonly queueMs: Percentiles;
  readonly firstByteMs: Percentiles;
  /** Requests per second that ended, over the last minute; null: not known yet. */
  readonly perSecond: number | null;
  /** Null: it takes requests. */
  readonly away: string | null;
  readonly endpoints: { readonly all: number; readonly well: number };
  /** Gateways share its slots through a store; null: each has its own. */
  readonly sharing: string | null;
}

/** Columns of the same length; `at` is epoch ms, ascending. A gap is a gap: nobody looked. */
export interface Plot {
  readonly upstream: string;
  readonly at: readonly number[];
  readonly inUse: Readonly<Record<RequestClass, readonly number[]>>;
  readonly waiting: Readonly<Record<RequestClass, readonly number[]>>;
  readonly slots: readonly number[];
  readonly batchMax: readonly number[];
}
/** The plot's last point is at most this old; newer ones are in the stream's rows. */
export const PLOT_SPAN_MS = 15 * 60_000;

/** Without metadata and callback, and with the last steps of the plan alone: the rest is in `BOARD_READS.job`. */
export interface JobRow extends Omit<JobView, "metadata" | "callback" | "object"> {
  /** Id of a gateway that knows it. */
  readonly gateway: string;
}

export interface OverflowRow extends OverflowStateView {
  readonly gateway: string;
}

export interface GatewayRow extends Omit<GatewayAnswer, "silent_s"> {
  /** Since when it has not reported; null: it does. */
  readonly silentSince: number | null;
  /** Whether it tells the board of queues, jobs and overflow; one of an older version doesn't. */
  readonly tells: boolean;
}

// Trying a model

export interface Try {
  /** A model's name, or `upstreams/ID` for an upstream of the file. */
  readonly model: string;
  readonly prompt: string;
  /** 1 to 4096; 256 when absent. */
  readonly maxTokens?: number;
  /** A client's key that it is to count for; absent: it counts for the key of the session. */
  readonly key?: string;
  /** Id of the gateway that is asked; absent: any. */
  readonly gateway?: string;
}

/** `head` comes first unless it fails before, `end` or `error` last. All text is the engine's. */
export type TryEvent =
  | {
      readonly kind: "head";
      readonly status: number;
      readonly queueMs: number | null;
      readonly endpoint: string | null;
      readonly requestId: string | null;
    }
  /** `firstByteMs` from the moment the gateway took the request, on the first piece of text alone. */
  | { readonly kind: "text"; readonly text: string; readonly firstByteMs?: number }
  /** What a reasoning model thinks. */
  | { readonly kind: "thinking"; readonly text: string; readonly firstByteMs?: number }
  | {
      readonly kind: "end";
      readonly totalMs: number;
      readonly promptTokens: number | null;
      readonly completionTokens: number | null;
      /** Behind the first byte. */
      readonly tokensPerSecond: number | null;
      readonly finish: string | null;
    }
  | { readonly kind: "error"; readonly code: string; readonly message: string };

export interface BoardError {
  readonly error: { readonly code: string; readonly message: string };
}
