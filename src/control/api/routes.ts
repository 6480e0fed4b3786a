import { RouteTable, type TableRoute } from "../../access/route-table.ts";
import { BOARD_ACTIONS, BOARD_ROUTES, type BoardAction } from "../../contract/board.ts";
import { CONTROL_ROUTES } from "../../contract/control-api.ts";
import type { Role } from "../../contract/roles.ts";

export type Handler =
  | "healthz"
  | "readyz"
  | "metrics"
  | "status"
  | "leader"
  | "nodes"
  | "cordon"
  | "uncordon"
  | "drain"
  | "nodeRemove"
  | "gpus"
  | "models"
  | "placement"
  | "retry"
  | "replicas"
  | "restart"
  | "rollout"
  | "scale"
  | "weights"
  | "weightsCollect"
  | "events"
  | "auditChain"
  | "tokenNew"
  | "logs"
  | "gateways"
  | "gatewayCredentials"
  | "gatewayEnrol"
  | "gatewayRevoke"
  | "restoredConfirm"
  | "catalog"
  | "catalogApply"
  | "catalogDiff"
  | "catalogHistory"
  | "catalogRevision"
  | "catalogRollback"
  | "catalogConfirm"
  | RelayHandler
  | BoardHandler;

/** What gateways answer. */
const RELAY_HANDLERS = [
  "queues",
  "jobs",
  "job",
  "jobCancel",
  "overflowShow",
  "overflowApprove",
  "overflowRevoke",
  "overflowStop",
  "overflowGo",
  "overflowResume",
  "usage",
  "try",
] as const;
export type RelayHandler = (typeof RELAY_HANDLERS)[number];
export const isRelayHandler = (handler: Handler): handler is RelayHandler =>
  RELAY_HANDLERS.some((known) => known === handler);

/** What only a board has a use for. */
const BOARD_HANDLERS = [
  "boardHome",
  "boardFile",
  "boardWho",
  "boardSignIn",
  "boardSignOut",
  "boardStream",
  "boardPlot",
  "boardLink",
] as const;
export type BoardHandler = (typeof BOARD_HANDLERS)[number];
export const isBoardHandler = (handler: Handler): handler is BoardHandler =>
  BOARD_HANDLERS.some((known) => known === handler);

/**
 * A role that a row does not name is refused. `open` needs no key; `scrape` needs none on loopback unless configured otherwise; `page`
 * needs none either, and is given out under the board's own names alone.
 */
export interface ApiRoute extends TableRoute {
  readonly handler: Handler;
  readonly access: "open" | "scrape" | "page" | readonly Role[];
}

const OPERATORS: readonly Role[] = ["operator", "admin"];
const ADMINS: readonly Role[] = ["admin"];
/** Who may say that money is spent. */
const APPROVERS: readonly Role[] = ["approver", "admin"];
/** Anybody who looks after the system may stop what costs money, and see it. */
const STOPPERS: readonly Role[] = ["operator", "approver", "admin"];
/** Who may sign in to the board. */
export const BOARD_ROLES = STOPPERS;
/** Who may have the metrics where they are not open. */
export const SCRAPERS: readonly Role[] = ["operator", "admin", "metrics"];

const PAGE = ["GET", "HEAD"];

const row = (method: string, pattern: string, handler: Handler, access: ApiRoute["access"]): ApiRoute => ({
  pattern,
  methods: [method],
  handler,
  access,
});

