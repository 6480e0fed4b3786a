/** How a step of the acceptance sequence ended. A step that was not run is never one that passed. */
export type StepOutcome =
  | { readonly kind: "passed"; readonly figure: string }
  | { readonly kind: "failed"; readonly figure: string }
  | { readonly kind: "notRun"; readonly why: string };

export const passed = (figure: string): StepOutcome => ({ kind: "passed", figure });
export const failed = (figure: string): StepOutcome => ({ kind: "failed", figure });
export const notRun = (why: string): StepOutcome => ({ kind: "notRun", why });

export interface BacklogSample {
  readonly batchInUse: number;
  readonly batchWaiting: number;
}

/** What a backlog of batch calls, with calls of people fired into it, came to. */
export interface BacklogFacts {
  readonly batchMax: number;
  /** What a person's call may wait, though a slot is free for it. */
  readonly waitMsMax: number;
  /** Batch calls that were sent. */
  readonly offered: number;
  /** States seen while the backlog stood, before anybody else came. */
  readonly samples: readonly BacklogSample[];
  /** Of each: its status, 0 for one that got no answer, and the code of a refusal. */
  readonly batchEnds: readonly { readonly status: number; readonly code: string }[];
  readonly people: readonly { readonly status: number; readonly queuedMs: number | undefined; readonly ms: number }[];
  /** How long the same call took when the gateway was idle. */
  readonly aloneMs: number;
}

/** A person's call may take this much longer than alone: an engine that does more at once does each a little slower. */
const SLOWER_TIMES_MAX = 3;
const SLOWER_MS_MAX = 500;

/** Of a key that may not send batch work, which no longer call would help. */
const FORBIDDEN = "CLASS_FORBIDDEN";

function batchFailed(count: number, { status, code }: BacklogFacts["batchEnds"][number]): string {
  const hint = code === FORBIDDEN ? ": the key needs `--classes interactive,batch`" : "";
  return `${count} batch calls failed (${`${status} ${code}`.trim()})${hint}`;
}

export function judgeBacklog(facts: BacklogFacts): StepOutcome {
  const { batchMax, offered, samples, people, aloneMs } = facts;
  const most = Math.max(0, ...samples.map((sample) => sample.batchInUse));
  const full = samples.find((sample) => sample.batchInUse === batchMax && sample.batchWaiting === offered - batchMax);
  const bad = facts.batchEnds.filter(({ status }) => status !== 200);
  const [first] = bad;
  const slowest = Math.max(0, ...people.map((call) => call.ms));
  const waited = Math.max(0, ...people.map((call) => call.queuedMs ?? 0));
  const figure =
    `${offered} batch calls: ${most} at once of ${batchMax} allowed, ${full === undefined ? "never all of the others" : `${full.batchWaiting}`} waiting; ` +
    `${people.length} interactive calls: waited ${waited} ms, slowest ${Math.round(slowest)} ms (alone ${Math.round(aloneMs)} ms)`;
  const wrong = [
    ...(most > batchMax ? ["batch held more than batch_max"] : []),
    ...(full === undefined && first?.code !== FORBIDDEN
      ? ["the backlog was not seen standing: longer calls may help (--tokens)"]
      : []),
    ...(first === undefined ? [] : [batchFailed(bad.length, first)]),
    ...(people.some((call) => call.status !== 200) ? ["an interactive call failed"] : []),
    ...(people.some((call) => call.queuedMs === undefined) ? ["no queue time was told"] : []),
    ...(waited > facts.waitMsMax ? ["an interactive call waited behind batch"] : []),
    ...(slowest > Math.max(aloneMs * SLOWER_TIMES_MAX, aloneMs + SLOWER_MS_MAX)
      ? ["interactive calls became slow"]
      : []),
  ];
  return wrong.length === 0 ? passed(figure) : failed(`${wrong.join("; ")} — ${figure}`);
}

export interface Tally {
  readonly passed: number;
  readonly failed: number;
  readonly notRun: number;
}

export function tally(outcomes: readonly StepOutcome[]): Tally {
  const count = (kind: StepOutcome["kind"]): number => outcomes.filter((outcome) => outcome.kind === kind).length;
  return { passed: count("passed"), failed: count("failed"), notRun: count("notRun") };
}

/** With `all`, a step that was not run counts as one that failed. */
export const holds = (counts: Tally, all: boolean): boolean => counts.failed === 0 && (!all || counts.notRun === 0);
