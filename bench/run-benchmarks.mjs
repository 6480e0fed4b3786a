// `npm run bench -- --only reconcile` measures the control plane's pass alone and needs nothing else. Otherwise:
// `npm run bench -- --only fleet` measures 500 connected agents, and needs nothing else either.
// `npm run bench -- --only admission` measures decisions of admission, people's calls under batch load and growth, and needs nothing else.
// `npm run bench -- --only affinity` measures what prefix affinity brings on four simulated engines, and needs nothing else either.
// `npm run bench -- --only coordination` measures what sharing through Redis costs, and needs redis-server alone.
// Measures the whole product, everything on, beside other proxies: `npm run bench -- --yardstick DIR [--peers DIR] [--repeats N] [--write]`.
// DIR is the folder with gwbench.c, compare.mjs and peers.mjs; --peers names a folder with other gateways as peers.mjs wants them
// (at least v-vllm/ with vllm-router). Needs a C compiler, taskset, nginx, and two processors. --write puts the result into
// docs/benchmarks.md. Every figure is a ratio to a reference of the same run: absolute figures mean nothing on a shared machine.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { BARS, renderReport } from "./report.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** The key that the load generator sends by itself. */
const KEY = "sk-0123456789abcdef0123456789abcdef";
const STUB = 9000;
const OURS = 8200;
/** As the yardstick's configuration for it says. */
const NGINX = 8101;

const { values } = parseArgs({
  options: {
    yardstick: { type: "string" },
    peers: { type: "string" },
    repeats: { type: "string", default: "5" },
    write: { type: "boolean", default: false },
    only: { type: "string", default: "." },
  },
});
const ALONE = {
  reconcile: "reconcile-pass.ts",
  fleet: "fleet.ts",
  board: "board.ts",
  affinity: "affinity.ts",
  admission: "admission.ts",
  coordination: "coordination.ts",
};
for (const [name, file] of Object.entries(ALONE)) {
  if (!new RegExp(values.only).test(name)) continue;
  run("node", [join(ROOT, "bench", file), ...(values.write ? ["--write"] : [])], {});
  if (values.only === name) process.exit(0);
}
if (values.yardstick === undefined || !existsSync(join(values.yardstick, "gwbench.c"))) {
  console.error("npm run bench -- --yardstick DIR: DIR must hold gwbench.c, compare.mjs and peers.mjs");
  process.exit(2);
}
const yardstick = resolve(values.yardstick);
const work = mkdtempSync(join(tmpdir(), "yardmaster-bench-"));
const gwbench = join(work, "gwbench");
execFileSync("cc", ["-O2", "-o", gwbench, join(yardstick, "gwbench.c")]);

