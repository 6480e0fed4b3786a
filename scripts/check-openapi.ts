// Holds docs/reference/openapi-*.json against the running servers: starts `yardmaster up` in an empty folder and has schemathesis ask each
// route of both documents, with requests that fit their schema and requests that don't. 0 failures, or exit code 1.
// Schemathesis comes from the Python package index, once, into node_modules/.cache; it needs python3 3.10 or newer with venv.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../src/kernel/clock.ts";

const SCHEMATHESIS = "schemathesis==4.32.5";
const STARTED_MS_MAX = 60_000;
const RUN_MS_MAX = 600_000;

const root = join(import.meta.dirname, "..");
const venv = join(root, "node_modules/.cache/schemathesis");
const program = join(venv, "bin/schemathesis");

const CONFIG = `listen: 127.0.0.1:0
control: {catalog: {file: catalog.yaml}}
upstreams: []
`;
const CATALOG = `models:
  - name: sim-model
    replicas: {min: 1}
    profiles: [{engine: sim, cpu: {cores: 0.1, memory_gb: 0.1}, args: {prefill-tps: 0, decode-tps: 0}}]
`;

function run(command: string, args: readonly string[], cwd: string): number {
  const { status, error } = spawnSync(command, args, {
    cwd,
    stdio: ["ignore", "inherit", "inherit"],
    timeout: RUN_MS_MAX,
  });
  if (error !== undefined) console.error(`check:openapi: ${command}: ${error.message}`);
  return status ?? 1;
}

function installed(): boolean {
  if (existsSync(program) && spawnSync(program, ["--version"]).status === 0) return true;
  const made =
    run("python3", ["-m", "venv", venv], root) === 0 &&
    run(join(venv, "bin/pip"), ["-q", "install", SCHEMATHESIS], root) === 0;
  if (!made)
    console.error("check:openapi: needs python3 3.10 or newer with venv (Debian: python3-venv), and its package index");
  return made;
}

interface Addresses {
  readonly gateway: string;
  readonly control: string;
}

async function addressesIn(folder: string): Promise<Addresses> {
  const path = join(folder, "data/addresses.json");
  for (let waited = 0; waited < STARTED_MS_MAX; waited += 100) {
    if (existsSync(path)) return JSON.parse(readFileSync(path, "utf8")) as Addresses;
    await systemClock.sleep(100, new AbortController().signal);
  }
  throw new Error("yardmaster up did not start");
}

/** A first call, so that the model is there when the documents are held against the servers. */
async function firstAnswer(gateway: string, key: string): Promise<void> {
  const body = JSON.stringify({ model: "sim-model", messages: [{ role: "user", content: "Hello." }] });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const answer = await fetch(`${gateway}/v1/chat/completions`, { method: "POST", headers, body });
  if (answer.status !== 200) throw new Error(`the first call was answered ${answer.status}`);
}

async function main(): Promise<number> {
  if (!installed()) return 1;
  const folder = mkdtempSync(join(tmpdir(), "yardmaster-openapi-"));
  writeFileSync(join(folder, "yardmaster.yaml"), CONFIG, { mode: 0o600 });
  writeFileSync(join(folder, "catalog.yaml"), CATALOG);
  const up = spawn(join(root, "bin/yardmaster"), ["up", "--listen", "127.0.0.1:0"], {
    cwd: folder,
    stdio: "ignore",
  });
  const ended = new Promise<void>((resolve) => up.once("exit", () => resolve()));
  try {
    const addresses = await addressesIn(folder);
    const key = readFileSync(join(folder, "data/operator.key"), "utf8").trim();
    await firstAnswer(addresses.gateway, key);
    // The gateway first: what is asked of the control plane changes what it serves.
    const codes = (["gateway", "control"] as const).map((listener) =>
      run(
        program,
        [
          `--config-file=${join(root, "scripts/reference/openapi", `schemathesis-${listener}.toml`)}`,
          "run",
          join(root, `docs/reference/openapi-${listener}.json`),
          `--url=${addresses[listener]}`,
          `--header=Authorization: Bearer ${key}`,
          ...process.argv.slice(2),
        ],
        folder,
      ),
    );
    return codes.every((code) => code === 0) ? 0 : 1;
  } finally {
    up.kill("SIGINT");
    await ended;
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

process.exitCode = await main();
