import { randomUUID } from "node:crypto";
import type { NewEvent, StoredEvent } from "../../contract/control-event.ts";
import {
  type ClusterDoc,
  type MemoryDoc,
  type ModelDoc,
  NO_CLUSTER_DOC,
  type NodeDoc,
  type ReplicaDoc,
  type StoreWrite,
} from "../../contract/fleet.ts";
import type { LeaderTerm } from "../../decide/leader/lease-claim.ts";
import { YardmasterError } from "../../kernel/errors.ts";
import { randomKey } from "../../kernel/ids.ts";
import { Secret } from "../../kernel/secret.ts";
import * as catalogs from "./catalogs.ts";
import { checksum, verifyChecksum } from "./checksum.ts";
import * as enrolments from "./enrolments.ts";
import { type EventQuery, eventSteps, readEvents } from "./events.ts";
import * as gateways from "./gateway-credentials.ts";
import { commitFenced, type CommitOutcome } from "./fenced-commit.ts";
import { askLease, type LeaseAnswer, type LeaseRequest, releaseLease } from "./lease.ts";
import { migrate } from "./migrations.ts";
import { type SqlDriver, type SqlRow } from "./sql-driver.ts";

/** What the leader decides from. Only the leader writes it, under its term. */
export interface StoredState {
  readonly nodes: readonly NodeDoc[];
  readonly replicas: readonly ReplicaDoc[];
  readonly models: readonly ModelDoc[];
  readonly memory: readonly MemoryDoc[];
  readonly cluster: ClusterDoc;
}

const PAGE_ROWS = 500;

/**
 * The control plane's state in SQLite or PostgreSQL, by the same queries. Every call ends within seconds; those that can't be
 * carried out throw StoreFault (STORE_UNAVAILABLE).
 */
export class ControlStore {
  readonly #driver: SqlDriver;
  readonly clusterId: string;
  /** What engine keys are derived from. The same for all control planes of the cluster. */
  readonly clusterSecret: Secret;

  /** Brings the tables up to date. Throws STORE_REFUSED when the database is not one of this program's. */
  static async open(driver: SqlDriver): Promise<ControlStore> {
    await migrate(driver);
    const clusterId = await readOrMake(driver, "cluster_id", () => randomUUID());
    const secret = await readOrMake(driver, "cluster_secret", () => randomKey(""));
    return new ControlStore(driver, clusterId, new Secret(secret));
  }

  private constructor(driver: SqlDriver, clusterId: string, clusterSecret: Secret) {
    this.#driver = driver;
    this.clusterId = clusterId;
    this.clusterSecret = clusterSecret;
  }

  get dialect(): SqlDriver["dialect"] {
    return this.#driver.dialect;
  }