const config = join(work, "yardmaster.yaml");
writeFileSync(
  config,
  `listen: 127.0.0.1:${OURS}
data_dir: ${join(work, "data")}
auth: {mode: keys, keys: [{id: bench, hash: "sha256:${createHash("sha256").update(KEY).digest("hex")}"}]}
upstreams:
  - {id: bench, models: [stub-model], slots: 20000, queue: {max: 20000}, health: passive, endpoints: [{url: "http://127.0.0.1:${STUB}"}]}
`,
);
mkdirSync(join(work, "nginx"));
const nginxConf = join(work, "nginx.conf");
writeFileSync(
  nginxConf,
  readFileSync(join(yardstick, "reference", "nginx.conf.in"), "utf8").replaceAll("RUNDIR", join(work, "nginx")),
);
const oursCommand = [join(ROOT, "bin", "yardmaster"), "gateway", "--config", config, "--log-level", "error"];
const targets = [
  { name: "nginx", cmd: ["nginx", "-c", nginxConf], port: NGINX },
  { name: "yardmaster", cmd: oursCommand, port: OURS },
];
const short = ["--duration", "2", "--warmup", "0.5"];
const scenarios = [
  {
    name: "call1k",
    args: ["--conns", "64", "--body", "1024", ...short],
    cols: ["rps", "cpu_us"],
    ratio: ["cpu_us", "rps"],
  },
  {
    name: "call16k",
    args: ["--conns", "64", "--body", "16384", ...short],
    cols: ["rps", "cpu_us"],
    ratio: ["cpu_us", "rps"],
  },
  {
    name: "lockstep",
    args: ["--stream", "--conns", "100", "--chunks", "500", "--interval", "lockstep", ...short],
    cols: ["eps", "cpu_us"],
    ratio: ["cpu_us", "eps"],
  },
  {
    name: "bunched",
    args: ["--stream", "--conns", "100", "--chunks", "5000", "--interval", "blast", ...short],
    cols: ["eps", "cpu_us"],
    ratio: ["cpu_us", "eps"],
  },
  {
    name: "rate1000",
    args: ["--conns", "64", "--rate", "1000", "--duration", "3", "--warmup", "0.5"],
    cols: ["lat_us.p50", "lat_us.p99"],
    ratio: ["lat_us.p50", "lat_us.p99"],
  },
  {
    name: "rate200",
    args: ["--conns", "64", "--rate", "200", "--duration", "3", "--warmup", "0.5"],
    cols: ["cpu_us"],
    ratio: ["cpu_us"],
  },
  {
    name: "streams1000",
    args: [
      "--stream",
      "--conns",
      "1000",
      "--chunks",
      "100",
      "--interval",
      "50000",
      "--ramp-us",
      "700",
      "--warmup",
      "2",
      "--duration",
      "3",
    ],
    cols: ["cpu_us", "chunk_us.p50", "chunk_us.p99"],
    ratio: ["cpu_us", "chunk_us.p50", "chunk_us.p99"],
  },
  {
    name: "idle5000",
    fresh: true,
    args: [
      "--stream",
      "--conns",
      "5000",
      "--chunks",
      "1000",
      "--interval",
      "10000000",
      "--ramp-us",
      "600",
      "--warmup",
      "6",
      "--duration",
      "2",
    ],
    cols: ["rss_start_mb", "rss_end_mb"],
    ratio: [],
  },
  {
    name: "image5m",
    args: ["--conns", "8", "--body", "5242880", "--image", ...short],
    cols: ["rps", "cpu_us", "rss_max_mb"],
    ratio: ["cpu_us", "rps"],
  },
].filter((scenario) => new RegExp(values.only).test(scenario.name));

const prewarm = [
  ["--conns", "64", "--warmup", "0", "--duration", "6"],
  ["--stream", "--conns", "100", "--chunks", "100", "--interval", "lockstep", "--warmup", "0", "--duration", "4"],
];
// A run of its own: thousands of streams that end together leave work behind, which the next scenario would pay for.
const compareRaw = [
  compare("loaded", (scenario) => scenario.fresh !== true),
  compare("idle", (scenario) => scenario.fresh === true),
];

/** Returns the file with the raw results. */
function compare(name, takes) {
  const chosen = scenarios.filter(takes);
  const out = join(work, `${name}.jsonl`);
  if (chosen.length === 0) return out;
  const file = join(work, `${name}.json`);
  writeFileSync(
    file,
    JSON.stringify({ backendPort: STUB, gwCpu: 0, benchCpu: 1, ref: "nginx", prewarm, targets, scenarios: chosen }),
  );
  run("node", [join(yardstick, "compare.mjs"), file, "--out", out, "--repeats", values.repeats], { GWBENCH: gwbench });
  return out;
}

let peersRaw = null;
if (values.peers !== undefined && new RegExp(values.only).test("peers")) {
  const extra = join(work, "extra.json");
  writeFileSync(extra, JSON.stringify([{ name: "yardmaster", port: OURS, cmd: oursCommand }]));
  peersRaw = join(work, "peers.jsonl");
  run(
    "node",
    [
      join(yardstick, "peers.mjs"),
      resolve(values.peers),
      "--repeats",
      values.repeats,
      "--extra",
      extra,
      "--out",
      peersRaw,
      "--scenario",
      "sat1k|lockstep|blast|body5m|rate200",
    ],
    {},
  );
}
const mixed = new RegExp(values.only).test("mixed") ? await measureMixed() : null;
const starts = new RegExp(values.only).test("start") ? await measureStarts() : null;

const report = renderReport({
  compare: compareRaw.flatMap(readLines),
  peers: peersRaw === null ? [] : readLines(peersRaw),
  mixed,
  starts,
  machine: `${cpus().length} cores, ${cpus()[0]?.model ?? "unknown"}`,
  node: process.version,
});
console.log(report);
if (values.write) {
  const page = join(ROOT, "docs", "benchmarks.md");
  const text = readFileSync(page, "utf8");
  const [before] = text.split("<!-- figures -->");
  writeFileSync(page, `${before}<!-- figures -->\n${report}`);
}
console.log(`${BARS.length} bars; raw results in ${work}`);

