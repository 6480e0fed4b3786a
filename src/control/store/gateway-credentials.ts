import { controlEvent } from "../../contract/control-event.ts";
import { hashKey } from "../../contract/key-hash.ts";
import { asEpoch, isoTime } from "../../kernel/clock.ts";
import { randomKey } from "../../kernel/ids.ts";
import { Secret } from "../../kernel/secret.ts";
import { checksum } from "./checksum.ts";
import { eventSteps } from "./events.ts";
import type { SqlDriver } from "./sql-driver.ts";

/** What a gateway's credential begins with. Only hashes are kept; one is shown once, to whom it is made for. */
export const GATEWAY_PREFIX = "ymg_";
const CREDENTIALS_MAX = 1_000;

export interface GatewayCredential {
  readonly name: string;
  readonly author: string;
  /** ISO 8601, by the database's clock. */
  readonly createdAt: string;
}

/** Replaces an earlier one of the name. Undefined when there are too many. */
export async function issueGateway(driver: SqlDriver, name: string, author: string): Promise<Secret | undefined> {
  const credential = new Secret(randomKey(GATEWAY_PREFIX));
  const credentialHash = hashKey(credential.reveal());
  const outcome = await driver.transaction([
    { text: "DELETE FROM ym_gateways WHERE name = $1", values: [name] },
    {
      text: `INSERT INTO ym_gateways (hash, name, author, created_ms, sum)
        SELECT $1, $2, $3, ym_clock.now_ms, $4 FROM ym_clock
        WHERE (SELECT count(*) FROM ym_gateways) < CAST($5 AS BIGINT) RETURNING name`,
      values: [credentialHash, name, author, checksum(credentialHash, name), CREDENTIALS_MAX],
      guard: true,
    },
    ...eventSteps([controlEvent("gatewayEnrolled", `a credential for gateway ${name} was made`, { by: author })]),
  ]);
  return outcome.kind === "committed" ? credential : undefined;
}

/** The name that it was made for; undefined for one that is not valid. */
export async function checkGateway(driver: SqlDriver, credential: Secret): Promise<string | undefined> {
  const credentialHash = hashKey(credential.reveal());
  const [row] = await driver.query({
    text: "SELECT name, sum FROM ym_gateways WHERE hash = $1",
    values: [credentialHash],
  });
  if (row === undefined) return undefined;
  const name = String(row["name"]);
  // A row that is not what was written lets nobody in.
  return row["sum"] === checksum(credentialHash, name) ? name : undefined;
}

/** By name. */
export async function listGateways(driver: SqlDriver): Promise<GatewayCredential[]> {
  const rows = await driver.query({
    text: "SELECT name, author, created_ms FROM ym_gateways ORDER BY name",
    values: [],
  });
  return rows.map((row) => ({
    name: String(row["name"]),
    author: String(row["author"]),
    createdAt: isoTime(asEpoch(Number(row["created_ms"]))),
  }));
}

/** Whether there was one. */
export async function revokeGateway(driver: SqlDriver, name: string, author: string): Promise<boolean> {
  const outcome = await driver.transaction([
    { text: "DELETE FROM ym_gateways WHERE name = $1 RETURNING name", values: [name], guard: true },
    ...eventSteps([controlEvent("gatewayRevoked", `the credential of gateway ${name} was taken back`, { by: author })]),
  ]);
  return outcome.kind === "committed";
}
