import type { ShardFailure, ShardState } from "../../contract/fleet.ts";
import type { Markers } from "./launch/launch-plan.ts";
import { observeStart, progressAt, type HealthStage, type StartProgress } from "./start-progress.ts";

/**
 * The life of one engine on this node, as a step from what is known and seen to what is known and done. The shell looks, asks
 * and acts; nothing else decides.
 *
 * Invariants:
 *   L1. An engine is started once in a life. A life that ended does not begin again: the control plane places anew.
 *   L2. "stopped" and "failed" are only said when no process is left and the cards were seen free, or can't be seen.
 *   L3. SIGKILL comes after the grace, never before; it comes at once only to what is left of an engine whose first process has ended.
 *   L4. An end that was asked for is no failure; any other is, whatever its code.
 */
export type Phase =
  /** The weights are looked for, or fetched. */
  | "fetching"
  /** Waits until its cards have the memory that it needs. */
  | "waiting"
  | "starting"
  | "ready"
  /** Told to end. */
  | "ending"
  /** No process is left; the cards are not seen free yet. */
  | "clearing"
  | "stopped"
  | "failed";

export interface ShardLife {
  readonly phase: Phase;
  /** Monotonic ms of this agent. */
  readonly since: number;
  readonly stopAsked: boolean;
  readonly graceMs: number;
  readonly progress: StartProgress;
  /** Of the weights: how far they had come when they last came on, and when that was. */
  readonly fetched: { readonly mark: number; readonly atMs: number };
  readonly failure: ShardFailure | null;
  readonly blockedBy: string | null;
  /** Since when its own health page has said that it can't serve; null while it does not. */
  readonly unwellSince: number | null;
  /** Since when only leftovers of it run; null before. */
  readonly leftoversSince: number | null;
}

export interface ShardLimits {
  readonly startStallMs: number;
  readonly markers: Markers;
}

/** A health page that says "can't serve" for this long is believed; one that does not answer is not asked to decide. */
export const UNWELL_MS = 60_000;
/** What a dead engine's children get to end by themselves. */
export const LEFTOVER_GRACE_MS = 2_000;
/** Cards that can't be read are not waited for longer. */
export const UNSEEN_MS = 30_000;
const UNREAD = "its cards have not been read since";
/** However much progress a start makes. */
export const START_MS_MAX = 4 * 3_600_000;

export interface ShardSigns {
  readonly weights:
    | "present"
    | "looking"
    | { readonly missing: string }
    /** `mark` rises with everything that is progress; `why`: what it waits for. One that is queued waits for the progress of others. */
    | { readonly mark: number; readonly why: string | null; readonly isQueued: boolean };
  /** Memory on its cards before the start. `unknown`: the cards can't be read now. */
  readonly room: "enough" | "unknown" | { readonly short: string };
  readonly process: "notStarted" | "alive" | "gone";
  /** Living processes, the first included. */
  readonly members: number;
  /** Why it ended, when `process` is gone. */
  readonly death: ShardFailure | null;
  readonly newLines: readonly string[];
  readonly memoryMib: number | null;
  readonly health: HealthStage;
  /** `serves`: the tiny inference has been answered. `unwell`: the health page says that it can't serve. */
  readonly service: "unknown" | "serves" | "unwell";
  readonly cards: "free" | "unknown" | { readonly held: string };
  readonly lastLines: readonly string[];
}

/** `spawn`, `term` and `kill` are for the shell to do; `kill` is repeated while something is left. */
export type ShardAction = "spawn" | "term" | "kill";

export interface ShardStep {
  readonly life: ShardLife;
  readonly actions: readonly ShardAction[];
}

export const newLife = (nowMs: number, graceMs: number): ShardLife => ({
  phase: "fetching",
  since: nowMs,
  stopAsked: false,
  graceMs,
  progress: progressAt(nowMs),
  fetched: { mark: 0, atMs: nowMs },
  failure: null,
  blockedBy: null,
  unwellSince: null,
  leftoversSince: null,
});

/** A life that an earlier agent began: `served` when it was ready then. */
export const adoptedLife = (nowMs: number, graceMs: number, served: boolean): ShardLife => ({
  ...newLife(nowMs, graceMs),
  phase: served ? "ready" : "starting",
});

export const askStop = (life: ShardLife, graceMs: number): ShardLife => ({
  ...life,
  stopAsked: true,
  graceMs: life.stopAsked ? Math.min(life.graceMs, graceMs) : graceMs,
});

export const isOver = (life: ShardLife): boolean => life.phase === "stopped" || life.phase === "failed";

const STATES: Readonly<Record<Phase, ShardState>> = {
  fetching: "fetching",
  waiting: "starting",
  starting: "starting",
  ready: "ready",
  ending: "stopping",
  clearing: "stopping",
  stopped: "stopped",
  failed: "failed",
};
export const reportedState = (life: ShardLife): ShardState => STATES[life.phase];

export function stepShard(life: ShardLife, signs: ShardSigns, limits: ShardLimits, nowMs: number): ShardStep {
  switch (life.phase) {
    case "fetching":
      return fetching(life, signs, limits, nowMs);
    case "waiting":
      return waiting(life, signs, limits, nowMs);
    case "starting":
    case "ready":
      return running(life, signs, limits, nowMs);
    case "ending":
      return ending(life, signs, nowMs);
    case "clearing":
      return clearing(life, signs, nowMs);
    default:
      return { life, actions: [] };
  }
}

