import { RouteTable, type TableRoute } from "../../access/route-table.ts";
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
  | "catalogConfirm";

/** A role that a row does not name is refused. `open` needs no key; `scrape` needs none on loopback unless configured otherwise. */
export interface ApiRoute extends TableRoute {
  readonly handler: Handler;
  readonly access: "open" | "scrape" | readonly Role[];
}

const OPERATORS: readonly Role[] = ["operator", "admin"];
const ADMINS: readonly Role[] = ["admin"];
/** Who may have the metrics where they are not open. */
export const SCRAPERS: readonly Role[] = ["operator", "admin", "metrics"];

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
  row("POST", CONTROL_ROUTES.enrolmentTokens, "tokenNew", ADMINS),
  row("GET", CONTROL_ROUTES.catalog, "catalog", OPERATORS),
  row("PUT", CONTROL_ROUTES.catalog, "catalogApply", ADMINS),
  row("POST", CONTROL_ROUTES.catalogDiff, "catalogDiff", OPERATORS),
  row("GET", CONTROL_ROUTES.catalogHistory, "catalogHistory", OPERATORS),
  row("GET", `${CONTROL_ROUTES.catalogRevisions}/*`, "catalogRevision", OPERATORS),
  row("POST", CONTROL_ROUTES.catalogRollback, "catalogRollback", ADMINS),
  row("POST", CONTROL_ROUTES.catalogConfirm, "catalogConfirm", ADMINS),
];

export const API_TABLE = new RouteTable(API_ROUTES);
