import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { stringify } from "yaml";
import type { NodeAnswer, RefusalDetails, ReplicaAnswer } from "../../../src/contract/control-api.ts";
import type { ControlSection } from "../../../src/contract/control-schema.ts";
import { hashKey } from "../../../src/contract/key-hash.ts";
import { type PostgresDatabases, startPostgresDatabases } from "../../../src/testing/servers/postgres-databases.ts";
import { OwnRedis } from "../../../src/testing/servers/redis-server.ts";
import { eventually } from "../../../src/testing/wait-for.ts";
import { type Answered, ControlProcess } from "./control-process.ts";
import { EngineCensus } from "./engine-census.ts";
import { GatewayProcess } from "./gateway-process.ts";
import { CuttableWay } from "./own-network.ts";
import { NodeProcess, type Obeyed } from "./node-process.ts";

// A whole cluster of processes: control planes on one PostgreSQL, and nodes with engines. The times of the product are scaled
// down, as far as a busy machine allows that is not to be taken for a broken one.

export const LEASE_MS = 3_000;
const UNREACHABLE_MS = 2_000;
const LOST_MS = 6_000;
const TIMES: Partial<ControlSection> = {
  lease_s: LEASE_MS / 1_000,
  unreachable_after_s: UNREACHABLE_MS / 1_000,
  lost_after_s: LOST_MS / 1_000,
  settle_s: 6,
  stop_grace_s: 2,
  drain_grace_s: 1,
};
/** Several programs start at once, on a machine that has others to run. */
export const PATIENCE_MS = 90_000;
const GATEWAY_KEY = "CANARY-gateway-0123456789abcdef0123456789abcdef";
const ADMIN_KEY = "CANARY-admin-0123456789abcdef0123456789abcdef";
export const MODEL = "m";

/** On one card of its own. */
export const catalogOf = (count: number, more: Record<string, unknown> = {}): object => ({
  models: [
    {
      name: MODEL,
      replicas: { min: count, max: count },
      slots_per_replica: 8,
      profiles: [{ engine: "sim", gpu: { class: ["h200"], count: 1, memory_gb: 100 }, args: { slots: 8 } }],
      ...more,
    },
  ],
});

export class ClusterProcesses implements AsyncDisposable {
  readonly folder: string;
  readonly databases: PostgresDatabases;
  readonly databaseUrl: string;
  readonly census: EngineCensus;
  readonly controls: readonly ControlProcess[];
  readonly nodes: NodeProcess[] = [];
  readonly gateways: GatewayProcess[] = [];
  #redis: OwnRedis | null = null;

  static async start(options: {
    readonly controls: number;
    readonly nodes: number;
    /** They share a Redis. */
    readonly gateways?: number;
    /** What their file says of the model's upstream; without it they have what the catalog makes of it. */
    readonly upstream?: Record<string, unknown>;
    /** Whether the ways from nodes to control planes can be cut. */
    readonly cuttable?: boolean;
    /** Over the short times. */
    readonly control?: Partial<ControlSection>;
  }): Promise<ClusterProcesses> {
    const folder = await mkdtemp(join(tmpdir(), "yardmaster-cluster-"));
    const databases = await startPostgresDatabases();
    const databaseUrl = await databases.create();
    const config = join(folder, "control.yaml");
    const keys = [
      { id: "admin", hash: `sha256:${hashKey(ADMIN_KEY)}`, role: "admin" },
      { id: "gateway", hash: `sha256:${hashKey(GATEWAY_KEY)}`, role: "gateway" },
    ];
    const file = { database_url: databaseUrl, auth: { keys }, control: { ...TIMES, ...options.control } };
    await writeFile(config, stringify(file), { mode: 0o600 });
    const controls: ControlProcess[] = [];
    for (let at = 0; at < options.controls; at += 1)
      controls.push(await ControlProcess.make({ config, dataDir: join(folder, `control-${at}`), key: ADMIN_KEY }));
    const cluster = new ClusterProcesses({ folder, databases, databaseUrl, controls });
    try {
      await Promise.all(controls.map((control) => control.start()));
      for (let at = 0; at < options.nodes; at += 1) await cluster.#addNode(`node-${at}`, options.cuttable === true);
      await Promise.all(cluster.nodes.map((node) => node.start()));
      await cluster.#addGateways(options.gateways ?? 0, options.upstream);
      await cluster.untilNodes("all nodes", (nodes) => nodes.filter(isReady).length === options.nodes);
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  private constructor(parts: {
    folder: string;
    databases: PostgresDatabases;
    databaseUrl: string;
    controls: readonly ControlProcess[];
  }) {
    this.folder = parts.folder;
    this.databases = parts.databases;
    this.databaseUrl = parts.databaseUrl;
    this.controls = parts.controls;
    this.census = new EngineCensus(parts.folder);
  }

  get #links(): readonly string[] {
    return this.controls.map(({ port }) => `ws://127.0.0.1:${port}`);
  }

  async #addGateways(count: number, upstream?: Record<string, unknown>): Promise<void> {
    if (count === 0) return;
    this.#redis = await OwnRedis.start();
    const { folder } = this;
    const [controls, redisUrl] = [this.#links, this.#redis.url];
    const upstreams = upstream === undefined ? [] : [{ id: MODEL, model: MODEL, ...upstream }];
    for (let at = 0; at < count; at += 1) {
      const name = `gateway-${at}`;
      const rest = { controls, redisUrl, upstreams, credential: GATEWAY_KEY };
      this.gateways.push(await GatewayProcess.make({ name, folder, ...rest }));
    }
    await Promise.all(this.gateways.map((gateway) => gateway.start()));
  }

  async #addNode(name: string, cuttable: boolean): Promise<void> {
    const { body } = await this.tell<{ token: string }>("POST", "/v1/enrolment-tokens", { node: name });
    const { folder, census } = this;
    const ways = cuttable ? await Promise.all(this.controls.map(({ port }) => CuttableWay.to(port))) : [];
    const controls = cuttable ? ways.map(({ port }) => `ws://127.0.0.1:${port}`) : this.#links;
    this.nodes.push(await NodeProcess.make({ name, folder, controls, token: body.token, census, ways }));
  }

