import { type RouteMatch, RouteTable } from "../../access/route-table.ts";
import type { Dialect } from "../../contract/error-body.ts";
import type { Role } from "../../contract/roles.ts";
import type { AnswerKind } from "../../decide/http/answer-type.ts";

/** How a stream of this route shows that it ended well; `none`: a regular end is enough. */
export type StreamEnd = "finishReason" | "none";

/** Durable jobs. */
const JOB_HANDLERS = ["jobSubmit", "jobList", "jobGet", "jobResult", "jobEvents", "jobCancel"] as const;
export type JobHandler = (typeof JOB_HANDLERS)[number];
export const isJobHandler = (handler: Handler): handler is JobHandler =>
  JOB_HANDLERS.some((known) => known === handler);

/** Files of clients, and batches of the calls in them. */
const BATCH_HANDLERS = [
  "fileUpload",
  "fileList",
  "fileGet",
  "fileContent",
  "fileDelete",
  "batchCreate",
  "batchList",
  "batchGet",
  "batchCancel",
] as const;
export type BatchHandler = (typeof BATCH_HANDLERS)[number];
export const isBatchHandler = (handler: Handler): handler is BatchHandler =>
  BATCH_HANDLERS.some((known) => known === handler);

/** Work that may go to tiers, and its money. */
const OVERFLOW_HANDLERS = [
  "overflowShow",
  "overflowSpend",
  "overflowApprovals",
  "overflowApprove",
  "overflowRevoke",
  "overflowStop",
  "overflowGo",
  "overflowResume",
  "overflowSettle",
  "overflowAccept",
] as const;
export type OverflowHandler = (typeof OVERFLOW_HANDLERS)[number];
export const isOverflowHandler = (handler: Handler): handler is OverflowHandler =>
  OVERFLOW_HANDLERS.some((known) => known === handler);

/** What a control plane may ask for in the name of somebody whom it has let in: whatever its board shows and does, and no more. */
const ASKABLE: ReadonlySet<Handler> = new Set<Handler>([
  "inference",
  "upstream",
  "jobList",
  "jobGet",
  "jobCancel",
  "overflowShow",
  "overflowSpend",
  "overflowApprovals",
  "overflowApprove",
  "overflowRevoke",
  "overflowStop",
  "overflowGo",
  "overflowResume",
  "usage",
]);
export const mayBeAsked = (handler: Handler): boolean => ASKABLE.has(handler);

/** Azure's Document Intelligence. */
export type DocumentHandler = "documentSubmit" | "documentResult";

export type Handler =
  | "inference"
  | "upstream"
  | "models"
  | "model"
  | "healthz"
  | "readyz"
  | "health"
  | "metrics"
  | JobHandler
  | BatchHandler
  | OverflowHandler
  | "auditQuery"
  | "usage"
  | "auditChain"
  | "keysList"
  | "keysNew"
  | "keyRevoke"
  | "keyRotate"
  | "gpus"
  | "gpuClear"
  | DocumentHandler;

/**
 * One row drives dispatch and permission: what is not in the table does not exist, and a role that a row does not name is
 * refused. `access: "open"` needs no key. `"scrape"` needs none on loopback unless configured otherwise.
 */
export interface Route {
  /** Exact path, or a prefix when it ends in `*`. Also the route's name in audit and metrics. */
  readonly pattern: string;
  readonly methods: readonly string[] | "any";
  readonly handler: Handler;
  readonly access: "open" | "scrape" | readonly Role[];
  readonly dialect: Dialect;
  readonly streamEnd: StreamEnd;
  /** What an engine's good answer is here. */
  readonly answers: AnswerKind;
  /** A further header that a key may come in, in lower case. */
  readonly keyHeader?: string;
}

const CLIENTS: readonly Role[] = ["client", "operator", "admin"];
const OPERATORS: readonly Role[] = ["operator", "admin"];
const ADMINS: readonly Role[] = ["admin"];
/** Who may say that money is spent. */
const APPROVERS: readonly Role[] = ["approver", "admin"];
/** A job that waits for an approval is read by who may give it. */
const JOB_READERS: readonly Role[] = [...CLIENTS, "approver"];
/** Anybody who looks after the system may stop it. */
const STOPPERS: readonly Role[] = ["operator", "approver", "admin"];

/** Monitors ask so: it is answered as GET is, without the body. */
const READ = ["GET", "HEAD"];

const inference = (
  pattern: string,
  answers: AnswerKind,
  streamEnd: StreamEnd = "none",
  dialect: Dialect = "openai",
): Route => ({
  pattern,
  methods: ["POST"],
  handler: "inference",
  access: CLIENTS,
  dialect,
  streamEnd,
  answers,
});

const own = (pattern: string, methods: readonly string[], handler: Handler, access: Route["access"]): Route => ({
  pattern,
  methods,
  handler,
  access,
  dialect: "openai",
  streamEnd: "none",
  answers: "any",
});

/** Azure's Document Intelligence, whose clients send their key in a header of its own. */
const documents = (pattern: string, methods: readonly string[], handler: Handler): Route => ({
  pattern,
  methods,
  handler,
  access: CLIENTS,
  dialect: "azure",
  streamEnd: "none",
  answers: "any",
  keyHeader: "ocp-apim-subscription-key",
});

