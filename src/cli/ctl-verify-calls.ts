import { failed, judgeBacklog, notRun, passed, type BacklogSample, type StepOutcome } from "./ctl-verify-judge.ts";
import {
  codeOf,
  held,
  inUse,
  queuedMs,
  type Answer,
  type VerifiedGateway,
  type VerifiedUpstream,
} from "./ctl-verify-gateway.ts";

/** What the steps find out on the way and those after them need. */
export interface Findings {
  readonly model: string;
  readonly upstreamId: string;
  readonly tokens: number;
  /** How long one call takes when nothing else runs; set by the step that makes one. */
  aloneMs: number | undefined;
  /** A job that has ended well, to be found again. */
  finishedJob: string | undefined;
}

/** Batch calls have to outlast the arrival of them all. */
const BATCH_TOKENS_TIMES = 4;
/** Where slots are shared, a call asks for its lease first; that takes one step of coordination, not a turn behind batch. */
const LEASE_MS_MAX = 100;
const PEOPLE = 4;
const OFFERED_MAX = 512;
const SETTLED_MS_MAX = 15_000;
const STANDING_MS_MAX = 10_000;
const LOOK_MS = 20;
const DRAINED_MS_MAX = 10_000;

export async function checkHealth(gateway: VerifiedGateway): Promise<StepOutcome> {
  const [ready, health] = [await gateway.ready(), await gateway.health()];
  const able = health.upstreams.filter((upstream) => upstream.available).length;
  const { mode, state, reason } = health.coordination;
  const figure = `version ${health.version}, coordination ${mode} (${state}), ${able} of ${health.upstreams.length} upstreams can take work`;
  if (ready.status !== 200) return failed(`/readyz answered ${ready.status} ${codeOf(ready.text)} — ${figure}`);
  return mode === "redis" && state !== "shared" ? failed(`${figure}: ${reason ?? "not shared"}`) : passed(figure);
}

export async function checkCall(gateway: VerifiedGateway, found: Findings): Promise<StepOutcome> {
  const answer = await gateway.chat(found.model, found.tokens);
  if (answer.status !== 200) return failed(said(answer));
  found.aloneMs = answer.ms - (queuedMs(answer) ?? 0);
  return passed(
    `${found.model} answered in ${Math.round(answer.ms)} ms, after ${queuedMs(answer) ?? "-"} ms of waiting`,
  );
}

/** The reference case: a backlog of batch, and people's calls into it. */
export async function checkBacklog(gateway: VerifiedGateway, found: Findings): Promise<StepOutcome> {
  const upstream = await settledUpstreamOf(gateway, found);
  if (inUse(upstream) > 0) return failed(`others use the upstream ${upstream.id}: the case needs it to be idle`);
  const people = Math.min(PEOPLE, upstream.slots - upstream.batch_max);
  if (people < 1) return notRun(`batch_max leaves no slot of the upstream ${upstream.id} to people`);
  if (found.aloneMs === undefined) return notRun("no call succeeded that this could be compared with");
  const offered = Math.min(3 * upstream.batch_max, OFFERED_MAX);
  const tokens = found.tokens * BATCH_TOKENS_TIMES;
  const batch = Array.from({ length: offered }, () => gateway.chat(found.model, tokens, "batch"));
  const ended = Promise.allSettled(batch);
  const samples = await watchBacklog(gateway, found, offered);
  const answers = await Promise.all(
    Array.from({ length: people }, () => gateway.chat(found.model, found.tokens, "interactive")),
  );
  const batchEnds = (await ended).map((end) =>
    end.status === "fulfilled" ? { status: end.value.status, code: codeOf(end.value.text) } : { status: 0, code: "" },
  );
  return judgeBacklog({
    batchMax: upstream.batch_max,
    waitMsMax: upstream.sharing === null ? 0 : LEASE_MS_MAX,
    offered,
    samples,
    batchEnds,
    people: answers.map((answer) => ({ status: answer.status, queuedMs: queuedMs(answer), ms: answer.ms })),
    aloneMs: found.aloneMs,
  });
}

/** A gateway that has just met its Redis takes a part of the slots only, for some seconds. */
async function settledUpstreamOf(gateway: VerifiedGateway, found: Findings): Promise<VerifiedUpstream> {
  const until = gateway.clock.mono() + SETTLED_MS_MAX;
  for (;;) {
    const upstream = await upstreamOf(gateway, found);
    if (upstream.sharing?.settling !== true || gateway.clock.mono() >= until) return upstream;
    await gateway.sleep(LOOK_MS);
  }
}

/** Until all of the backlog has come, or it is clear that it won't be seen standing. */
async function watchBacklog(gateway: VerifiedGateway, found: Findings, offered: number): Promise<BacklogSample[]> {
  const samples: BacklogSample[] = [];
  const until = gateway.clock.mono() + STANDING_MS_MAX;
  let most = 0;
  while (gateway.clock.mono() < until) {
    const upstream = await upstreamOf(gateway, found);
    samples.push({ batchInUse: upstream.in_use.batch, batchWaiting: upstream.queue.waiting.batch });
    const seen = upstream.in_use.batch + upstream.queue.waiting.batch;
    if ((upstream.in_use.batch >= upstream.batch_max && seen >= offered) || seen < most) break;
    most = seen;
    await gateway.sleep(LOOK_MS);
  }
  return samples;
}

/** What calls hold while they run is seen, leases where slots are shared, and is nothing when they have ended. */
export async function checkSlots(gateway: VerifiedGateway, found: Findings): Promise<StepOutcome> {
  const running = gateway.chat(found.model, found.tokens);
  const over = running.then(
    () => true,
    () => true,
  );
  const { sharing } = await upstreamOf(gateway, found);
  let most = 0;
  for (;;) {
    most = Math.max(most, held(await upstreamOf(gateway, found)));
    const done = await Promise.race([over, gateway.sleep(LOOK_MS).then(() => false)]);
    if (done || most > 0) break;
  }
  const answer = await running;
  const startedAt = gateway.clock.mono();
  let left = held(await upstreamOf(gateway, found));
  while (left > 0 && gateway.clock.mono() - startedAt < DRAINED_MS_MAX) {
    await gateway.sleep(LOOK_MS);
    left = held(await upstreamOf(gateway, found));
  }
  const figure = `${most} ${sharing === null ? "slots" : "leases"} held while a call ran, ${left} ${Math.round(gateway.clock.mono() - startedAt)} ms after it`;
  if (answer.status !== 200) return failed(said(answer));
  if (most === 0) return failed(`no slot was seen held — ${figure}`);
  return left === 0 ? passed(figure) : failed(figure);
}

export async function upstreamOf(gateway: VerifiedGateway, found: Findings): Promise<VerifiedUpstream> {
  const upstream = (await gateway.health()).upstreams.find((candidate) => candidate.id === found.upstreamId);
  if (upstream === undefined) throw new Error(`the upstream ${found.upstreamId} is gone`);
  return upstream;
}

export const said = (answer: Answer): string =>
  `answered ${answer.status} ${codeOf(answer.text)} ${answer.text.replaceAll(/\s+/g, " ").slice(0, 200)}`;
