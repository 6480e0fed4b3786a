// What boards cost the control plane that serves them: `npm run bench -- --only board`, or `node bench/board.ts [--boards N] [--nodes N]
// [--models N] [--seconds S] [--write]`. The control plane is in this process, with a fleet that is made up here: every node has 8 cards
// whose use, memory and heat change with each report, every 2 s; each model has two replicas. The boards are read by a process of their
// own, which unpacks what it gets. --write puts the result into docs/benchmarks.md.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { parseArgs } from "node:util";
import { BOARD_ROUTES } from "../src/contract/board.ts";
import { controlSection } from "../src/contract/control-schema.ts";
import { NO_LIMITS } from "../src/contract/gateway-config.ts";
import { newKey } from "../src/contract/key-hash.ts";
import { REQUEST_CLASSES } from "../src/contract/request-class.ts";
import { resolveControl } from "../src/contract/resolve-control.ts";
import { ControlPlane } from "../src/control/control-plane.ts";
import type { ClusterSnapshot, ClusterView, SeenNode } from "../src/control/view/cluster-view.ts";
import { systemClock } from "../src/kernel/clock.ts";
import { silentLogger } from "../src/kernel/log.ts";
import { seededRandom } from "../src/kernel/random.ts";
import { parsePrometheus } from "../src/testing/exposition-parser.ts";
import { aCatalog, aModel, aNodeDoc, aNodeReport, aReplicaDoc, someGpus } from "../src/testing/fleet-builders.ts";

const { values } = parseArgs({
  options: {
    boards: { type: "string", default: "50" },
    nodes: { type: "string", default: "1000" },
    models: { type: "string", default: "2000" },
    seconds: { type: "string", default: "20" },
    write: { type: "boolean", default: false },
    /** The other process: reads so many boards of this address with this cookie. */
    read: { type: "string" },
    cookie: { type: "string", default: "" },
  },
});
const [BOARDS, NODES, MODELS, SECONDS] = [values.boards, values.nodes, values.models, values.seconds].map(Number) as [
  number,
  number,
  number,
  number,
];
const REPORT_MS = 2_000;
const CARDS = 8;
const never = new AbortController().signal;
const sleep = (ms: number): Promise<void> => systemClock.sleep(ms, never);

const BEGIN = "<!-- board: written by `npm run bench -- --only board --write` -->";
const END = "<!-- /board -->";

async function readBoards(url: string, cookie: string): Promise<void> {
  const open = async (): Promise<void> => {
    const answer = await fetch(url + BOARD_ROUTES.stream, { headers: { cookie, "accept-encoding": "gzip" } });
    for await (const _ of answer.body ?? []) continue;
  };
  const all = Array.from({ length: BOARDS }, open);
  process.stdout.write("reading\n");
  await Promise.all(all);
}

/** A fleet whose nodes report one after the other, as agents do. */
class MadeUpFleet {
  readonly #random = seededRandom(60);
  readonly #nodes: SeenNode[];
  readonly #base: Omit<ClusterSnapshot, "nodes">;

  constructor() {
    const models = Array.from({ length: MODELS }, (_, at) => aModel(`model-${at}`, { replicas: { min: 2, max: 2 } }));
    const replicas = models.flatMap((model, at) =>
      [0, 1].map((copy) =>
        aReplicaDoc(`replica-${at}-${copy}`, model, `node-${(2 * at + copy) % NODES}`, { state: "ready" }),
      ),
    );
    const use = new Map(replicas.map(({ id }) => [id, { inFlight: 1, idleMs: 0 }]));
    const none = { models: [], memory: [], unplaced: new Map<string, string>(), restored: false };
    this.#base = { catalog: aCatalog(models), replicas, use, ...none };
    this.#nodes = Array.from({ length: NODES }, (_, at) => this.#report(at));
  }

