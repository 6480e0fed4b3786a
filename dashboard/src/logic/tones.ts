import type { JobRow, ModelRow, NodeRow, ReplicaRow, TopLine, UpstreamRow } from "../../../src/contract/board.ts";

/** What a state means for whoever looks; each has a shape of its own beside its colour. */
export type Tone = "good" | "warn" | "bad" | "info" | "off" | "unknown";

export interface Mark {
  readonly tone: Tone;
  readonly word: string;
}

export function markNode({ state, draining, cordoned }: NodeRow): Mark {
  if (state === "lost") return { tone: "bad", word: "lost" };
  if (state === "unreachable") return { tone: "bad", word: "silent" };
  if (state === "never_seen") return { tone: "unknown", word: "never seen" };
  if (draining) return { tone: "info", word: "draining" };
  if (cordoned) return { tone: "info", word: "cordoned" };
  return { tone: "good", word: "ready" };
}

const MODELS: Readonly<Record<ModelRow["state"], Mark>> = {
  ready: { tone: "good", word: "ready" },
  starting: { tone: "info", word: "starting" },
  waiting: { tone: "warn", word: "no room" },
  parked: { tone: "bad", word: "parked" },
  stopped: { tone: "off", word: "stopped" },
  removed: { tone: "off", word: "removed" },
};

export function markModel({ state, ready, wanted }: ModelRow): Mark {
  if (state === "ready" && ready < wanted) return { tone: "info", word: "fewer than wanted" };
  return MODELS[state];
}

const REPLICAS: Readonly<Record<ReplicaRow["state"], Tone>> = {
  placing: "info",
  fetching: "info",
  starting: "info",
  ready: "good",
  draining: "info",
  stopping: "off",
  stopped: "off",
  failed: "bad",
};
export const markReplica = ({ state }: ReplicaRow): Mark => ({ tone: REPLICAS[state], word: state });

const JOBS: Readonly<Record<JobRow["state"], Tone>> = {
  queued: "info",
  running: "good",
  completed: "off",
  failed: "bad",
  cancelled: "off",
};
export const markJob = ({ state, overflow }: JobRow): Mark =>
  state === "queued" && overflow?.decision === "held"
    ? { tone: "warn", word: "held" }
    : { tone: JOBS[state], word: state };

const SEVERITIES: Readonly<Record<TopLine["severity"], Mark>> = {
  ok: { tone: "good", word: "all well" },
  notice: { tone: "info", word: "notice" },
  warning: { tone: "warn", word: "warning" },
  critical: { tone: "bad", word: "critical" },
};
export const markSeverity = (severity: TopLine["severity"]): Mark => SEVERITIES[severity];

export function markUpstream({ away, endpoints, waiting }: UpstreamRow): Mark {
  if (away !== null) return { tone: "bad", word: "takes nothing" };
  if (endpoints.well < endpoints.all)
    return { tone: "warn", word: `${endpoints.well} of ${endpoints.all} endpoints well` };
  if (waiting.interactive > 0) return { tone: "warn", word: "people wait" };
  return { tone: "good", word: "takes requests" };
}

const URGENCY: Readonly<Record<Tone, number>> = { bad: 0, warn: 1, unknown: 2, info: 3, good: 4, off: 5 };
/** What needs somebody comes first. */
export const byUrgency = (a: Mark, b: Mark): number => URGENCY[a.tone] - URGENCY[b.tone];

const COLLATOR = new Intl.Collator("en", { numeric: true });
/** gpu-2 before gpu-10. */
export const byName = (a: string, b: string): number => COLLATOR.compare(a, b);
