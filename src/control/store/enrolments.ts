import { randomBytes } from "node:crypto";
import { controlEvent } from "../../contract/control-event.ts";
import { hashKey } from "../../contract/key-hash.ts";
import { asEpoch, isoTime } from "../../kernel/clock.ts";
import { randomKey } from "../../kernel/ids.ts";
import { Secret } from "../../kernel/secret.ts";
import { checksum } from "./checksum.ts";
import { eventSteps } from "./events.ts";
import { type SqlDriver, type SqlRow, type Step } from "./sql-driver.ts";

/**
 * How nodes get in.
 *
 * Invariants:
 *   E1. Only hashes are kept. A token or credential is shown once, to whom it is made for.
 *   E2. A token works once, for one node name, for 15 minutes by the database's clock. A second use is refused and told.
 *   E3. A node has one credential. When it is renewed, the old one ends with the first use of the new one: an agent that never got
 *       the new one is not locked out.
 */
export const TOKEN_MS = 15 * 60_000;
/** Unused for this long, a credential ends. Long enough that no outage of the control plane makes a fleet enrol anew. */
export const CREDENTIAL_MS = 30 * 24 * 3_600_000;
/** After this age a connected agent gets a new one. */
export const CREDENTIAL_RENEW_MS = 16 * 3_600_000;
/** What a one-time token, and what a node's credential begins with. */
export const TOKEN_PREFIX = "ymt_";
export const CREDENTIAL_PREFIX = "ymn_";
/** Tokens that can be waiting at once. */
const TOKENS_MAX = 1_000;

export interface IssuedToken {
  readonly token: Secret;
  readonly node: string;
  readonly nodeId: string;
  readonly expiresAt: string;
}

export interface NodeCredential {
  readonly node: string;
  readonly nodeId: string;
  /** When it is old enough to be renewed. */
  readonly renew: boolean;
}

export type RedeemOutcome =
  | { readonly kind: "enrolled"; readonly node: string; readonly nodeId: string; readonly credential: Secret }
  /** `why` is for the operator; the node is told nothing but no. */
  | { readonly kind: "refused"; readonly why: "unknown" | "used" | "expired" | "otherNode" };

const NOW = "(SELECT now_ms FROM ym_clock)";

/** Undefined when too many tokens wait to be used. */
export async function issueToken(driver: SqlDriver, node: string, author: string): Promise<IssuedToken | undefined> {
  const token = new Secret(randomKey(TOKEN_PREFIX));
  const [known] = await driver.query({
    text: "SELECT node_id FROM ym_credentials WHERE node = $1 ORDER BY issued_ms DESC LIMIT 1",
    values: [node],
  });
  const nodeId = known === undefined ? `node-${randomBytes(6).toString("hex")}` : String(known["node_id"]);
  const outcome = await driver.transaction([
    { text: `DELETE FROM ym_enrolments WHERE expires_ms < ${NOW} - CAST($1 AS BIGINT)`, values: [TOKEN_MS] },
    {
      text: `INSERT INTO ym_enrolments (hash, node, node_id, author, created_ms, expires_ms)
          SELECT $1, $2, $3, $4, ym_clock.now_ms, ym_clock.now_ms + CAST($5 AS BIGINT) FROM ym_clock
          WHERE (SELECT count(*) FROM ym_enrolments) < CAST($6 AS BIGINT) RETURNING expires_ms`,
      values: [hashKey(token.reveal()), node, nodeId, author, TOKEN_MS, TOKENS_MAX],
      guard: true,
    },
    ...eventSteps([
      controlEvent("tokenIssued", `a token for node ${node}, valid for ${TOKEN_MS / 60_000} minutes`, {
        nodeId,
        by: author,
      }),
    ]),
  ]);
  if (outcome.kind === "refused") return undefined;
  const expiresMs = Number(outcome.rows[1]?.[0]?.["expires_ms"]);
  return { token, node, nodeId, expiresAt: isoTime(asEpoch(expiresMs)) };
}

