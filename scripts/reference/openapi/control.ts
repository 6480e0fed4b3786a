import { z } from "zod";
import { catalogFile } from "../../../src/contract/catalog-schema.ts";
import { LOG_LINES_MAX } from "../../../src/contract/agent-link.ts";
import {
  appliedView,
  catalogView,
  collectRequest,
  collectionView,
  diffView,
  eventView,
  gatewayCredentialsView,
  gatewayCredentialView,
  gatewayView,
  gpuView,
  leaderView,
  logsView,
  modelView,
  nodeView,
  placementView,
  replicaView,
  restartView,
  revisionView,
  rolloutView,
  statusView,
  tokenView,
  weightsListView,
} from "../../../src/contract/control-api.ts";
import { confirmRequest, rollbackRequest } from "../../../src/control/api/catalog-answers.ts";
import { tokenRequest } from "../../../src/control/api/cluster-answers.ts";
import { enrolRequest } from "../../../src/control/api/gateway-answers.ts";
import { restartRequest, rolloutRequest, scaleRequest } from "../../../src/control/api/restart-answers.ts";
import {
  API_ROUTES,
  type ApiRoute,
  type BoardHandler,
  type Handler,
  isBoardHandler,
} from "../../../src/control/api/routes.ts";
import type { ErrorCode } from "../../../src/kernel/errors.ts";
import { type BodyDoc, type OperationDoc, ID_IN_PATH, pathText, type QueryDoc, renderDocument } from "./document.ts";
import { body, chainOperation, ok, text, whole } from "./parts.ts";
import { RELAY_OPERATIONS } from "./relay.ts";

const STORE: readonly ErrorCode[] = ["STORE_UNAVAILABLE"];
const ACT: readonly ErrorCode[] = ["NOT_LEADER", "STORE_UNAVAILABLE", "ACTION_REFUSED", "AUDIT_UNAVAILABLE"];
const NODE = { node: pathText("Id or name of a node.", ID_IN_PATH) };
const MODEL = { model: pathText("Name or alias of a model of the catalog.", "[A-Za-z0-9][A-Za-z0-9._:@+-]{0,100}") };
const REPLICA = { replica: pathText("Id of a replica.", ID_IN_PATH) };
const CATALOG_BODY: BodyDoc = {
  description: "The catalog, YAML or JSON.",
  required: true,
  content: { "application/yaml": catalogFile },
};
const IF_MATCH: QueryDoc = {
  name: "If-Match",
  description: "The ETag of the revision that the change is made for, or `*`.",
  schema: { type: "string", pattern: '^"[1-9][0-9]{0,8}"$' },
};
const WITH_ETAG = { ETag: "The revision, in quotes." };
const CHANGES: readonly ErrorCode[] = [
  "CATALOG_INVALID",
  "CATALOG_CHANGED",
  "CONFIRMATION_NEEDED",
  "STORE_UNAVAILABLE",
  "AUDIT_UNAVAILABLE",
];

const nodeAction = (summary: string): OperationDoc => ({
  summary,
  rest: NODE,
  answers: ok("Done.", z.object({ node: z.string(), cordoned: z.boolean(), draining: z.boolean() })),
  errors: ["NODE_UNKNOWN", ...ACT],
});

/** What is between the board and its own page is no part of the API. */
type Documented = Exclude<Handler, Exclude<BoardHandler, "boardLink">>;
const isDocumented = (handler: Handler): handler is Documented => handler === "boardLink" || !isBoardHandler(handler);