export const API_ROUTES: readonly ApiRoute[] = [
  row("GET", "/healthz", "healthz", "open"),
  row("GET", "/readyz", "readyz", "open"),
  row("GET", "/metrics", "metrics", "scrape"),
  row("GET", CONTROL_ROUTES.status, "status", OPERATORS),
  row("GET", CONTROL_ROUTES.leader, "leader", OPERATORS),
  row("GET", CONTROL_ROUTES.nodes, "nodes", OPERATORS),
  row("POST", `${CONTROL_ROUTES.nodes}/*/cordon`, "cordon", OPERATORS),
  row("POST", `${CONTROL_ROUTES.nodes}/*/uncordon`, "uncordon", OPERATORS),
  row("POST", `${CONTROL_ROUTES.nodes}/*/drain`, "drain", OPERATORS),
  row("DELETE", `${CONTROL_ROUTES.nodes}/*`, "nodeRemove", ADMINS),
  row("GET", CONTROL_ROUTES.gpus, "gpus", OPERATORS),
  row("GET", CONTROL_ROUTES.models, "models", OPERATORS),
  row("GET", `${CONTROL_ROUTES.models}/*/placement`, "placement", OPERATORS),
  row("POST", `${CONTROL_ROUTES.models}/*/retry`, "retry", OPERATORS),
  row("POST", `${CONTROL_ROUTES.models}/*/rollout`, "rollout", OPERATORS),
  row("POST", `${CONTROL_ROUTES.models}/*/scale`, "scale", OPERATORS),
  row("POST", CONTROL_ROUTES.rollout, "rollout", OPERATORS),
  row("GET", CONTROL_ROUTES.replicas, "replicas", OPERATORS),
  row("POST", `${CONTROL_ROUTES.replicas}/*/restart`, "restart", OPERATORS),
  row("GET", `${CONTROL_ROUTES.replicas}/*/logs`, "logs", OPERATORS),
  row("GET", CONTROL_ROUTES.weights, "weights", OPERATORS),
  row("POST", CONTROL_ROUTES.weightsCollect, "weightsCollect", ADMINS),
  row("GET", CONTROL_ROUTES.gateways, "gateways", OPERATORS),
  row("GET", `${CONTROL_ROUTES.gateways}/credentials`, "gatewayCredentials", OPERATORS),
  row("POST", `${CONTROL_ROUTES.gateways}/credentials`, "gatewayEnrol", ADMINS),
  row("DELETE", `${CONTROL_ROUTES.gateways}/credentials/*`, "gatewayRevoke", ADMINS),
  row("POST", CONTROL_ROUTES.restoredConfirm, "restoredConfirm", ADMINS),
  row("GET", CONTROL_ROUTES.events, "events", OPERATORS),
  row("GET", CONTROL_ROUTES.auditChain, "auditChain", OPERATORS),
  row("POST", CONTROL_ROUTES.enrolmentTokens, "tokenNew", ADMINS),
  row("GET", CONTROL_ROUTES.catalog, "catalog", OPERATORS),
  row("PUT", CONTROL_ROUTES.catalog, "catalogApply", ADMINS),
  row("POST", CONTROL_ROUTES.catalogDiff, "catalogDiff", OPERATORS),
  row("GET", CONTROL_ROUTES.catalogHistory, "catalogHistory", OPERATORS),
  row("GET", `${CONTROL_ROUTES.catalogRevisions}/*`, "catalogRevision", OPERATORS),
  row("POST", CONTROL_ROUTES.catalogRollback, "catalogRollback", ADMINS),
  row("POST", CONTROL_ROUTES.catalogConfirm, "catalogConfirm", ADMINS),
  row("GET", CONTROL_ROUTES.queues, "queues", OPERATORS),
  row("GET", CONTROL_ROUTES.jobs, "jobs", OPERATORS),
  row("GET", `${CONTROL_ROUTES.jobs}/*`, "job", STOPPERS),
  row("DELETE", `${CONTROL_ROUTES.jobs}/*`, "jobCancel", OPERATORS),
  row("GET", `${CONTROL_ROUTES.overflow}/upstreams/*`, "overflowShow", STOPPERS),
  row("POST", `${CONTROL_ROUTES.overflow}/approvals`, "overflowApprove", APPROVERS),
  row("DELETE", `${CONTROL_ROUTES.overflow}/approvals/*`, "overflowRevoke", APPROVERS),
  row("POST", `${CONTROL_ROUTES.overflow}/stop`, "overflowStop", STOPPERS),
  row("POST", `${CONTROL_ROUTES.overflow}/go`, "overflowGo", APPROVERS),
  row("POST", `${CONTROL_ROUTES.overflow}/tiers/*/resume`, "overflowResume", APPROVERS),
  row("GET", CONTROL_ROUTES.usage, "usage", OPERATORS),
  row("POST", CONTROL_ROUTES.try, "try", OPERATORS),
  row("POST", CONTROL_ROUTES.boardLinks, "boardLink", BOARD_ROLES),
  { ...row("GET", "/", "boardHome", "page"), methods: PAGE },
  { ...row("GET", "/board", "boardHome", "page"), methods: PAGE },
  row("GET", BOARD_ROUTES.session, "boardWho", "page"),
  row("POST", BOARD_ROUTES.session, "boardSignIn", "page"),
  row("DELETE", BOARD_ROUTES.session, "boardSignOut", "page"),
  row("GET", BOARD_ROUTES.stream, "boardStream", BOARD_ROLES),
  row("GET", BOARD_ROUTES.plot, "boardPlot", OPERATORS),
  { ...row("GET", BOARD_ROUTES.page, "boardFile", "page"), methods: PAGE },
  { ...row("GET", `${BOARD_ROUTES.page}*`, "boardFile", "page"), methods: PAGE },
];

export const API_TABLE = new RouteTable(API_ROUTES);

/** What a role may do of all that the board offers. */
export const boardActionsOf = (role: Role | null): BoardAction[] =>
  (Object.keys(BOARD_ACTIONS) as BoardAction[]).filter((action) => {
    const { method, path } = BOARD_ACTIONS[action];
    const match = API_TABLE.match(method, path.replaceAll(/:[a-z]+/g, "x"));
    return (
      match.kind === "route" &&
      Array.isArray(match.route.access) &&
      (role === null || match.route.access.includes(role))
    );
  });
