import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { stringify } from "yaml";
import { leaderView, replicaView, type LeaderAnswer, type ReplicaAnswer } from "../../src/contract/control-api.ts";
import { hashKey } from "../../src/contract/key-hash.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { FakeGateway } from "../../src/testing/fake-gateway.ts";
import { rounds } from "../../src/testing/rounds.ts";
import { type PostgresDatabases, startPostgresDatabases } from "../../src/testing/servers/postgres-databases.ts";
import { freePort } from "../../src/testing/servers/server-process.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { LiveAgent, QUICK, simModel, START_MS } from "./support/live-world.ts";
import { runProgram, type RunningProgram } from "./support/program.ts";
import { engineBlock, PORTS } from "./support/test-agent.ts";

// Control planes, agents and engines as processes, over one PostgreSQL. The lease is 2 s instead of 10, and all else with it.

const KEY = "CANARY-admin-0123456789abcdef0123456789abcdef";
const HEADERS = { authorization: `Bearer ${KEY}` };

let databases: PostgresDatabases;
before(async () => {
  databases = await startPostgresDatabases();
});
after(() => databases[Symbol.asyncDispose]());

class Member {
  readonly url: string;
  readonly #folder: string;
  readonly #config: string;
  program!: RunningProgram;

  constructor(port: number, folder: string, config: string) {
    this.url = `http://127.0.0.1:${port}`;
    this.#folder = folder;
    this.#config = config;
  }

