import { MICROS } from "../../contract/money.ts";
import type { UsageRowView, UsageSums, UsageView } from "../../contract/usage-view.ts";
import { pageOf, type UsagePlace } from "./sum-usage.ts";

/** What several places have counted, each on its own, as if one had. */
export function mergeUsage(
  views: readonly Pick<UsageView, "rows" | "total">[],
  after: UsagePlace | null,
  limit: number,
): { readonly rows: UsageRowView[]; readonly total: UsageSums; readonly more: UsagePlace | null } {
  const byPlace = new Map<string, { readonly place: UsagePlace; row: UsageRowView }>();
  for (const row of views.flatMap(({ rows }) => rows)) {
    const place: UsagePlace = [row.day ?? "", row.key ?? "", row.model ?? ""];
    const name = JSON.stringify(place);
    const known = byPlace.get(name);
    if (known === undefined) byPlace.set(name, { place, row });
    else known.row = { ...known.row, ...plus(known.row, row) };
  }
  const { shown, more } = pageOf(byPlace.values(), after, limit);
  return {
    rows: shown.map(({ row }) => row),
    total: views.map(({ total }) => total).reduce(plus, NOTHING),
    more,
  };
}

const NOTHING: UsageSums = {
  requests: 0,
  outcomes: {},
  replays: 0,
  cache_hits: 0,
  prompt_tokens: 0,
  completion_tokens: 0,
  cached_tokens: 0,
  tokens_unknown: 0,
  gpu_seconds: 0,
  cost: {},
};

const plus = (a: UsageSums, b: UsageSums): UsageSums => ({
  requests: a.requests + b.requests,
  outcomes: plusEach(a.outcomes, b.outcomes, 1),
  replays: a.replays + b.replays,
  cache_hits: a.cache_hits + b.cache_hits,
  prompt_tokens: plusTold(a.prompt_tokens, b.prompt_tokens),
  completion_tokens: plusTold(a.completion_tokens, b.completion_tokens),
  cached_tokens: plusTold(a.cached_tokens, b.cached_tokens),
  tokens_unknown: a.tokens_unknown + b.tokens_unknown,
  gpu_seconds: rounded(a.gpu_seconds + b.gpu_seconds, 1_000),
  cost: plusEach(a.cost, b.cost, MICROS),
});

/** Where one place has told nothing of what was used, what the other has told is the least that it was; nothing told is no nought. */
const plusTold = (a: number | null, b: number | null): number | null => {
  const sum = (a ?? 0) + (b ?? 0);
  return sum === 0 && (a === null || b === null) ? null : sum;
};

function plusEach(
  a: Readonly<Partial<Record<string, number>>>,
  b: Readonly<Partial<Record<string, number>>>,
  parts: number,
): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const [name, amount = 0] of [...Object.entries(a), ...Object.entries(b)])
    sums[name] = rounded((sums[name] ?? 0) + amount, parts);
  return sums;
}

/** Sums of fractions drift. */
const rounded = (value: number, parts: number): number => Math.round(value * parts) / parts;
