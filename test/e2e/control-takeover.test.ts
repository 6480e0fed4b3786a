import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { stringify } from "yaml";
import { leaderView, type LeaderAnswer } from "../../src/contract/control-api.ts";
import { hashKey } from "../../src/contract/key-hash.ts";
import { ControlStore } from "../../src/control/store/control-store.ts";
import { openPostgres } from "../../src/control/store/postgres-driver.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { seededRandom } from "../../src/kernel/random.ts";
import { Secret } from "../../src/kernel/secret.ts";
import { aNodeDoc } from "../../src/testing/fleet-docs.ts";
import { rounds } from "../../src/testing/rounds.ts";
import { type PostgresDatabases, startPostgresDatabases } from "../../src/testing/servers/postgres-databases.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { programFolder, type ProgramFolder, readyProgram, runProgram, type RunningProgram } from "./support/program.ts";

// Real processes on a real PostgreSQL: frozen, killed and stopped. The lease is 2 s instead of 10, and every bound with it.

const LEASE_S = 2;
/** The lease, one interval, and what a busy machine adds. */
const TAKEOVER_MS_MAX = LEASE_S * 1_000 + 400 + 6_000;
const KEY = "CANARY-admin-0123456789abcdef0123456789abcdef";
const NODE = "node-1";

let databases: PostgresDatabases;
let folder: ProgramFolder;
before(async () => {
  databases = await startPostgresDatabases();
  folder = await programFolder();
});
after(async () => {
  await folder[Symbol.asyncDispose]();
  await databases[Symbol.asyncDispose]();
});

class Member {
  readonly program: RunningProgram;
  url = "";
  self = "";

  constructor(program: RunningProgram) {
    this.program = program;
  }

  async leader(): Promise<LeaderAnswer | undefined> {
    const answer = await this.#ask("GET", "/v1/leader", 1_000);
    return answer === undefined ? undefined : leaderView.parse(await answer.json());
  }

  async leads(): Promise<boolean> {
    return (await this.leader())?.role === "leading";
  }

  /** The status of the answer; undefined when there is none. */
  async cordon(on: boolean, waitMs = 60_000): Promise<number | undefined> {
    const answer = await this.#ask("POST", `/v1/nodes/${NODE}/${on ? "cordon" : "uncordon"}`, waitMs);
    await answer?.text();
    return answer?.status;
  }

  async #ask(method: string, path: string, waitMs: number): Promise<Response | undefined> {
    const end = new AbortController();
    const timer = systemClock.after(waitMs, () => end.abort(new Error("no answer")));
    try {
      return await fetch(this.url + path, { method, headers: { authorization: `Bearer ${KEY}` }, signal: end.signal });
    } catch {
      return undefined;
    } finally {
      timer.cancel();
    }
  }
}

class Cluster implements AsyncDisposable {
  readonly databaseUrl: string;
  readonly store: ControlStore;
  readonly #config: string;
  readonly #members: Member[] = [];

  static async start(): Promise<Cluster> {
    const databaseUrl = await databases.create();
    const store = await ControlStore.open(openPostgres(new Secret(databaseUrl)));
    const term = { holder: "the test", epoch: 1 };
    await store.askLease({ holder: term.holder, leaseMs: 1_000, floor: 0, alone: false });
    await store.commit(term, [{ kind: "node", id: NODE, doc: aNodeDoc(NODE) }], []);
    await store.releaseLease(term);
    const config = join(folder.path, `${new URL(databaseUrl).pathname.slice(1)}.yaml`);
    const keys = [{ id: "admin", hash: `sha256:${hashKey(KEY)}`, role: "admin" }];
    await writeFile(config, stringify({ database_url: databaseUrl, auth: { keys }, control: { lease_s: LEASE_S } }), {
      mode: 0o600,
    });
    return new Cluster(databaseUrl, store, config);
  }

  private constructor(databaseUrl: string, store: ControlStore, config: string) {
    this.databaseUrl = databaseUrl;
    this.store = store;
    this.#config = config;
  }

