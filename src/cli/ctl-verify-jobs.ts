import type { z } from "zod";
import { isOpen } from "../contract/job.ts";
import { jobView } from "../contract/job-view.ts";
import { failed, notRun, passed, type StepOutcome } from "./ctl-verify-judge.ts";
import { said, type Findings } from "./ctl-verify-calls.ts";
import { chatBody, codeOf, type VerifiedGateway } from "./ctl-verify-gateway.ts";

const job = jobView.pick({ id: true, state: true, attempts: true, error: true });
type Job = z.output<typeof job>;

const WAIT_S = 30;
const ENDED_MS_MAX = 300_000;
const LOOK_MS = 200;
/** A job that is to be met at work has to last longer than a restart takes. */
const LONG_TOKENS_TIMES = 20;

/** From the submission to the result's bytes. */
export async function checkJob(gateway: VerifiedGateway, found: Findings): Promise<StepOutcome> {
  const startedAt = gateway.clock.mono();
  const submitted = await submit(gateway, found, found.tokens);
  if (typeof submitted === "string") return failed(submitted);
  const ended = await untilEnded(gateway, submitted.id);
  const ms = Math.round(gateway.clock.mono() - startedAt);
  if (ended.state !== "completed") return failed(`${ended.id} ${wordsOf(ended)} after ${ms} ms`);
  const result = await gateway.get(`/v1/jobs/${ended.id}/result`);
  if (result.status !== 200 || !result.text.includes("choices")) return failed(`the result ${said(result)}`);
  found.finishedJob = ended.id;
  return passed(
    `${ended.id} completed in ${ms} ms, attempts ${ended.attempts}, result of ${result.text.length} characters`,
  );
}

/** A job that is at work when the gateway is restarted comes to its result all the same. `restart` resolves when it is back. */
export async function checkRestart(
  gateway: VerifiedGateway,
  found: Findings,
  restart: (() => Promise<void>) | undefined,
): Promise<StepOutcome> {
  if (restart === undefined) return notRun("nobody can restart the gateway: give --restart-command, or --ask");
  const before = (await gateway.health()).started_at;
  const submitted = await submit(gateway, found, found.tokens * LONG_TOKENS_TIMES);
  if (typeof submitted === "string") return failed(submitted);
  const running = await untilState(gateway, submitted.id, (seen) => seen.state !== "queued");
  if (running.state !== "running")
    return failed(`${running.id} ${wordsOf(running)} before the restart: raise --tokens`);
  const startedAt = gateway.clock.mono();
  await restart();
  const health = await untilBack(gateway);
  const awayMs = Math.round(gateway.clock.mono() - startedAt);
  if (health.started_at === before) return failed(`the gateway was not restarted: it runs since ${before}`);
  const ended = await untilEnded(gateway, submitted.id);
  const figure = `${ended.id} ${wordsOf(ended)}, attempts ${ended.attempts}; the gateway was back after ${awayMs} ms`;
  return ended.state === "completed" ? passed(figure) : failed(figure);
}

/** What is known of a job that has ended: its state, or the code with which it is not found. */
export async function lookUpJob(gateway: VerifiedGateway, id: string): Promise<string> {
  const answer = await gateway.get(`/v1/jobs/${id}`);
  return answer.status === 200
    ? job.parse(JSON.parse(answer.text)).state
    : codeOf(answer.text) || String(answer.status);
}

/** Until the gateway tells of its state again. */
export async function untilBack(gateway: VerifiedGateway): ReturnType<VerifiedGateway["health"]> {
  const until = gateway.clock.mono() + ENDED_MS_MAX;
  for (;;) {
    try {
      const [health, ready] = [await gateway.health(), await gateway.ready()];
      if (ready.status === 200) return health;
    } catch (error) {
      gateway.signal.throwIfAborted();
      if (gateway.clock.mono() >= until) throw new Error("the gateway did not come back", { cause: error });
    }
    await gateway.sleep(LOOK_MS);
  }
}

async function submit(gateway: VerifiedGateway, found: Findings, tokens: number): Promise<Job | string> {
  const path = "/v1/chat/completions";
  const body = { model: found.model, path, body: chatBody(found.model, tokens, false) };
  const answer = await gateway.post("/v1/jobs", body);
  return answer.status === 202 ? job.parse(JSON.parse(answer.text)) : `the submission ${said(answer)}`;
}

const wordsOf = (seen: Job): string => (seen.error === null ? seen.state : `${seen.state} (${seen.error.code})`);
const isOver = (seen: Job): boolean => !isOpen(seen.state);

async function untilEnded(gateway: VerifiedGateway, id: string): Promise<Job> {
  return untilState(gateway, id, isOver);
}

async function untilState(gateway: VerifiedGateway, id: string, met: (seen: Job) => boolean): Promise<Job> {
  const until = gateway.clock.mono() + ENDED_MS_MAX;
  for (;;) {
    const answer = await gateway.get(`/v1/jobs/${id}${met === isOver ? `?wait=${WAIT_S}` : ""}`);
    if (answer.status !== 200) throw new Error(`the job ${id} ${said(answer)}`);
    const seen = job.parse(JSON.parse(answer.text));
    if (met(seen) || isOver(seen)) return seen;
    if (gateway.clock.mono() >= until) throw new Error(`the job ${id} is ${seen.state} after ${ENDED_MS_MAX / 1000} s`);
    await gateway.sleep(LOOK_MS);
  }
}
