import { spawn } from "node:child_process";
import { z } from "zod";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import { EXIT, type CliIo, type Command } from "./cli-io.ts";
import { CTL_OPTIONS, CTL_OPTIONS_HELP, readConnection } from "./ctl-client.ts";
import { checkBacklog, checkCall, checkHealth, checkSlots, type Findings } from "./ctl-verify-calls.ts";
import { VerifiedGateway } from "./ctl-verify-gateway.ts";
import { checkJob, checkRestart, untilBack } from "./ctl-verify-jobs.ts";
import { failed, holds, notRun, tally, type StepOutcome } from "./ctl-verify-judge.ts";
import { checkRedisBack, checkRedisPaused, checkSwitch, type RedisHandle } from "./ctl-verify-redis.ts";

const OPTIONS = {
  ...CTL_OPTIONS,
  model: { type: "string" },
  tokens: { type: "string", default: "64" },
  "client-key-file": { type: "string" },
  "restart-command": { type: "string" },
  ask: { type: "boolean", default: false },
  "redis-pid": { type: "string" },
  "pause-command": { type: "string" },
  "resume-command": { type: "string" },
  "switch-command": { type: "string" },
  all: { type: "boolean", default: false },
} as const;

const HELP = `usage: yardmaster ctl verify [options]

Goes through what a person does before trusting a gateway, and prints each step with its figure: health, a call, a backlog of
batch with people's calls into it, slots seen held and given back, a job, a job across a restart, calls while Redis is paused,
Redis back, and the other coordination mode and back. It needs an idle gateway, a chat model, and a key that may read
/health and send calls of classes interactive and batch. A step that can't be done here is NOT RUN, and never passed.

  --model NAME            chat model (default: the first that is ready)
  --tokens N              length of each answer (default 64): more, where the engine is very fast
  --client-key-file FILE  key for the calls, where the operator's may send none
  --restart-command CMD   restarts the gateway, and returns
  --ask                   asks you to restart it, and waits
  --redis-pid PID         process of the Redis, paused with SIGSTOP for some seconds
  --pause-command CMD --resume-command CMD
                          instead of --redis-pid
  --switch-command CMD    changes \`coordination\` and restarts the gateway; {mode} in it stands for local or redis
  --all                   a step that was not run counts as failed
${CTL_OPTIONS_HELP}`;

type Values = ReturnType<typeof readArgs<typeof OPTIONS>>["values"];

interface Step {
  readonly name: string;
  run(): Promise<StepOutcome>;
}

export const ctlVerify: Command = {
  words: ["ctl", "verify"],
  summary: "go through the acceptance sequence against a running gateway",
  help: HELP,
  async run(args, io) {
    const { values } = readArgs(args, OPTIONS, { names: [] });
    const tokens = Number(values.tokens);
    if (!Number.isInteger(tokens) || tokens < 1 || tokens > 100_000) throw usageError("--tokens: use 1 to 100000");
    const redis = readRedisHandle(values, io);
    const { base, key } = await readConnection(values, io);
    const named = values["client-key-file"];
    const clientKey = named === undefined ? key : (await readConnection({ ...values, "key-file": named }, io)).key;
    const gateway = new VerifiedGateway({ base, operatorKey: key, clientKey, clock: io.clock, signal: io.signal });
    const outcomes = await runSteps(await planSteps(gateway, values, tokens, redis, io), values.json, io);
    const counts = tally(outcomes.map(({ outcome }) => outcome));
    if (values.json) io.out(`${JSON.stringify({ steps: outcomes, ...counts })}\n`);
    else
      io.out(
        `\n${outcomes.length} steps: ${counts.passed} passed, ${counts.failed} failed, ${counts.notRun} NOT RUN\n`,
      );
    return holds(counts, values.all) ? EXIT.done : EXIT.failed;
  },
};

async function planSteps(
  gateway: VerifiedGateway,
  values: Values,
  tokens: number,
  redis: RedisHandle | undefined,
  io: CliIo,
): Promise<readonly Step[]> {
  let reached = false;
  let redisPaused = false;
  let found: Findings | undefined;
  const health: Step = {
    name: "health",
    run: async () => {
      const outcome = await checkHealth(gateway);
      reached = true;
      found = await findModel(gateway, values.model, tokens);
      return found === undefined && values.model !== undefined
        ? failed(`${outcomeText(outcome)}; no upstream of kind openai has the model ${values.model}`)
        : outcome;
    },
  };
  const after = (name: string, run: (found: Findings) => Promise<StepOutcome>): Step => ({
    name,
    run: async () => {
      if (!reached) return notRun("the gateway's state could not be read");
      return found === undefined ? notRun("there is no chat model to call") : run(found);
    },
  });
  return [
    health,
    after("a call", (known) => checkCall(gateway, known)),
    after("batch backlog", (known) => checkBacklog(gateway, known)),
    after("slots", (known) => checkSlots(gateway, known)),
    after("a job", (known) => checkJob(gateway, known)),
    after("restart", (known) => checkRestart(gateway, known, readRestart(gateway, values, io))),
    after("redis paused", async (known) => {
      const outcome = await checkRedisPaused(gateway, known, redis);
      redisPaused = outcome.kind !== "notRun";
      return outcome;
    }),
    after("redis back", () => checkRedisBack(gateway, redisPaused)),
    after("switch", (known) => checkSwitch(gateway, known, readSwitch(values, io))),
  ];
}