const stay = (life: ShardLife, actions: readonly ShardAction[] = []): ShardStep => ({ life, actions });
const go = (life: ShardLife, phase: Phase, nowMs: number, over: Partial<ShardLife> = {}): ShardLife => ({
  ...life,
  blockedBy: null,
  ...over,
  phase,
  since: nowMs,
});

function failed(signs: ShardSigns, failure: Pick<ShardFailure, "kind" | "message">): ShardFailure {
  return { signal: null, exitCode: null, lastLines: signs.lastLines, ...failure };
}

function fetching(life: ShardLife, signs: ShardSigns, limits: ShardLimits, nowMs: number): ShardStep {
  if (life.stopAsked) return stay(go(life, "stopped", nowMs));
  const { weights } = signs;
  if (weights === "looking") return stay(life);
  if (weights === "present") return stay(go(life, "waiting", nowMs));
  const fail = (message: string): ShardStep =>
    stay(go(life, "failed", nowMs, { failure: failed(signs, { kind: "fetch", message }) }));
  if ("missing" in weights) return fail(weights.missing);
  // Only an end to all progress is a failure: a download may take hours.
  const { mark, why, isQueued } = weights;
  const fetched = isQueued || mark > life.fetched.mark ? { mark, atMs: nowMs } : life.fetched;
  const stalledMs = nowMs - fetched.atMs;
  if (stalledMs < limits.startStallMs) return stay({ ...life, fetched, blockedBy: why });
  return fail(`the weights have not come on for ${Math.round(stalledMs / 1_000)} s: ${why ?? "nothing comes"}`);
}

function waiting(life: ShardLife, signs: ShardSigns, limits: ShardLimits, nowMs: number): ShardStep {
  if (life.stopAsked) return stay(go(life, "stopped", nowMs));
  if (signs.room === "enough") return stay(go(life, "starting", nowMs, { progress: progressAt(nowMs) }), ["spawn"]);
  const why = signs.room === "unknown" ? UNREAD : signs.room.short;
  if (nowMs - life.since < limits.startStallMs) return stay({ ...life, blockedBy: why });
  const failure = failed(signs, { kind: signs.room === "unknown" ? "noProgress" : "gpuOom", message: why });
  return stay(go(life, "failed", nowMs, { failure, blockedBy: signs.room === "unknown" ? null : why }));
}

function running(life: ShardLife, signs: ShardSigns, limits: ShardLimits, nowMs: number): ShardStep {
  if (signs.process === "gone") {
    const failure = life.stopAsked ? null : (signs.death ?? failed(signs, { kind: "exit", message: "it ended" }));
    return ending(go(life, "ending", nowMs, { failure, leftoversSince: nowMs }), signs, nowMs);
  }
  if (life.stopAsked) return stay(go(life, "ending", nowMs), ["term"]);
  return life.phase === "ready" ? serving(life, signs, nowMs) : starting(life, signs, limits, nowMs);
}

function starting(life: ShardLife, signs: ShardSigns, limits: ShardLimits, nowMs: number): ShardStep {
  if (signs.service === "serves") return stay(go(life, "ready", nowMs));
  const progress = observeStart(life.progress, signs, limits.markers, nowMs);
  const stalledMs = nowMs - progress.lastAtMs;
  if (stalledMs < limits.startStallMs && nowMs - life.since < START_MS_MAX) return stay({ ...life, progress });
  const message = `the start made no progress for ${Math.round(stalledMs / 1_000)} s; health: ${signs.health}`;
  const failure = failed(signs, { kind: "stall", message });
  return stay(go(life, "ending", nowMs, { progress, failure }), ["term"]);
}

function serving(life: ShardLife, signs: ShardSigns, nowMs: number): ShardStep {
  if (signs.service !== "unwell") return stay(life.unwellSince === null ? life : { ...life, unwellSince: null });
  const unwellSince = life.unwellSince ?? nowMs;
  if (nowMs - unwellSince < UNWELL_MS) return stay({ ...life, unwellSince });
  const message = `its own health page has said for ${Math.round((nowMs - unwellSince) / 1_000)} s that it can't serve`;
  const failure = failed(signs, { kind: "unhealthy", message });
  return stay(go(life, "ending", nowMs, { unwellSince, failure }), ["term"]);
}

function ending(life: ShardLife, signs: ShardSigns, nowMs: number): ShardStep {
  if (signs.members === 0 && signs.process !== "alive") return clearing(go(life, "clearing", nowMs), signs, nowMs);
  if (signs.process === "alive") return stay(life, nowMs - life.since >= life.graceMs ? ["kill"] : []);
  if (life.leftoversSince === null) return stay({ ...life, leftoversSince: nowMs }, ["term"]);
  if (nowMs - life.leftoversSince >= LEFTOVER_GRACE_MS) return stay(life, ["kill"]);
  return stay(life, nowMs === life.leftoversSince ? ["term"] : []);
}

function clearing(life: ShardLife, signs: ShardSigns, nowMs: number): ShardStep {
  // Something of it came to light after all, such as a child that was being made in the moment of the last look.
  if (signs.members > 0) return stay(go(life, "ending", nowMs, { leftoversSince: nowMs }), ["kill"]);
  const done = go(life, life.failure === null ? "stopped" : "failed", nowMs);
  if (signs.cards === "free") return stay(done);
  if (signs.cards === "unknown") return stay(nowMs - life.since >= UNSEEN_MS ? done : { ...life, blockedBy: UNREAD });
  return stay({ ...life, blockedBy: signs.cards.held });
}