  async join(): Promise<Member> {
    const dataDir = join(folder.path, `data-${this.#members.length}-${this.databaseUrl.slice(-3)}`);
    const args = ["control", "--config", this.#config, "--listen", "127.0.0.1:0", "--data-dir", dataDir];
    const { program, port } = await readyProgram(() => runProgram(args, { cwd: folder.path }));
    const member = new Member(program);
    this.#members.push(member);
    member.url = `http://127.0.0.1:${port}`;
    member.self =
      (
        await eventually(
          "its name",
          () => member.leader(),
          (view) => view !== undefined,
        )
      )?.self ?? "";
    return member;
  }

  async cordoned(): Promise<boolean | undefined> {
    return (await this.store.load()).nodes[0]?.cordoned;
  }

  /** Epoch and holder of each term that began, from what the control planes themselves told. */
  async terms(): Promise<readonly { readonly epoch: number; readonly holder: string }[]> {
    const events = await this.store.events({ limit: 1_000, kind: "leaderChanged" });
    return events.map(({ why }) => {
      const [, holder = "", epoch = "0"] = /^(\S+) leads under epoch (\d+)$/.exec(why) ?? [];
      return { epoch: Number(epoch), holder };
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { program } of this.#members) {
      program.kill("SIGCONT");
      await program[Symbol.asyncDispose]();
    }
    await this.store.close();
  }
}

const msUntil = async (what: string, condition: () => Promise<boolean>): Promise<number> => {
  const start = systemClock.mono();
  await eventually(what, condition, (holds) => holds, 60_000);
  return systemClock.mono() - start;
};

async function twoMembers(cluster: Cluster): Promise<{ leading: Member; standby: Member }> {
  const leading = await cluster.join();
  await msUntil("the first lead", () => leading.leads());
  return { leading, standby: await cluster.join() };
}

test("a leader that was frozen past its lease does nothing more when it wakes: the next one leads, and what was queued is refused [40.L2 80.P5 80.C3]", async () => {
  await using cluster = await Cluster.start();
  let { leading, standby } = await twoMembers(cluster);
  for (let round = 0; round < rounds(3, 200); round += 1) {
    const wanted = round % 2 === 0;
    assert.equal(await leading.cordon(!wanted), 200);
    const epoch = (await leading.leader())?.epoch ?? 0;
    leading.program.kill("SIGSTOP");
    // It waits in the frozen process's socket, and would be its first act.
    const queued = leading.cordon(wanted);
    const taken = await msUntil("the takeover", () => standby.leads());
    assert.ok(taken <= TAKEOVER_MS_MAX, `the next one led ${Math.round(taken)} ms after the freeze`);
    assert.equal((await standby.leader())?.epoch, epoch + 1);
    leading.program.kill("SIGCONT");
    const demoted = await msUntil(
      "the old one standing down",
      async () => (await leading.leader())?.role === "standby",
    );
    assert.ok(demoted < 4_000, `it stood down ${Math.round(demoted)} ms after it woke`);
    assert.equal(await queued, 503, "what was queued is refused");
    assert.equal(await cluster.cordoned(), !wanted, "nothing of it was done");
    [leading, standby] = [standby, leading];
  }
});

test("control planes that are killed and started at random: one leads, each kill of a leader costs one change, and no epoch has two holders [80.P6]", async () => {
  await using cluster = await Cluster.start();
  const random = seededRandom(6);
  let { leading, standby } = await twoMembers(cluster);
  let expected = (await cluster.terms()).length;
  for (let round = 0; round < rounds(6, 500); round += 1) {
    const killLeader = random.next() < 0.7;
    const victim = killLeader ? leading : standby;
    const survivor = killLeader ? standby : leading;
    victim.program.kill("SIGKILL");
    await victim.program.end();
    const taken = await msUntil("one that leads", () => survivor.leads());
    assert.ok(taken <= TAKEOVER_MS_MAX, `${Math.round(taken)} ms`);
    if (killLeader) expected += 1;
    assert.equal(await survivor.cordon(round % 2 === 0), 200);
    leading = survivor;
    standby = await cluster.join();
    assert.equal(await standby.leads(), false);
  }
  const terms = await eventually(
    "every change told",
    () => cluster.terms(),
    (told) => told.length >= expected,
  );
  assert.equal(terms.length, expected, "one change for each leader that was killed");
  assert.equal(new Set(terms.map(({ epoch }) => epoch)).size, terms.length);
  assert.deepEqual(
    terms.map(({ epoch }) => epoch),
    terms.map(({ epoch }) => epoch).toSorted((a, b) => a - b),
  );
});

test("a clean stop hands over within one interval [40.L5]", async () => {
  await using cluster = await Cluster.start();
  const { leading, standby } = await twoMembers(cluster);
  leading.program.kill("SIGTERM");
  const taken = await msUntil("the handover", () => standby.leads());
  assert.ok(taken < LEASE_S * 1_000, `${Math.round(taken)} ms`);
  assert.equal((await leading.program.end()).code, 0);
});

test("while the database is away requests are told 503 within a second, the leader stands down, and all is well when it is back [80.P1 40.L3]", async () => {
  await using cluster = await Cluster.start();
  const { leading, standby } = await twoMembers(cluster);
  const name = new URL(cluster.databaseUrl).pathname.slice(1);
  const admin = databases.server.url;
  const away = async (on: boolean): Promise<void> => {
    await databases.run(admin, `ALTER DATABASE ${name} ALLOW_CONNECTIONS ${on ? "false" : "true"}`);
    if (on)
      await databases.run(admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${name}'`);
  };
  await away(true);
  const start = systemClock.mono();
  const status = await leading.cordon(true, 5_000);
  assert.equal(status, 503);
  assert.ok(systemClock.mono() - start < 2_500, "the answer was quick");
  await msUntil("the leader standing down", async () => !(await leading.leads()));
  assert.equal(await standby.leads(), false, "nobody takes over without the store");
  assert.ok(((await standby.leader())?.store_silent_s ?? null) !== null);
  await away(false);
  await msUntil("one that leads", async () => (await leading.leads()) || (await standby.leads()));
  const told = await eventually(
    "what happened meanwhile",
    () => cluster.store.events({ limit: 100 }),
    (events) => events.some(({ kind }) => kind === "leaderStoodDown"),
  );
  assert.ok(told.some(({ why }) => why.includes("blind")));
});
