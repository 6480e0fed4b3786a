// B8, B11, B14: what a decision of admission costs with 10 000 waiting, what people feel of a full batch load, and what more upstreams
// and keys cost a call: `node bench/admission.ts [--rounds N] [--write]`. B8 is the pure pool; the others are gateways as processes of
// their own, with a simulated engine and the client beside them.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AdmissionPool } from "../src/decide/admission/admission-pool.ts";
import { asMono } from "../src/kernel/clock.ts";
import { hashKey } from "../src/contract/key-hash.ts";
import { aTask, call } from "../test/e2e/support/calls.ts";
import { median, quantile } from "../test/e2e/support/ledger-check.ts";
import { CLIENT_KEY, programFolder, reach, runProgram, RunningProgram } from "../test/e2e/support/program.ts";
import { roomyEngine, sharedUpstream } from "../test/e2e/support/shared-world.ts";
import { machine, showTable } from "./page-table.ts";

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "7" }, write: { type: "boolean", default: false } },
});
const ROUNDS = Number(values.rounds);
const WAITING = 10_000;
const SLOTS = 64;
const KEYS = 200;

function filledPool(): AdmissionPool {
  const limits = {
    slots: SLOTS,
    batchMax: 48,
    batchMinShare: 0.05,
    queueMax: 2 * WAITING,
    queueBytesMax: 2 ** 40,
    queueTimeoutMs: { interactive: 3.6e6, system: 3.6e6, batch: 3.6e6 },
    startTimeoutMs: null,
  };
  const pool = new AdmissionPool(limits, { canTake: () => true, book: () => {} }, asMono(0));
  for (let id = 0; id < WAITING + SLOTS; id += 1) arrive(pool, id, 1);
  pool.takeEvents();
  return pool;
}

const CLASSES = ["interactive", "system", "batch"] as const;
const arrive = (pool: AdmissionPool, id: number, now: number): void =>
  void pool.arrive(
    {
      id,
      class: CLASSES[id % 3]!,
      key: `key-${id % KEYS}`,
      weight: 1 + (id % 2),
      bytes: 1_000,
      group: "",
      deadline: undefined,
    },
    asMono(now),
  );

/** Microseconds of one end with the admission that follows and one arrival, with as many waiting before as after. */
function decisionUs(): number {
  const pool = filledPool();
  const running = Array.from({ length: SLOTS }, (_, id) => id);
  let next = WAITING + SLOTS;
  const steps = 20_000;
  const begin = process.cpuUsage();
  for (let step = 0; step < steps; step += 1) {
    pool.end(running.shift()!, asMono(2 + step));
    for (const event of pool.takeEvents()) if (event.kind === "admitted") running.push(event.id);
    arrive(pool, next++, 2 + step);
  }
  const { user, system } = process.cpuUsage(begin);
  return (user + system) / steps;
}

/** Bytes of heap for each that waits, without its body. */
function waiterBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  const before = process.memoryUsage().heapUsed;
  const pool = filledPool();
  collect();
  const bytes = (process.memoryUsage().heapUsed - before) / WAITING;
  if (pool.view().waiting.batch === 0) throw new Error("nobody waits");
  return bytes;
}

const ENGINE_MS = 200;
const PEOPLE = 8;
const WARM_UP_CALLS = 4_000;
const SETTLED_CALLS = 800;
const BATCH_LOAD = new URL("batch-load.ts", import.meta.url).pathname;

/**
 * A7 at ten times its size: the 95th percentile of people's calls under the batch load, over the one without it. Engine and load are
 * processes of their own: in one with the clock, what they do when a whole round of batch calls ends together would be timed too.
 */