async function runSteps(
  steps: readonly Step[],
  quiet: boolean,
  io: CliIo,
): Promise<readonly { readonly step: string; readonly outcome: StepOutcome }[]> {
  const outcomes: { readonly step: string; readonly outcome: StepOutcome }[] = [];
  for (const step of steps) {
    const { name } = step;
    let outcome: StepOutcome;
    try {
      outcome = await step.run();
    } catch (error) {
      io.signal.throwIfAborted();
      outcome = failed(describe(error));
    }
    outcomes.push({ step: name, outcome });
    if (!quiet) io.out(`${lineOf(name, outcome)}\n`);
  }
  return outcomes;
}

const outcomeText = (outcome: StepOutcome): string => (outcome.kind === "notRun" ? outcome.why : outcome.figure);
const WORDS = { passed: "pass   ", failed: "FAIL   ", notRun: "NOT RUN" } as const;
const lineOf = (name: string, outcome: StepOutcome): string =>
  `${WORDS[outcome.kind]}  ${name.padEnd(14)} ${escapeControls(outcomeText(outcome))}`;

/** `fetch` wraps the cause that a person needs. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}

const modelList = z.object({ data: z.array(z.object({ id: z.string(), state: z.string() })) });

/** Undefined: nothing there can be called. */
async function findModel(
  gateway: VerifiedGateway,
  wanted: string | undefined,
  tokens: number,
): Promise<Findings | undefined> {
  const listed = await gateway.get("/v1/models");
  if (listed.status !== 200) throw new Error(`/v1/models answered ${listed.status}: ${listed.text.slice(0, 200)}`);
  const { data } = modelList.parse(JSON.parse(listed.text));
  const model = wanted ?? data.find((card) => card.state === "ready")?.id;
  const { upstreams } = await gateway.health();
  const upstream = upstreams.find(
    ({ kind, models }) => kind === "openai" && model !== undefined && models.includes(model),
  );
  if (model === undefined || upstream === undefined) return undefined;
  return { model, upstreamId: upstream.id, tokens, aloneMs: undefined, finishedJob: undefined };
}

// What the operator lets be done

function readRedisHandle(values: Values, io: CliIo): RedisHandle | undefined {
  const { "redis-pid": pidText, "pause-command": pause, "resume-command": resume } = values;
  if ((pause === undefined) !== (resume === undefined))
    throw usageError("--pause-command and --resume-command come together: what is paused must go on");
  if (pidText !== undefined && pause !== undefined) throw usageError("--redis-pid or --pause-command, not both");
  if (pause !== undefined && resume !== undefined)
    return { pause: () => runCommand(pause, io), resume: () => runCommand(resume, io) };
  if (pidText === undefined) return undefined;
  const pid = Number(pidText);
  if (!Number.isInteger(pid) || pid < 2) throw usageError("--redis-pid: use the number of a process");
  const signal = (name: "SIGSTOP" | "SIGCONT"): Promise<void> => Promise.resolve(void process.kill(pid, name));
  return { pause: () => signal("SIGSTOP"), resume: () => signal("SIGCONT") };
}

function readRestart(gateway: VerifiedGateway, values: Values, io: CliIo): (() => Promise<void>) | undefined {
  const command = values["restart-command"];
  if (command !== undefined) return () => runCommand(command, io);
  if (!values.ask) return undefined;
  return async () => {
    const { started_at: before } = await gateway.health();
    io.err("restart the gateway now; this waits for it to come back\n");
    const until = io.clock.mono() + ASKED_MS_MAX;
    while (io.clock.mono() < until && (await untilBack(gateway)).started_at === before) await gateway.sleep(500);
  };
}

const ASKED_MS_MAX = 300_000;
const COMMAND_MS_MAX = 120_000;

function readSwitch(values: Values, io: CliIo): ((mode: "local" | "redis") => Promise<void>) | undefined {
  const command = values["switch-command"];
  return command === undefined ? undefined : (mode) => runCommand(command.replaceAll("{mode}", mode), io);
}

/** Through the shell, as the operator wrote it. Its output goes where errors go, so that results stay alone on theirs. */
async function runCommand(command: string, io: CliIo): Promise<void> {
  const child = spawn("/bin/sh", ["-c", command], { stdio: ["ignore", "pipe", "pipe"] });
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => io.err(text));
  const timer = io.clock.after(COMMAND_MS_MAX, () => child.kill("SIGKILL"));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", resolve);
  });
  timer.cancel();
  if (code !== 0) throw new Error(`the command ended with ${code ?? "a signal"}: ${command}`);
}