  node(name: string): NodeProcess {
    const found = this.nodes.find((node) => node.name === name);
    if (found === undefined) throw new Error(`there is no ${name}`);
    return found;
  }

  async leading(): Promise<ControlProcess> {
    const find = async (): Promise<ControlProcess | undefined> => {
      for (const control of this.controls) if (await control.leads()) return control;
      return undefined;
    };
    const found = await eventually("a leader", find, (leader) => leader !== undefined, PATIENCE_MS);
    return found!;
  }

  standby(leader: ControlProcess): ControlProcess {
    const found = this.controls.find((control) => control !== leader);
    if (found === undefined) throw new Error("there is one control plane only");
    return found;
  }

  /** To whoever leads, again until it was answered by a leader. */
  async tell<T>(method: string, path: string, body?: unknown): Promise<Answered<T>> {
    return eventually(
      `${method} ${path} answered`,
      async () => (await this.leading()).ask<T>(method, path, body),
      ({ status }) => status !== 0 && status !== 503,
      PATIENCE_MS,
    );
  }

  async apply(catalog: object): Promise<void> {
    const first = await this.tell<{ details?: RefusalDetails }>("PUT", "/v1/catalog", catalog);
    if (first.status === 200) return;
    const token = first.body.details?.diff?.token ?? "";
    const again = await this.tell("PUT", `/v1/catalog?confirm=${token}`, catalog);
    if (again.status !== 200) throw new Error(`the catalog was refused: ${JSON.stringify(again.body)}`);
  }

  async replicas(): Promise<readonly ReplicaAnswer[]> {
    return (await this.tell<{ replicas: ReplicaAnswer[] }>("GET", "/v1/replicas")).body.replicas;
  }

  async untilNodes(what: string, accept: (nodes: readonly NodeAnswer[]) => boolean): Promise<readonly NodeAnswer[]> {
    const read = async (): Promise<readonly NodeAnswer[]> =>
      (await this.tell<{ nodes: NodeAnswer[] }>("GET", "/v1/nodes")).body.nodes;
    return eventually(what, read, accept, PATIENCE_MS);
  }

  untilNode(name: string, state: NodeAnswer["state"]): Promise<unknown> {
    return this.untilNodes(`${name} to be ${state}`, (nodes) =>
      nodes.some((node) => node.name === name && node.state === state),
    );
  }

  /** Resolves when every control plane hears every node, so that whichever leads next knows them all. */
  async untilHeardByAll(): Promise<void> {
    for (const control of this.controls)
      await eventually(
        "every node heard by every control plane",
        async () => (await control.ask<{ nodes?: NodeAnswer[] }>("GET", "/v1/nodes")).body.nodes ?? [],
        (nodes) => nodes.length === this.nodes.length && nodes.every(isReady),
        PATIENCE_MS,
      );
  }

  /** As the catalog says by everybody's account: so many replicas ready, so many engines there, and nothing else. */
  async untilSettled(count: number, nodes = this.nodes.map(({ name }) => name)): Promise<readonly ReplicaAnswer[]> {
    return eventually(
      `${count} replicas on ${nodes.join(", ")}, and no other engine there`,
      () => this.replicas(),
      (replicas) => {
        const alive = this.census.alive().filter(({ node }) => nodes.includes(node));
        const ready = replicas.filter(({ state }) => state === "ready");
        const placed = ready.flatMap((replica) => replica.nodes);
        return ready.length === count && alive.length === count && placed.every((name) => nodes.includes(name));
      },
      PATIENCE_MS,
    );
  }

  /** Resolves when every gateway that runs goes by exactly what runs. */
  async untilRouted(): Promise<void> {
    const ports = this.census.alive().map(({ port }) => port);
    for (const gateway of this.gateways)
      await eventually(
        `${gateway.name} to know what runs`,
        async () => (await gateway.upstream(MODEL))?.endpoints.map(({ url }) => Number(new URL(url).port)) ?? [],
        (found) => found.toSorted().join() === ports.toSorted().join(),
        PATIENCE_MS,
      );
  }

  /** Terms as the control planes' own events tell them, oldest first. */
  async terms(): Promise<readonly { readonly epoch: number; readonly holder: string }[]> {
    const { body } = await this.tell<{ events: { why: string }[] }>("GET", "/v1/events?kind=leaderChanged&limit=1000");
    return body.events
      .map(({ why }) => {
        const [, holder = "", epoch = "0"] = /^(\S+) leads under epoch (\d+)$/.exec(why) ?? [];
        return { epoch: Number(epoch), holder };
      })
      .toSorted((a, b) => a.epoch - b.epoch);
  }

  /** Commands that agents obeyed, each list in the order of its agent. */
  get obeyed(): ReadonlyMap<string, readonly Obeyed[]> {
    return new Map(this.nodes.map(({ name, obeyed }) => [name, obeyed]));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const process of [...this.controls, ...this.nodes]) process.signal("SIGCONT");
    const all = [...this.gateways, ...this.nodes, ...this.controls];
    await Promise.all(all.map((process) => process[Symbol.asyncDispose]()));
    this.census[Symbol.dispose]();
    // First, since nothing keeps this process alive while servers end.
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
    await this.#redis?.close();
    await this.databases[Symbol.asyncDispose]();
  }
}

const isReady = ({ state }: NodeAnswer): boolean => state === "ready";