/** Uses the token up and gives the node its credential, in one step. A refusal is an event. */
export async function redeemToken(driver: SqlDriver, token: Secret, node: string): Promise<RedeemOutcome> {
  const tokenHash = hashKey(token.reveal());
  const credential = new Secret(randomKey(CREDENTIAL_PREFIX));
  const [row] = await driver.query({
    text: "SELECT node, node_id, used_ms FROM ym_enrolments WHERE hash = $1",
    values: [tokenHash],
  });
  const nodeId = row === undefined ? "" : String(row["node_id"]);
  const outcome = await driver.transaction([
    {
      text: `UPDATE ym_enrolments SET used_ms = ${NOW}
          WHERE hash = $1 AND node = $2 AND used_ms IS NULL AND expires_ms > ${NOW} RETURNING node_id`,
      values: [tokenHash, node],
      guard: true,
    },
    { text: "DELETE FROM ym_credentials WHERE node_id = $1", values: [nodeId] },
    insertCredential(hashKey(credential.reveal()), node, nodeId),
    ...eventSteps([controlEvent("nodeEnrolled", `node ${node} was enrolled`, { nodeId })]),
  ]);
  if (outcome.kind === "committed") return { kind: "enrolled", node, nodeId, credential };
  const why =
    row === undefined ? "unknown" : row["node"] !== node ? "otherNode" : row["used_ms"] !== null ? "used" : "expired";
  if (why !== "unknown") await driver.transaction(eventSteps([refusedEvent(why, node, nodeId)]));
  return { kind: "refused", why };
}

const refusedEvent = (why: "used" | "expired" | "otherNode", node: string, nodeId: string) => {
  const words = {
    used: `a token that was used already was presented again as node ${node}: if that was not you, somebody has a copy`,
    expired: `a token that has expired was presented as node ${node}`,
    otherNode: `a token of another node was presented as node ${node}`,
  };
  return controlEvent("enrolmentRefused", words[why].slice(0, 500), { nodeId });
};

const insertCredential = (credentialHash: string, node: string, nodeId: string): Step => ({
  text: `INSERT INTO ym_credentials (hash, node, node_id, issued_ms, ends_ms, sum)
    SELECT $1, $2, $3, ym_clock.now_ms, ym_clock.now_ms + CAST($4 AS BIGINT), $5 FROM ym_clock`,
  values: [credentialHash, node, nodeId, CREDENTIAL_MS, checksum(credentialHash, node, nodeId)],
});

/** Undefined for one that is not, or no longer, valid. A valid one lives on for its whole time from now. */
export async function checkCredential(driver: SqlDriver, credential: Secret): Promise<NodeCredential | undefined> {
  const credentialHash = hashKey(credential.reveal());
  const outcome = await driver.transaction([
    {
      text: `UPDATE ym_credentials SET ends_ms = ${NOW} + CAST($2 AS BIGINT)
        WHERE hash = $1 AND ends_ms > ${NOW} RETURNING node, node_id, sum, replaced_by, ${NOW} - issued_ms AS age_ms`,
      values: [credentialHash, CREDENTIAL_MS],
      guard: true,
    },
    { text: "DELETE FROM ym_credentials WHERE replaced_by = $1", values: [credentialHash] },
  ]);
  const row: SqlRow | undefined = outcome.kind === "committed" ? outcome.rows[0]?.[0] : undefined;
  if (row === undefined) return undefined;
  const [node, nodeId] = [String(row["node"]), String(row["node_id"])];
  // A row that is not what was written lets nobody in.
  if (row["sum"] !== checksum(credentialHash, node, nodeId)) return undefined;
  return { node, nodeId, renew: row["replaced_by"] !== null || Number(row["age_ms"]) >= CREDENTIAL_RENEW_MS };
}

/** A new credential for the node of this one. Undefined when this one is not valid. */
export async function renewCredential(driver: SqlDriver, credential: Secret): Promise<Secret | undefined> {
  const holder = await checkCredential(driver, credential);
  if (holder === undefined) return undefined;
  const fresh = new Secret(randomKey(CREDENTIAL_PREFIX));
  const [oldHash, freshHash] = [hashKey(credential.reveal()), hashKey(fresh.reveal())];
  await driver.transaction([
    { text: "DELETE FROM ym_credentials WHERE node_id = $1 AND hash <> $2", values: [holder.nodeId, oldHash] },
    { text: "UPDATE ym_credentials SET replaced_by = $2 WHERE hash = $1", values: [oldHash, freshHash] },
    insertCredential(freshHash, holder.node, holder.nodeId),
  ]);
  return fresh;
}

/** Ids of all nodes that may connect. */
export async function enrolledNodes(driver: SqlDriver): Promise<ReadonlySet<string>> {
  const text = `SELECT DISTINCT node_id FROM ym_credentials WHERE ends_ms > ${NOW}`;
  return new Set((await driver.query({ text, values: [] })).map((row) => String(row["node_id"])));
}

/** Ends every credential of the node; what it runs is not touched. Returns how many there were. */
export async function revokeNode(driver: SqlDriver, nodeId: string): Promise<number> {
  const rows = await driver.transaction([
    { text: "DELETE FROM ym_credentials WHERE node_id = $1 RETURNING hash", values: [nodeId] },
  ]);
  return rows.kind === "committed" ? (rows.rows[0]?.length ?? 0) : 0;
}