  /** Throws STORE_REFUSED when a document is not what was written. */
  async load(): Promise<StoredState> {
    const state = {
      node: [] as NodeDoc[],
      replica: [] as ReplicaDoc[],
      model: [] as ModelDoc[],
      memory: [] as MemoryDoc[],
      cluster: [] as ClusterDoc[],
    };
    let after: readonly [kind: string, id: string] = ["", ""];
    for (;;) {
      // In pages, so that neither the database's time limit nor this thread notices a large fleet.
      const rows = await this.#driver.query({
        text: "SELECT kind, id, doc, sum FROM ym_docs WHERE (kind, id) > ($1, $2) ORDER BY kind, id LIMIT $3",
        values: [...after, PAGE_ROWS],
      });
      for (const row of rows) {
        const [kind, id, text] = [String(row["kind"]) as StoreWrite["kind"], String(row["id"]), String(row["doc"])];
        verifyChecksum(row["sum"], `${kind} ${id}`, kind, id, text);
        (state[kind] as unknown[]).push(JSON.parse(text));
        after = [kind, id];
      }
      if (rows.length < PAGE_ROWS) break;
    }
    const [cluster = NO_CLUSTER_DOC] = state.cluster;
    return { nodes: state.node, replicas: state.replica, models: state.model, memory: state.memory, cluster };
  }

  /** All of it or nothing, and only while `term` holds. One call at a time for each term. */
  commit(term: LeaderTerm, writes: readonly StoreWrite[], events: readonly NewEvent[]): Promise<CommitOutcome> {
    return commitFenced(this.#driver, term, writes, events);
  }

  askLease(request: LeaseRequest): Promise<LeaseAnswer> {
    return askLease(this.#driver, request);
  }

  releaseLease(term: LeaderTerm): Promise<void> {
    return releaseLease(this.#driver, term);
  }

  /** For what any control plane may tell of, leading or not. */
  async addEvents(events: readonly NewEvent[]): Promise<void> {
    await this.#driver.transaction(eventSteps(events));
  }

  /** Oldest first. */
  events(query: EventQuery): Promise<StoredEvent[]> {
    return readEvents(this.#driver, query);
  }

  /** Without a number the newest; undefined when there is none. */
  catalog(revision?: number): Promise<catalogs.StoredCatalog | undefined> {
    return catalogs.readCatalog(this.#driver, revision);
  }

  catalogRevision(): Promise<number> {
    return catalogs.newestRevision(this.#driver);
  }

  /** Newest first. */
  catalogHistory(limit: number): Promise<catalogs.CatalogRevision[]> {
    return catalogs.readHistory(this.#driver, limit);
  }

  catalogFileDigest(): Promise<string | undefined> {
    return catalogs.newestFileDigest(this.#driver);
  }

  saveCatalog(fresh: catalogs.NewCatalog, eventOf: (revision: number) => NewEvent): Promise<catalogs.SaveOutcome> {
    return catalogs.saveCatalog(this.#driver, fresh, eventOf);
  }

  /** Undefined when too many tokens wait to be used. */
  issueToken(node: string, author: string): Promise<enrolments.IssuedToken | undefined> {
    return enrolments.issueToken(this.#driver, node, author);
  }

  redeemToken(token: Secret, node: string): Promise<enrolments.RedeemOutcome> {
    return enrolments.redeemToken(this.#driver, token, node);
  }

  checkCredential(credential: Secret): Promise<enrolments.NodeCredential | undefined> {
    return enrolments.checkCredential(this.#driver, credential);
  }

  renewCredential(credential: Secret): Promise<Secret | undefined> {
    return enrolments.renewCredential(this.#driver, credential);
  }

  enrolledNodes(): Promise<ReadonlySet<string>> {
    return enrolments.enrolledNodes(this.#driver);
  }

  revokeNode(nodeId: string): Promise<number> {
    return enrolments.revokeNode(this.#driver, nodeId);
  }

  /** Undefined when there are too many. */
  issueGateway(name: string, author: string): Promise<Secret | undefined> {
    return gateways.issueGateway(this.#driver, name, author);
  }

  checkGateway(credential: Secret): Promise<string | undefined> {
    return gateways.checkGateway(this.#driver, credential);
  }

  listGateways(): Promise<gateways.GatewayCredential[]> {
    return gateways.listGateways(this.#driver);
  }

  revokeGateway(name: string, author: string): Promise<boolean> {
    return gateways.revokeGateway(this.#driver, name, author);
  }

  close(): Promise<void> {
    return this.#driver.close();
  }
}

/** Of control planes that start at once, all get what the first one wrote. */
async function readOrMake(driver: SqlDriver, name: string, make: () => string): Promise<string> {
  const value = make();
  await driver.transaction([
    {
      text: "INSERT INTO ym_meta (name, value, sum) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING",
      values: [name, value, checksum(name, value)],
    },
  ]);
  const [row]: readonly (SqlRow | undefined)[] = await driver.query({
    text: "SELECT value, sum FROM ym_meta WHERE name = $1",
    values: [name],
  });
  if (row === undefined) throw new YardmasterError("STORE_REFUSED", `the database has lost its ${name}`);
  const stored = String(row["value"]);
  verifyChecksum(row["sum"], name, name, stored);
  return stored;
}