function run(command, args, env) {
  const done = spawnSync(command, args, { stdio: "inherit", env: { ...process.env, ...env } });
  if (done.status !== 0) throw new Error(`${command} ${args[0]} ended with ${done.status ?? done.signal}`);
}

function readLines(path) {
  if (!existsSync(path)) return [];
  return readFileSync(path, "utf8")
    .trim()
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line));
}

/** B6: what 5 MB image bodies, 8 at once, do to 200 small calls a second beside them; the same through nginx in each round. */
async function measureMixed() {
  const stub = spawn("taskset", ["-c", "1", gwbench, "--listen", String(STUB)], { stdio: "ignore" });
  const nginx = spawn("taskset", ["-c", "0", "nginx", "-c", nginxConf], { stdio: "ignore" });
  const gateway = await startOurs();
  const through = { ours: { port: OURS, pid: gateway.pid }, nginx: { port: NGINX, pid: nginx.pid } };
  const small = (target, seconds) =>
    client(target, ["--conns", "32", "--rate", "200", "--duration", String(seconds), "--warmup", "1"]);
  const images = (target) =>
    client(target, ["--conns", "8", "--body", "5242880", "--image", "--duration", "4", "--warmup", "0.3"]);
  const round = async (target) => {
    const alone = await small(target, 3);
    const [beside, large] = await Promise.all([small(target, 3), images(target)]);
    return {
      aloneMs: alone.lat_us.p99 / 1000,
      besideMs: beside.lat_us.p99 / 1000,
      rssMb: large.rss_max_mb,
      errors: alone.err + beside.err + large.err,
    };
  };
  await small(through.ours, 3);
  const rounds = [];
  for (let i = 0; i < Number(values.repeats); i += 1)
    rounds.push({ ...(await round(through.ours)), nginx: await round(through.nginx) });
  for (const child of [gateway, nginx, stub]) child.kill("SIGTERM");
  return rounds;
}

function client({ port, pid }, args) {
  return new Promise((done, fail) => {
    const child = spawn("taskset", ["-c", "1", gwbench, "--target", String(port), "--pid", String(pid), ...args], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    let text = "";
    child.stdout.on("data", (chunk) => (text += chunk));
    child.on("close", () => {
      try {
        done(JSON.parse(text));
      } catch (error) {
        fail(error);
      }
    });
  });
}

function startOurs() {
  return new Promise((done) => {
    const child = spawn("taskset", ["-c", "0", ...oursCommand], { stdio: ["ignore", "pipe", "ignore"] });
    child.stdout.once("data", () => done(child));
  });
}

/** B16: from the start of the process to its ready line; and of `npm start` to the end of a first answer. */
async function measureStarts() {
  const gateway = [];
  const first = [];
  const idleMb = [];
  for (let i = 0; i < Number(values.repeats) + 1; i += 1) {
    const begin = performance.now();
    const child = await startOurs();
    gateway.push(performance.now() - begin);
    idleMb.push(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1]) / 1024);
    child.kill("SIGTERM");
    await new Promise((done) => child.once("exit", done));
    first.push(await firstAnswer());
  }
  // The first round fills the compile cache, which an installed product has.
  return { gatewayMs: gateway.slice(1), firstAnswerMs: first.slice(1), idleMb: idleMb.slice(1) };
}

async function firstAnswer() {
  const cwd = mkdtempSync(join(work, "up-"));
  const begin = performance.now();
  const child = spawn(
    "npm",
    [
      "--prefix",
      ROOT,
      "start",
      "--",
      "--config",
      join(cwd, "y.yaml"),
      "--data-dir",
      join(cwd, "data"),
      "--listen",
      "127.0.0.1:0",
    ],
    { cwd, stdio: ["ignore", "pipe", "ignore"], detached: true },
  );
  writeFileSync(join(cwd, "y.yaml"), "upstreams: []\n");
  let text = "";
  await new Promise((done) =>
    child.stdout.on("data", (chunk) => ((text += chunk), text.includes("Ctrl-C") ? done() : undefined)),
  );
  const [, url, key, body] = /curl -N (\S+) -H "Authorization: Bearer (\S+)" .* -d '(.*)'/.exec(text) ?? [];
  const answer = await fetch(url, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body,
  });
  await answer.body.getReader().read();
  const took = performance.now() - begin;
  process.kill(-child.pid, "SIGTERM");
  await new Promise((done) => child.once("exit", done));
  return took;
}
