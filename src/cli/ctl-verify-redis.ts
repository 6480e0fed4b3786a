import type { Findings } from "./ctl-verify-calls.ts";
import { failed, notRun, passed, type StepOutcome } from "./ctl-verify-judge.ts";
import { lookUpJob, untilBack } from "./ctl-verify-jobs.ts";
import { queuedMs, type VerifiedGateway } from "./ctl-verify-gateway.ts";

/** What the operator lets be done to the Redis. */
export interface RedisHandle {
  pause(): Promise<void>;
  resume(): Promise<void>;
}

const CALLS = 8;
const NOTICED_MS_MAX = 10_000;
const SHARED_MS_MAX = 10_000;
const LOOK_MS = 100;
/** One config line, both ways, in under a minute. */
const SWITCH_MS_MAX = 60_000;

/** Without its Redis the gateway serves calls all the same. The Redis is let go on whatever happens. */
export async function checkRedisPaused(
  gateway: VerifiedGateway,
  found: Findings,
  redis: RedisHandle | undefined,
): Promise<StepOutcome> {
  const { mode } = (await gateway.health()).coordination;
  if (mode !== "redis") return notRun("coordination is local: there is no Redis to pause");
  if (redis === undefined)
    return notRun("nobody can pause the Redis: give --redis-pid, or --pause-command and --resume-command");
  try {
    await redis.pause();
    const answers = await Promise.all(Array.from({ length: CALLS }, () => gateway.chat(found.model, found.tokens)));
    const good = answers.filter((answer) => answer.status === 200).length;
    const slowest = Math.round(Math.max(...answers.map((answer) => answer.ms)));
    const waited = Math.max(...answers.map((answer) => queuedMs(answer) ?? 0));
    const figure = `${good} of ${CALLS} calls succeeded, slowest ${slowest} ms, waited ${waited} ms`;
    if (good < CALLS) return failed(figure);
    const noticedMs = await untilStated(gateway, (state) => state !== "shared", NOTICED_MS_MAX);
    return noticedMs === undefined
      ? failed(`${figure}; /health still says that all is shared: was the right Redis paused?`)
      : passed(`${figure}; noticed and said in /health`);
  } finally {
    await redis.resume();
  }
}

/** After the pause all is shared again, by itself. */
export async function checkRedisBack(gateway: VerifiedGateway, wasPaused: boolean): Promise<StepOutcome> {
  if (!wasPaused) return notRun("the Redis was not paused");
  const ms = await untilStated(gateway, (state) => state === "shared", SHARED_MS_MAX);
  return ms === undefined
    ? failed(`not shared again within ${SHARED_MS_MAX / 1000} s`)
    : passed(`shared again after ${Math.round(ms)} ms`);
}

/** To the other mode and back, with the record of a job that ended before. `switchTo` resolves when the change is made. */
export async function checkSwitch(
  gateway: VerifiedGateway,
  found: Findings,
  switchTo: ((mode: "local" | "redis") => Promise<void>) | undefined,
): Promise<StepOutcome> {
  if (switchTo === undefined) return notRun("nobody can change the mode: give --switch-command");
  if (found.finishedJob === undefined) return notRun("no job has ended that could be looked for afterwards");
  const first = (await gateway.health()).coordination.mode;
  const other = first === "redis" ? "local" : "redis";
  const there = await switched(gateway, found, other, switchTo);
  const elsewhere = await lookUpJob(gateway, found.finishedJob);
  const back = await switched(gateway, found, first, switchTo);
  const record = await lookUpJob(gateway, found.finishedJob);
  const figure =
    `${first} to ${other} in ${there.ms} ms and back in ${back.ms} ms; calls ${there.call} and ${back.call}; ` +
    `the job's record: ${elsewhere} under ${other}, ${record} again under ${first}`;
  const wrong = [
    ...[there, back].flatMap((half) => (half.mode === half.wanted ? [] : [`the mode stayed ${half.mode}`])),
    ...[there, back].flatMap((half) => (half.ms > SWITCH_MS_MAX ? ["a switch took longer than a minute"] : [])),
    ...[there, back].flatMap((half) => (half.call === 200 ? [] : [`a call answered ${half.call}`])),
    ...(record === "completed" ? [] : ["the job's record is not intact"]),
  ];
  return wrong.length === 0 ? passed(figure) : failed(`${wrong.join("; ")} — ${figure}`);
}

async function switched(
  gateway: VerifiedGateway,
  found: Findings,
  wanted: "local" | "redis",
  switchTo: (mode: "local" | "redis") => Promise<void>,
): Promise<{ readonly wanted: string; readonly mode: string; readonly ms: number; readonly call: number }> {
  const startedAt = gateway.clock.mono();
  await switchTo(wanted);
  const { mode } = (await untilBack(gateway)).coordination;
  const ms = Math.round(gateway.clock.mono() - startedAt);
  return { wanted, mode, ms, call: (await gateway.chat(found.model, found.tokens)).status };
}

/** How long it took until `/health` said so; undefined if it did not. */
async function untilStated(
  gateway: VerifiedGateway,
  met: (state: string) => boolean,
  msMax: number,
): Promise<number | undefined> {
  const startedAt = gateway.clock.mono();
  while (gateway.clock.mono() - startedAt < msMax) {
    if (met((await gateway.health()).coordination.state)) return gateway.clock.mono() - startedAt;
    await gateway.sleep(LOOK_MS);
  }
  return undefined;
}