  get snapshot(): ClusterSnapshot {
    return { ...this.#base, nodes: [...this.#nodes] };
  }

  /** A part of the nodes has reported. */
  step(from: number, to: number): void {
    for (let at = from; at < to; at += 1) this.#nodes[at] = this.#report(at);
  }

  #report(at: number): SeenNode {
    const id = `node-${at}`;
    const gpus = someGpus(id, CARDS).map((gpu) => ({
      ...gpu,
      utilization: this.#random.next(),
      temperatureC: 40 + Math.round(40 * this.#random.next()),
      usedMib: Math.round(100_000 + 1_000 * this.#random.next()),
    }));
    return { doc: aNodeDoc(id), state: "ready", silentMs: 500, report: aNodeReport(id, { gpus }) };
  }
}

interface Cost {
  readonly boards: number;
  /** Of one core, in percent. */
  readonly cpu: number;
  readonly kibPerBoard: number;
  readonly lookMs: number;
  readonly delayMs: number;
}

async function measureAll(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "yardmaster-boards-"));
  const fleet = new MadeUpFleet();
  const { key, hash } = newKey();
  const shared = { role: "admin" as const, classes: REQUEST_CLASSES, models: null, weight: 1 };
  const apiKey = { id: "bench", hash, limits: NO_LIMITS, allowExternal: false, expiresAt: null, ...shared };
  const plane = await ControlPlane.start({
    settings: resolveControl(controlSection.parse({}), "127.0.0.1:0"),
    auth: { mode: "keys", allowInsecure: false, keys: [apiKey] },
    sessionKeys: [],
    dataDir: folder,
    databaseUrl: null,
    signingSecrets: null,
    clock: systemClock,
    log: silentLogger,
    version: "bench",
    otel: null,
    makeView: (live) => withFleet(live, fleet),
  });
  const url = `http://${plane.address}`;
  const signedIn = await fetch(url + BOARD_ROUTES.session, {
    method: "POST",
    headers: { "content-type": "application/json", origin: url },
    body: JSON.stringify({ key: key.reveal() }),
  });
  const cookie = (signedIn.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
  const costs: Cost[] = [];
  for (const boards of [0, 1, BOARDS]) costs.push(await measure(fleet, url, cookie, boards));
  await plane.stop();
  rmSync(folder, { recursive: true, force: true });
  tell(costs);
}

function withFleet(live: ClusterView, fleet: MadeUpFleet): ClusterView {
  const bound = new Proxy(live, {
    get: (target, name) => {
      const found: unknown = Reflect.get(target, name);
      return typeof found === "function" ? (found.bind(target) as unknown) : found;
    },
  });
  return Object.assign(Object.create(bound) as ClusterView, { snapshot: () => Promise.resolve(fleet.snapshot) });
}

async function measure(fleet: MadeUpFleet, url: string, cookie: string, boards: number): Promise<Cost> {
  const reader = boards === 0 ? null : await startReader(url, cookie, boards);
  await sleep(3_000);
  const before = await figures(url);
  const cpuBefore = process.cpuUsage();
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const startedAt = systemClock.mono();
  // Every node in two seconds, a tenth of them at a time.
  const parts = 10;
  for (let part = 0; systemClock.mono() - startedAt < SECONDS * 1_000; part = (part + 1) % parts) {
    fleet.step(Math.floor((part * NODES) / parts), Math.floor(((part + 1) * NODES) / parts));
    await sleep(REPORT_MS / parts);
  }
  const seconds = (systemClock.mono() - startedAt) / 1_000;
  const { user, system } = process.cpuUsage(cpuBefore);
  const after = await figures(url);
  delay.disable();
  if (reader !== null) {
    const closed = once(reader, "close");
    reader.kill("SIGKILL");
    await closed;
  }
  const looks = after.looks - before.looks;
  return {
    boards,
    cpu: (user + system) / 1e4 / seconds,
    kibPerBoard: boards === 0 ? 0 : (after.bytes - before.bytes) / 1_024 / seconds / boards,
    lookMs: looks === 0 ? 0 : ((after.lookSeconds - before.lookSeconds) / looks) * 1_000,
    delayMs: delay.percentile(99) / 1e6,
  };
}

async function startReader(url: string, cookie: string, boards: number) {
  const args = [import.meta.filename, "--read", url, "--cookie", cookie, "--boards", String(boards)];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  await once(child.stdout, "data");
  return child;
}

async function figures(url: string): Promise<{ bytes: number; looks: number; lookSeconds: number }> {
  const page = parsePrometheus(await (await fetch(`${url}/metrics`)).text());
  const of = (name: string): number =>
    page.flatMap(({ samples }) => samples).find((sample) => sample.name === name)?.value ?? 0;
  return {
    bytes: of("yardmaster_board_sent_bytes_total"),
    looks: of("yardmaster_board_look_seconds_count"),
    lookSeconds: of("yardmaster_board_look_seconds_sum"),
  };
}

function tell(costs: readonly Cost[]): void {
  const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? "CPU"}`;
  const rows = costs.map(
    ({ boards, cpu, kibPerBoard, lookMs, delayMs }) =>
      `| ${boards} | ${cpu.toFixed(1)} % | ${kibPerBoard.toFixed(0)} | ${lookMs.toFixed(0)} | ${delayMs.toFixed(0)} |`,
  );
  const text = `${NODES} nodes × ${CARDS} cards, all of which change every ${REPORT_MS / 1_000} s, and ${MODELS} models with two replicas each; ${SECONDS} s each, on ${machine}.

| boards open | CPU of one core | KiB/s to each | ms for a look | event loop delay p99, ms |
| --- | --- | --- | --- | --- |
${rows.join("\n")}
`;
  process.stdout.write(text);
  if (values.write) writeSection(text);
}

function writeSection(text: string): void {
  const path = join(import.meta.dirname, "..", "docs", "benchmarks.md");
  const page = readFileSync(path, "utf8");
  const [head, rest] = page.split(BEGIN);
  const tail = rest?.split(END)[1];
  if (head === undefined || tail === undefined) throw new Error(`${path} has no place for it`);
  writeFileSync(path, `${head}${BEGIN}\n\n${text}\n${END}${tail}`);
}

if (values.read !== undefined) await readBoards(values.read, values.cookie);
else await measureAll();