async function feltLoad(): Promise<number> {
  await using engine = runProgram(["sim-engine", "--listen", "127.0.0.1:0", "--model", "m", "--slots", "256"]);
  const url = `http://127.0.0.1:${await engine.ready()}`;
  const rule = await fetch(`${url}/sim/script`, {
    method: "POST",
    body: JSON.stringify({ do: { delayHeadMs: ENGINE_MS } }),
  });
  if (!rule.ok) throw new Error(`the engine takes no rule: ${await rule.text()}`);
  await using folder = await programFolder({ upstreams: [sharedUpstream(url, 160, { batch_max: 80 })] });
  await using program = runProgram(["gateway", "--config", folder.config, "--log-level", "error"]);
  const port = await program.ready();
  const gateway = reach(port);
  const body = aTask({ tokens: 1 });
  const people = async (): Promise<number> => {
    const took: number[] = [];
    const one = async (): Promise<void> => {
      for (let i = 0; i < 12; i += 1) took.push((await call(gateway, { body, class: "interactive" })).tookMs);
    };
    await Promise.all(Array.from({ length: PEOPLE }, one));
    return quantile(took, 0.95);
  };
  const opened = async (atLeast: number): Promise<number> => {
    const told = await fetch(`${url}/sim/ledger/wait?opened=${atLeast}&timeout_ms=120000`);
    if (!told.ok) throw new Error(`the engine never had ${atLeast} calls`);
    return ((await told.json()) as { opened: number }).opened;
  };
  /** What `act` gives while the batch load runs, which has made so many calls before. */
  const underLoad = async <T>(callsBefore: number, act: () => Promise<T>): Promise<T> => {
    await using load = new RunningProgram(process.execPath, [BATCH_LOAD, String(port), "240"]);
    await opened((await opened(0)) + callsBefore);
    const result = await act();
    load.kill("SIGTERM");
    const { code, err } = await load.end();
    if (code !== 0) throw new Error(`the batch load failed: ${err}`);
    return result;
  };
  // A gateway that has just started takes several times as long for a call.
  await underLoad(WARM_UP_CALLS, people);
  const alone = await people();
  const loaded = await underLoad(SETTLED_CALLS, people);
  return loaded / alone;
}

/** Microseconds of the gateway's processor for a small call, with so many further upstreams, models and keys in its file. */
async function callUs(others: number): Promise<number> {
  const engine = await roomyEngine();
  const more = Array.from({ length: others }, (_, at) => ({
    id: `other-${at}`,
    models: [`other-${at}`, `alias-${at}`],
    slots: 4,
    health: "passive",
    endpoints: [{ url: engine.url }],
  }));
  const keys = Array.from({ length: others * 10 }, (_, at) => ({
    id: `k${at}`,
    hash: `sha256:${hashKey(`key ${at}`)}`,
  }));
  keys.push({ id: "client", hash: `sha256:${hashKey(CLIENT_KEY)}` });
  await using folder = await programFolder({
    auth: { mode: "keys", keys },
    upstreams: [...more, sharedUpstream(engine.url, 64)],
  });
  await using program = runProgram(["gateway", "--config", folder.config, "--log-level", "error"]);
  const gateway = reach(await program.ready());
  const body = aTask({ tokens: 1 });
  const calls = async (count: number): Promise<void> => {
    let left = count;
    const lane = async (): Promise<void> => {
      while (left-- > 0) await call(gateway, { body });
    };
    await Promise.all(Array.from({ length: 8 }, lane));
  };
  await calls(1_500);
  const before = cpuMs(program.pid);
  await calls(3_000);
  const spent = cpuMs(program.pid) - before;
  await engine.close();
  return (spent * 1_000) / 3_000;
}

/** Of all threads of a process so far, in steps of 10 ms. */
function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

const rounds = <T>(run: () => T): T[] => Array.from({ length: ROUNDS }, run);
rounds(decisionUs);
const decision = median(rounds(decisionUs));
const memory = waiterBytes();
const felt: number[] = [];
const growth: number[] = [];
for (let round = 0; round < Math.ceil(ROUNDS / 2); round += 1) {
  felt.push(await feltLoad());
  growth.push((await callUs(100)) / (await callUs(10)));
}
const grade = (value: number, first: number, goal: number): string =>
  value <= goal ? "goal" : value <= first ? "first stage" : "**missed**";
const row = (bar: string, what: string, value: number, digits: number, first: number, goal: number): string =>
  `| ${bar} | ${what} | ${value.toFixed(digits)} | ≤ ${first} | ≤ ${goal} | ${grade(value, first, goal)} |`;
showTable(
  "admission",
  [
    `Machine: ${machine()}; medians of ${ROUNDS} rounds (B11 and B14 of ${felt.length}).`,
    "",
    "| bar | what | figure | first stage | goal | |",
    "| --- | --- | --- | --- | --- | --- |",
    row("B8", "an end, the admission that follows and an arrival, CPU µs", decision, 1, 20, 3),
    row("B8", "each that waits, without its body, KiB of heap", memory / 1_024, 2, 4, 1),
    row("B11", "p95 of people's calls under ten times A7's load / alone", median(felt), 2, 1.2, 1.05),
    row(
      "B14",
      "a small call with 100 upstreams, 200 models and 1 000 keys / with 10, 20 and 100",
      median(growth),
      2,
      1.3,
      1.05,
    ),
  ],
  values.write,
);