export const ROUTES: readonly Route[] = [
  inference("/v1/chat/completions", "json", "finishReason"),
  inference("/v1/completions", "json", "finishReason"),
  inference("/v1/responses", "json", "finishReason", "responses"),
  inference("/v1/messages", "json", "finishReason", "anthropic"),
  inference("/v1/messages/count_tokens", "json", "none", "anthropic"),
  inference("/v1/embeddings", "vectors"),
  inference("/v1/rerank", "json"),
  inference("/v1/score", "json"),
  inference("/v1/classify", "json"),
  inference("/v1/moderations", "json"),
  inference("/v1/tokenize", "json"),
  inference("/v1/detokenize", "json"),
  inference("/v1/audio/speech", "any"),
  inference("/v1/audio/transcriptions", "any"),
  inference("/v1/audio/translations", "any"),
  inference("/v1/images/generations", "any"),
  inference("/v1/images/edits", "any"),
  inference("/v1/images/variations", "any"),
  // What a vLLM engine loads and forgets is for its administrators; the row for any other path would let every client.
  { ...inference("/v1/load_lora_adapter", "any"), access: ADMINS },
  { ...inference("/v1/unload_lora_adapter", "any"), access: ADMINS },
  own("/v1/models", READ, "models", CLIENTS),
  own("/v1/models/*", READ, "model", CLIENTS),
  {
    pattern: "/upstreams/*",
    methods: "any",
    handler: "upstream",
    access: CLIENTS,
    dialect: "openai",
    streamEnd: "none",
    answers: "any",
  },
  own("/v1/jobs", ["POST"], "jobSubmit", CLIENTS),
  own("/v1/jobs", ["GET"], "jobList", CLIENTS),
  own("/v1/jobs/*/result", ["GET"], "jobResult", CLIENTS),
  own("/v1/jobs/*/events", ["GET"], "jobEvents", CLIENTS),
  own("/v1/jobs/*", ["GET"], "jobGet", JOB_READERS),
  own("/v1/jobs/*", ["DELETE"], "jobCancel", CLIENTS),
  own("/v1/files", ["POST"], "fileUpload", CLIENTS),
  own("/v1/files", ["GET"], "fileList", CLIENTS),
  own("/v1/files/*/content", ["GET"], "fileContent", CLIENTS),
  own("/v1/files/*", ["GET"], "fileGet", CLIENTS),
  own("/v1/files/*", ["DELETE"], "fileDelete", CLIENTS),
  own("/v1/batches", ["POST"], "batchCreate", CLIENTS),
  own("/v1/batches", ["GET"], "batchList", CLIENTS),
  own("/v1/batches/*/cancel", ["POST"], "batchCancel", CLIENTS),
  own("/v1/batches/*", ["GET"], "batchGet", CLIENTS),
  documents("/documentintelligence/documentModels/*:analyze", ["POST"], "documentSubmit"),
  documents("/documentintelligence/documentModels/*", ["GET", "DELETE"], "documentResult"),
  documents("/formrecognizer/documentModels/*:analyze", ["POST"], "documentSubmit"),
  // Only v4.0 has a request that deletes a result.
  documents("/formrecognizer/documentModels/*", ["GET"], "documentResult"),
  own("/healthz", READ, "healthz", "open"),
  own("/readyz", READ, "readyz", "open"),
  own("/health", READ, "health", OPERATORS),
  own("/metrics", READ, "metrics", "scrape"),
  own("/admin/audit", ["GET"], "auditQuery", OPERATORS),
  // A client is shown its own.
  own("/usage", ["GET"], "usage", CLIENTS),
  own("/admin/audit/chain", ["GET"], "auditChain", OPERATORS),
  own("/admin/keys", ["GET"], "keysList", ADMINS),
  own("/admin/keys", ["POST"], "keysNew", ADMINS),
  own("/admin/keys/*/rotate", ["POST"], "keyRotate", ADMINS),
  own("/admin/keys/*", ["DELETE"], "keyRevoke", ADMINS),
  own("/overflow/*", READ, "overflowShow", STOPPERS),
  own("/admin/overflow/spend", ["GET"], "overflowSpend", STOPPERS),
  own("/admin/overflow/approvals", ["GET"], "overflowApprovals", STOPPERS),
  own("/admin/overflow/approvals", ["POST"], "overflowApprove", APPROVERS),
  own("/admin/overflow/approvals/*", ["DELETE"], "overflowRevoke", APPROVERS),
  own("/admin/overflow/stop", ["POST"], "overflowStop", STOPPERS),
  own("/admin/overflow/go", ["POST"], "overflowGo", APPROVERS),
  own("/admin/overflow/tiers/*/resume", ["POST"], "overflowResume", APPROVERS),
  own("/admin/overflow/reservations/*", ["POST"], "overflowSettle", APPROVERS),
  own("/admin/overflow/accept", ["POST"], "overflowAccept", APPROVERS),
  own("/admin/gpus", ["GET"], "gpus", OPERATORS),
  own("/admin/gpus/clear", ["POST"], "gpuClear", OPERATORS),
  // Anything else under /v1 that has a model in its body: an engine may know more routes than this table.
  inference("/v1/*", "any"),
];

const TABLE = new RouteTable(ROUTES);

/** Below these whatever is asked for comes from a client of that service, also where the table has no such route. */
const FOREIGN: readonly (readonly [prefix: string, dialect: Dialect])[] = [
  ["/documentintelligence/", "azure"],
  ["/formrecognizer/", "azure"],
];

/** How a refusal is worded where no route was found. */
export const dialectOf = (path: string): Dialect =>
  FOREIGN.find(([prefix]) => path.startsWith(prefix))?.[1] ?? "openai";

export const matchRoute = (method: string, path: string): RouteMatch<Route> => TABLE.match(method, path);
