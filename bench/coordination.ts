// B9 and B10: what sharing slots through Redis costs a call, and how fast a slot goes from one gateway to another:
// `node bench/coordination.ts [--rounds N] [--write]`. Gateways are processes of their own; client, engine and Redis run beside
// them. Medians; the gateway without Redis is measured in turn with the one with it. --write puts the result into docs/benchmarks.md.
import { parseArgs } from "node:util";
import { systemClock } from "../src/kernel/clock.ts";
import { OwnRedis } from "../src/testing/servers/redis-server.ts";
import { aTask, call, startCall } from "../test/e2e/support/calls.ts";
import { entriesOf, median, quantile } from "../test/e2e/support/ledger-check.ts";
import { programFolder, reach, runProgram, type RunningProgram } from "../test/e2e/support/program.ts";
import { adminOf, roomyEngine, seasonStore, sharedUpstream, shareFile } from "../test/e2e/support/shared-world.ts";
import { machine, showTable } from "./page-table.ts";

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "300" }, write: { type: "boolean", default: false } },
});
const ROUNDS = Number(values.rounds);
/** Calls at once where commands are counted. */
const LANES = 4;
/** What a call must have waited at least to have been there when the slot came free. */
const WAITED_MS = 20;
const never = new AbortController().signal;

interface Row {
  readonly bar: string;
  readonly what: string;
  readonly value: number;
  readonly first: number | null;
  readonly goal: number | null;
}

const redis = await OwnRedis.start();
const admin = adminOf(redis);
await seasonStore(admin);
const engine = await roomyEngine();
const programs: RunningProgram[] = [];
const folders: AsyncDisposable[] = [];

async function gateway(file: Record<string, unknown>, slots: number): Promise<ReturnType<typeof reach>> {
  const folder = await programFolder({ ...file, upstreams: [sharedUpstream(engine.url, slots)] });
  folders.push(folder);
  const program = runProgram(["gateway", "--config", folder.config, "--log-level", "error"]);
  programs.push(program);
  return reach(await program.ready());
}

const steps = async (): Promise<number> => {
  const stats = await admin.info("commandstats");
  return [...stats.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].reduce((sum, found) => sum + Number(found[1]), 0);
};

const small = aTask({ tokens: 1 });

async function perCall(): Promise<Row[]> {
  const alone = await gateway({}, 64);
  const shared = await gateway(shareFile(redis.url, { key_prefix: "bench-call" }), 64);
  await systemClock.sleep(4_000, never);
  const took: Record<"alone" | "shared", number[]> = { alone: [], shared: [] };
  for (let i = 0; i < ROUNDS / 2; i += 1)
    await Promise.all([call(alone, { body: small }), call(shared, { body: small })]);
  for (let i = 0; i < ROUNDS; i += 1) {
    took.alone.push((await call(alone, { body: small })).tookMs);
    took.shared.push((await call(shared, { body: small })).tookMs);
  }
  const before = await steps();
  const lanes = Array.from({ length: LANES }, async () => {
    for (let i = 0; i < ROUNDS; i += 1) await call(shared, { body: small });
  });
  await Promise.all(lanes);
  const spent = (await steps()) - before;
  return [
    {
      bar: "B9",
      what: "added median per call, ms",
      value: median(took.shared) - median(took.alone),
      first: 1,
      goal: 0.3,
    },
    { bar: "B9", what: "commands per admitted call", value: spent / (ROUNDS * LANES), first: 4, goal: 2 },
  ];
}

async function passedOn(): Promise<Row[]> {
  const file = shareFile(redis.url, { key_prefix: "bench-pass" });
  const [a, b] = [await gateway(file, 1), await gateway(file, 1)];
  await systemClock.sleep(4_000, never);
  const gaps: number[] = [];
  for (let round = 0; round < Math.min(ROUNDS, 60); round += 1) {
    const held = startCall(a, { body: aTask({ tokens: 2, delayBetweenMs: 250 }, {}, `held-${round}`) });
    await held.received("data:");
    const next = startCall(b, { body: aTask({ tokens: 1 }, {}, `next-${round}`) });
    const [, answer] = await Promise.all([held.answer, next.answer]);
    if ((answer.queueMs ?? 0) < WAITED_MS) continue; // It came too late to wait.
    const { entries } = engine.ledger();
    const [before] = entriesOf(entries, `held-${round}`);
    const [after] = entriesOf(entries, `next-${round}`);
    gaps.push((after?.openedMs ?? Number.NaN) - (before?.endedMs ?? Number.NaN));
  }
  return [
    {
      bar: "B10",
      what: "end of a call through A to the begin of one through B, median, ms",
      value: median(gaps),
      first: 10,
      goal: 2,
    },
  ];
}

async function frozen(): Promise<Row[]> {
  const shared = await gateway(shareFile(redis.url, { key_prefix: "bench-frozen" }), 128);
  await systemClock.sleep(4_000, never);
  const answers: ReturnType<typeof call>[] = [];
  const at = systemClock.mono();
  redis.pause();
  while (systemClock.mono() - at < 3_000) {
    answers.push(call(shared, { body: small }));
    await systemClock.sleep(5, never);
  }
  const queued = (await Promise.all(answers)).map(({ queueMs }) => queueMs ?? Number.NaN);
  redis.resume();
  const held = queued.filter((ms) => ms > 5);
  return [
    {
      bar: "R1",
      what: "Redis frozen: longest that a call waited for it, ms",
      value: Math.max(...queued),
      first: 110,
      goal: null,
    },
    { bar: "R1", what: `calls that waited, of ${queued.length} in 3 s`, value: held.length, first: null, goal: null },
    {
      bar: "R1",
      what: "the others, 99th percentile, ms",
      value: quantile(
        queued.filter((ms) => ms <= 5),
        0.99,
      ),
      first: 1,
      goal: null,
    },
  ];
}

const rows = [...(await perCall()), ...(await passedOn()), ...(await frozen())];
for (const program of programs) program.kill("SIGTERM");
await Promise.all(programs.map((program) => program.end()));
for (const folder of folders) await folder[Symbol.asyncDispose]();
await redis.close();
admin.disconnect();
await engine.close();

const verdict = ({ value, first, goal }: Row): string => {
  if (goal !== null && value <= goal) return "goal";
  if (first === null) return "";
  return value <= first ? (goal === null ? "holds" : "first stage") : "**missed**";
};
const shown = (value: number): string => (Number.isInteger(value) ? String(value) : value.toFixed(2));
const bound = (value: number | null): string => (value === null ? "–" : `≤ ${value}`);
showTable(
  "coordination",
  [
    `Machine: ${machine()}; Redis on loopback; ${ROUNDS} rounds.`,
    "",
    "| bar | what | figure | first stage | goal | |",
    "| --- | --- | --- | --- | --- | --- |",
    ...rows.map(
      (row) =>
        `| ${row.bar} | ${row.what} | ${shown(row.value)} | ${bound(row.first)} | ${bound(row.goal)} | ${verdict(row)} |`,
    ),
  ],
  values.write,
);
