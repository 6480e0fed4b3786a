import type { JobRow, ModelRow, NodeRow, ReplicaRow, UpstreamRow } from "../../../src/contract/board.ts";
import type { BoardState } from "./board-state.ts";
import { total } from "./plot-series.ts";
import { byName, byUrgency, type Mark, markJob, markModel, markNode, markUpstream } from "./tones.ts";

/** What is looked for: every word has to be somewhere in the texts of a row. */
export function matches(search: string, texts: readonly (string | null)[]): boolean {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const all = texts.join(" ").toLowerCase();
  return words.every((word) => all.includes(word));
}

export interface KeyedNode {
  readonly key: string;
  readonly node: NodeRow;
}

/** What needs somebody first, then by name. A sick card counts for its node. */
export function listNodes({ tables }: BoardState, search: string): readonly KeyedNode[] {
  const models = modelsByNode(tables.replicas.values());
  const mark = ({ node }: KeyedNode): Mark => {
    const own = markNode(node);
    return own.tone !== "bad" && (node.sick_gpus ?? 0) > 0 ? { tone: "warn", word: "sick card" } : own;
  };
  return [...tables.nodes]
    .map(([key, node]) => ({ key, node }))
    .filter(({ node }) =>
      matches(search, [
        node.name,
        markNode(node).word,
        node.address,
        node.fabric,
        ...Object.entries(node.labels).map(([name, value]) => `${name}=${value}`),
        ...(models.get(node.name) ?? []),
      ]),
    )
    .toSorted((a, b) => byUrgency(mark(a), mark(b)) || byName(a.node.name, b.node.name));
}

function modelsByNode(replicas: Iterable<ReplicaRow>): ReadonlyMap<string, readonly string[]> {
  const models = new Map<string, string[]>();
  for (const { nodes, model } of replicas)
    for (const node of nodes) {
      const known = models.get(node);
      if (known === undefined) models.set(node, [model]);
      else known.push(model);
    }
  return models;
}

export const listModels = ({ tables }: BoardState, search: string): readonly ModelRow[] =>
  [...tables.models.values()]
    .filter((model) => matches(search, [model.name, ...model.aliases, markModel(model).word, model.why]))
    .toSorted((a, b) => byUrgency(markModel(a), markModel(b)) || byName(a.name, b.name));

export const replicasOf = ({ tables }: BoardState, model: string): readonly ReplicaRow[] =>
  [...tables.replicas.values()]
    .filter((replica) => replica.model === model)
    .toSorted((a, b) => (a.created < b.created ? -1 : 1));

const isLost = ({ away, endpoints }: UpstreamRow): boolean => away !== null && endpoints.all > 0;

/** Those that somebody waits for first, then those that had endpoints and take nothing, then the busiest. */
export const listUpstreams = ({ tables }: BoardState, search: string): readonly UpstreamRow[] =>
  [...tables.upstreams.values()]
    .filter((upstream) =>
      matches(search, [upstream.id, upstream.engine, ...upstream.models, markUpstream(upstream).word]),
    )
    .toSorted(
      (a, b) =>
        total(b.waiting) - total(a.waiting) ||
        Number(isLost(b)) - Number(isLost(a)) ||
        total(b.inUse) - total(a.inUse) ||
        byName(a.id, b.id),
    );

const OPEN: Readonly<Record<JobRow["state"], number>> = {
  running: 0,
  queued: 1,
  failed: 2,
  completed: 2,
  cancelled: 2,
};

/** What goes on first, then what waits, then what has ended, the newest first. */
export const listJobs = ({ tables }: BoardState, search: string): readonly JobRow[] =>
  [...tables.jobs.values()]
    .filter((job) =>
      matches(search, [
        job.id,
        markJob(job).word,
        job.model,
        job.upstream,
        job.key,
        job.class,
        job.error?.code ?? null,
      ]),
    )
    .toSorted((a, b) => OPEN[a.state] - OPEN[b.state] || (a.created_at < b.created_at ? 1 : -1));

/** A job that is held for want of an approval, and the tiers that would take it with one. */
export interface AskedApproval {
  readonly job: JobRow;
  readonly tiers: readonly { readonly tier: string; readonly lacks: readonly string[] }[];
}

/** What a tier lacks when only a person's word is missing: as `decide/overflow/` says it. */
const NEEDS_APPROVAL = /^(no_job_approval|approval_|approved_by)/;

export const listAskedApprovals = ({ tables }: BoardState): readonly AskedApproval[] =>
  [...tables.jobs.values()].flatMap((job) => {
    if (job.state !== "queued" || job.overflow === null) return [];
    const tiers = job.overflow.missing.filter(({ lacks }) => lacks.some((lack) => NEEDS_APPROVAL.test(lack)));
    return tiers.length === 0 ? [] : [{ job, tiers }];
  });