/** An entry for each handler: one that is missing is an error of types. */
const OPERATIONS: Readonly<Record<Documented, OperationDoc | ((route: ApiRoute) => OperationDoc)>> = {
  healthz: { summary: "It lives", answers: text("It does."), errors: [] },
  readyz: { summary: "It answers", answers: text("It does."), errors: STORE },
  metrics: {
    summary: "Metrics, as Prometheus text",
    answers: {
      200: {
        description: "The page.",
        schema: { type: "string" },
        types: ["text/plain", "application/openmetrics-text"],
      },
    },
    errors: [],
  },
  status: { summary: "The state of the cluster", answers: ok("The state.", statusView), errors: STORE },
  leader: { summary: "Who leads", answers: ok("Who leads.", leaderView), errors: STORE },
  nodes: { summary: "The nodes", answers: ok("All nodes.", z.object({ nodes: z.array(nodeView) })), errors: STORE },
  gpus: { summary: "The cards", answers: ok("All cards.", z.object({ gpus: z.array(gpuView) })), errors: STORE },
  models: {
    summary: "The models",
    answers: ok("All models.", z.object({ models: z.array(modelView) })),
    errors: STORE,
  },
  replicas: {
    summary: "The replicas",
    answers: ok("All replicas.", z.object({ replicas: z.array(replicaView) })),
    errors: STORE,
  },
  cordon: nodeAction("Takes nothing new to a node"),
  uncordon: nodeAction("Lets a node take replicas again"),
  drain: nodeAction("Has a node's replicas run elsewhere"),
  nodeRemove: {
    summary: "Shuts a node out and forgets it",
    rest: NODE,
    answers: ok("Done.", z.object({ node: z.string(), removed: z.literal(true) })),
    errors: ["NODE_UNKNOWN", ...ACT],
  },
  placement: {
    summary: "For each profile and node, what keeps a replica from it",
    rest: MODEL,
    answers: ok("The verdicts.", placementView),
    errors: ["MODEL_UNKNOWN", ...STORE],
  },
  retry: {
    summary: "Lifts a model's park and back-off",
    rest: MODEL,
    answers: ok("Done.", z.object({ model: z.string(), retried: z.literal(true) })),
    errors: ["MODEL_UNKNOWN", ...ACT],
  },
  rollout: (route) => ({
    summary: route.pattern.includes("*")
      ? "Restarts all replicas of a model"
      : "Restarts all replicas that are outdated",
    ...(route.pattern.includes("*") ? { rest: MODEL } : {}),
    body: body(rolloutRequest, false),
    answers: ok("Those that are to be restarted.", rolloutView),
    errors: ["MODEL_UNKNOWN", ...ACT],
  }),
  scale: {
    summary: "Asks for a number of replicas",
    rest: MODEL,
    body: body(scaleRequest),
    answers: ok("Asked for.", z.object({ model: z.string(), replicas: z.number() })),
    errors: ["MODEL_UNKNOWN", ...ACT],
  },
  restart: {
    summary: "Replaces a replica",
    rest: REPLICA,
    body: body(restartRequest, false),
    answers: ok("Asked for.", restartView),
    errors: ["REPLICA_UNKNOWN", ...ACT],
  },
  logs: {
    summary: "The last lines of an engine's log, from its node",
    rest: REPLICA,
    query: [
      whole("lines", "At most so many. Absent: 100.", 1, LOG_LINES_MAX),
      whole("shard", "Of a replica on several nodes. Absent: 0, its head.", 0, 1_000),
    ],
    answers: ok("The lines.", logsView),
    errors: ["SHARD_UNKNOWN", "NODE_SILENT", ...STORE],
  },
  weights: { summary: "What the nodes' caches hold", answers: ok("The caches.", weightsListView), errors: STORE },
  weightsCollect: {
    summary: "Has nodes remove what nobody wants, or what is damaged",
    body: body(collectRequest, false),
    answers: ok("What each node did.", collectionView),
    errors: ["WEIGHTS_HELD", "NOT_LEADER", "AUDIT_UNAVAILABLE", ...STORE],
  },
  gateways: {
    summary: "The gateways that are connected here",
    answers: ok("They.", z.object({ gateways: z.array(gatewayView) })),
    errors: STORE,
  },
  gatewayCredentials: {
    summary: "The gateways' credentials, by name",
    answers: ok("They.", gatewayCredentialsView),
    errors: STORE,
  },
  gatewayEnrol: {
    summary: "Makes a gateway's credential",
    body: body(enrolRequest),
    answers: { 201: { description: "The only answer that holds it.", schema: gatewayCredentialView } },
    errors: ["AUDIT_UNAVAILABLE", ...STORE],
  },
  gatewayRevoke: {
    summary: "Ends a gateway's credential",
    rest: { name: pathText("Name of the gateway.", ID_IN_PATH) },
    answers: ok("Done.", z.object({ name: z.string(), revoked: z.literal(true) })),
    errors: ["KEY_UNKNOWN", "AUDIT_UNAVAILABLE", ...STORE],
  },
  restoredConfirm: {
    summary: "Says that what runs was looked at after an old copy of the store was put back",
    answers: ok("Done.", z.object({ confirmed: z.literal(true) })),
    errors: ACT,
  },
  auditChain: chainOperation("The signed lines of what operators did"),
  events: {
    summary: "What happened",
    query: [
      whole("limit", "At most so many. Absent: 100.", 1, 1_000),
      whole("after_seq", "Only later ones.", 0, Number.MAX_SAFE_INTEGER),
      { name: "kind", description: "Only of this kind.", schema: { type: "string" } },
    ],
    answers: ok("The events.", z.object({ events: z.array(eventView) })),
    errors: STORE,
  },
  tokenNew: {
    summary: "Makes the one-time token that lets a node in",
    body: body(tokenRequest),
    answers: { 201: { description: "The only answer that holds it.", schema: tokenView } },
    errors: ["NODE_CONNECTED", "AUDIT_UNAVAILABLE", ...STORE],
  },
  catalog: {
    summary: "The catalog in force",
    answers: { 200: { description: "The newest revision.", schema: catalogView, headers: WITH_ETAG } },
    errors: ["REVISION_UNKNOWN", ...STORE],
  },
  catalogApply: {
    summary: "Puts a catalog in force",
    query: [{ name: "confirm", description: "The token of a change that was refused.", schema: { type: "string" } }],
    headers: [IF_MATCH],
    body: CATALOG_BODY,
    answers: { 200: { description: "In force.", schema: appliedView, headers: WITH_ETAG } },
    errors: CHANGES,
  },
  catalogDiff: {
    summary: "What a catalog would change",
    body: CATALOG_BODY,
    answers: ok("The difference.", diffView),
    errors: ["CATALOG_INVALID", ...STORE],
  },
  catalogHistory: {
    summary: "The revisions, newest first",
    query: [whole("limit", "At most so many. Absent: 20.", 1, 200)],
    answers: ok("They.", z.object({ revisions: z.array(revisionView) })),
    errors: STORE,
  },
  catalogRevision: {
    summary: "An earlier catalog",
    rest: { revision: pathText("Its number.", "[1-9][0-9]{0,8}") },
    answers: { 200: { description: "The revision.", schema: catalogView, headers: WITH_ETAG } },
    errors: ["REVISION_UNKNOWN", ...STORE],
  },
  catalogRollback: {
    summary: "Brings an earlier catalog back, as a new revision",
    headers: [IF_MATCH],
    body: body(rollbackRequest),
    answers: { 200: { description: "In force.", schema: appliedView, headers: WITH_ETAG } },
    errors: ["REVISION_UNKNOWN", ...CHANGES],
  },
  catalogConfirm: {
    summary: "Lets a change of the catalog's file through",
    body: body(confirmRequest),
    answers: { 200: { description: "In force.", schema: appliedView, headers: WITH_ETAG } },
    errors: ["ACTION_REFUSED", ...CHANGES],
  },
  boardLink: {
    summary: "Makes a link that signs one browser in to the board, once",
    answers: {
      201: { description: "Its path. The only answer that holds it.", schema: z.object({ path: z.string() }) },
    },
    errors: [],
  },
  ...RELAY_OPERATIONS,
};

export const renderControlApi = (version: string): string =>
  renderDocument<ApiRoute>({
    title: "Yardmaster control plane",
    description:
      "What `yardmaster ctl` asks. Null is what nobody measured. Agents and gateways dial `/agent/v1` and `/gateway/v1` by WebSocket, and the board speaks to its own page below `/board/`; neither is part of this document.",
    version,
    routes: API_ROUTES,
    operationOf: (route) => {
      const { handler } = route;
      if (!isDocumented(handler)) return null;
      const entry = OPERATIONS[handler];
      return typeof entry === "function" ? entry(route) : entry;
    },
    commonErrors: [
      "BAD_REQUEST",
      "METHOD_NOT_ALLOWED",
      "URI_TOO_LONG",
      "HEADERS_TOO_LARGE",
      "ROUTE_UNKNOWN",
      "RATE_LIMITED",
      "INTERNAL",
      "HOST_REFUSED",
      "ORIGIN_REFUSED",
    ],
    bodyErrors: ["BAD_JSON", "REQUEST_TIMEOUT", "BODY_TOO_LARGE"],
    keyHeader: "authorization",
  });