  async start(): Promise<void> {
    const { host } = new URL(this.url);
    const args = [
      "control",
      "--config",
      this.#config,
      "--listen",
      host,
      "--data-dir",
      join(this.#folder, `data-${host}`),
    ];
    this.program = runProgram([...args, "--log-format", "json"], { cwd: this.#folder });
    await this.program.ready();
  }

  async ask(method: string, path: string, body?: string): Promise<Response | undefined> {
    const end = new AbortController();
    const timer = systemClock.after(5_000, () => end.abort(new Error("no answer")));
    try {
      const init: RequestInit = { method, headers: HEADERS, signal: end.signal };
      return await fetch(this.url + path, body === undefined ? init : { ...init, body });
    } catch {
      return undefined;
    } finally {
      timer.cancel();
    }
  }

  async leader(): Promise<LeaderAnswer | undefined> {
    const answer = await this.ask("GET", "/v1/leader");
    return answer === undefined ? undefined : leaderView.parse(await answer.json());
  }

  async replicas(): Promise<readonly ReplicaAnswer[]> {
    const answer = await this.ask("GET", "/v1/replicas");
    if (answer?.status !== 200) return [];
    return ((await answer.json()) as { replicas: unknown[] }).replicas.map((entry) => replicaView.parse(entry));
  }
}

/** Two control planes and two agents. */
class Cluster implements AsyncDisposable {
  readonly folder: string;
  readonly databaseUrl: string;
  readonly members: Member[] = [];
  readonly agents: LiveAgent[] = [];

  static async start(): Promise<Cluster> {
    const folder = await mkdtemp(join(tmpdir(), "yardmaster-leaders-"));
    const cluster = new Cluster(folder, await databases.create());
    const config = join(folder, "yardmaster.yaml");
    const keys = [{ id: "admin", hash: `sha256:${hashKey(KEY)}`, role: "admin" }];
    const control = { ...QUICK, lost_after_s: 60, lease_s: 2 };
    await writeFile(config, stringify({ database_url: cluster.databaseUrl, auth: { keys }, control }), { mode: 0o600 });
    for (let at = 0; at < 2; at += 1) {
      const member = new Member(await freePort(), folder, config);
      cluster.members.push(member);
      await member.start();
      if (at === 0) await cluster.untilLed(member);
    }
    for (const name of ["node-a", "node-b"]) await cluster.#addAgent(name);
    return cluster;
  }

  private constructor(folder: string, databaseUrl: string) {
    this.folder = folder;
    this.databaseUrl = databaseUrl;
  }

  async #addAgent(name: string): Promise<void> {
    const made = await this.members[0]?.ask("POST", "/v1/enrolment-tokens", JSON.stringify({ node: name }));
    assert.ok(made !== undefined);
    const { token } = (await made.json()) as { token: string };
    const first = engineBlock();
    const agent = new LiveAgent(name, join(this.folder, name), token, {
      name,
      control: this.members.map(({ url }) => url.replace("http", "ws")) as [string],
      weights_dir: join(this.folder, name, "weights"),
      engine_ports: `${first}-${first + PORTS - 1}`,
      nvidia_smi: "/nowhere/nvidia-smi",
    });
    this.agents.push(agent);
    await agent.start();
  }

  async leads(member: Member): Promise<boolean> {
    return (await member.leader())?.role === "leading";
  }

  untilLed(member: Member): Promise<boolean> {
    return eventually(
      "the lead",
      () => this.leads(member),
      (leads) => leads,
      30_000,
    );
  }

  async leader(): Promise<{ leading: Member; standby: Member }> {
    const [one, two] = this.members as [Member, Member];
    const which = await eventually(
      "one that leads",
      async () => ((await this.leads(one)) ? one : (await this.leads(two)) ? two : null),
      (found) => found !== null,
      30_000,
    );
    return which === one ? { leading: one, standby: two } : { leading: two, standby: one };
  }

  async apply(member: Member, ...models: readonly Record<string, unknown>[]): Promise<void> {
    const status = await eventually(
      "the catalog",
      async () => (await member.ask("PUT", "/v1/catalog", JSON.stringify({ models })))?.status,
      (found) => found === 200,
      30_000,
    );
    assert.equal(status, 200);
  }

  /** All replicas that are wanted run, each in one process. */
  async untilReady(member: Member, count: number): Promise<ReadonlyMap<string, number>> {
    await eventually(
      `${count} ready replicas`,
      () => member.replicas(),
      (list) => list.length === count && list.every(({ state }) => state === "ready"),
      START_MS,
    );
    await eventually(
      "as many engines",
      () => this.engines().size,
      (size) => size === count,
      30_000,
    );
    return this.engines();
  }

  engines(): ReadonlyMap<string, number> {
    return new Map(this.agents.flatMap((agent) => [...agent.engines()]));
  }

  /** The agents' own record of whom they obeyed: epochs only grow. */
  assertOneLine(): void {
    for (const agent of this.agents) {
      const epochs = agent.epochs();
      assert.ok(epochs.length > 0);
      assert.deepEqual(
        epochs,
        epochs.toSorted((a, b) => a - b),
        `${agent.name}: ${epochs.join()}`,
      );
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { program } of this.members) {
      program.kill("SIGCONT");
      await program[Symbol.asyncDispose]();
    }
    for (const agent of this.agents) await agent.end();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

const isSubset = (before: ReadonlyMap<string, number>, now: ReadonlyMap<string, number>): void => {
  for (const [id, pid] of before) assert.equal(now.get(id), pid, `${id} is the process that it was`);
};

test("a leader that is killed, round after round: the standby acts under a higher epoch, engines stay the processes that they were, and gateways follow [80.P6 40.L2 40.R2 80.I4]", async () => {
  await using cluster = await Cluster.start();
  let { leading, standby } = await cluster.leader();
  const models = [simModel("m0")];
  await cluster.apply(leading, ...models);
  let engines = await cluster.untilReady(leading, 1);
  await using gateway = new FakeGateway(standby.url, KEY);
  await gateway.until("its word", () => gateway.count("standby") > 0);
  for (let round = 1; round <= rounds(2, 50); round += 1) {
    const epoch = (await leading.leader())?.epoch ?? 0;
    leading.program.kill("SIGKILL");
    await leading.program.end();
    await cluster.untilLed(standby);
    assert.ok(((await standby.leader())?.epoch ?? 0) > epoch);
    if (round === 1) {
      await gateway.until("the new leader's state", () => gateway.mark !== null && gateway.endpoints.size >= 1, 30_000);
      assert.ok((gateway.mark?.epoch ?? 0) > epoch);
    }
    await leading.start();
    models.push(simModel(`m${round}`));
    await cluster.apply(standby, ...models);
    const now = await cluster.untilReady(standby, models.length);
    isSubset(engines, now);
    engines = now;
    [leading, standby] = [standby, leading];
  }
  cluster.assertOneLine();
});

test("a leader that froze with a model to place does nothing of it when it wakes: what the next one placed is all that runs [80.P5 40.L2 80.I4]", async () => {
  await using cluster = await Cluster.start();
  let { leading, standby } = await cluster.leader();
  const models = [simModel("m0", { replicas: { min: 2 } })];
  await cluster.apply(leading, ...models);
  let engines = await cluster.untilReady(leading, 2);
  for (let round = 1; round <= rounds(2, 50); round += 1) {
    models.push(simModel(`m${round}`));
    // Both take the catalog; the leader is frozen before or within its first pass over it.
    await cluster.apply(standby, ...models);
    leading.program.kill("SIGSTOP");
    await cluster.untilLed(standby);
    const now = await cluster.untilReady(standby, models.length + 1);
    isSubset(engines, now);
    leading.program.kill("SIGCONT");
    await eventually(
      "the old one standing by",
      async () => (await leading.leader())?.role,
      (role) => role === "standby",
      30_000,
    );
    await cluster.untilReady(standby, models.length + 1);
    isSubset(now, cluster.engines());
    engines = cluster.engines();
    [leading, standby] = [standby, leading];
  }
  cluster.assertOneLine();
});

test("while the store is away for many times the lease nothing is started or stopped, and afterwards neither [80.P1 80.I8 40.L3]", async () => {
  await using cluster = await Cluster.start();
  const { leading } = await cluster.leader();
  await cluster.apply(leading, simModel("m", { replicas: { min: 2 } }));
  const engines = await cluster.untilReady(leading, 2);
  const name = new URL(cluster.databaseUrl).pathname.slice(1);
  const admin = databases.server.url;
  await databases.run(admin, `ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
  await databases.run(admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`);
  await eventually(
    "nobody leads, for 10 s",
    async () => (await leading.leader())?.store_silent_s ?? 0,
    (silent) => silent >= 10,
    60_000,
  );
  assert.deepEqual(cluster.engines(), engines);
  await databases.run(admin, `ALTER DATABASE ${name} ALLOW_CONNECTIONS true`);
  const { leading: next } = await cluster.leader();
  await cluster.apply(next, simModel("m", { replicas: { min: 2 } }), simModel("probe"));
  const now = await cluster.untilReady(next, 3);
  isSubset(engines, now);
  cluster.assertOneLine();
});
