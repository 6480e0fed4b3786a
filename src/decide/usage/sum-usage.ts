import { MICROS } from "../../contract/money.ts";
import {
  CALL_OUTCOMES,
  formatDay,
  USAGE_GROUPS,
  type UsageGroup,
  type UsageRowView,
  type UsageSums,
} from "../../contract/usage-view.ts";
import { COUNTERS, costCounter, outcomeCounter, type UsageCounts } from "./count-call.ts";
import type { UsageRow } from "./usage-book.ts";

/** Where a row stands in the order of an answer; "" for what it is not parted by. */
export type UsagePlace = readonly [day: string, key: string, model: string];

interface Group {
  readonly place: UsagePlace;
  readonly counts: Record<string, number>;
}

/** Groups that are held while an answer is made. */
export const GROUPS_MAX = 50_000;

/** Adds rows up, by what they are parted by. */
export class UsageTotals {
  readonly #by: ReadonlySet<UsageGroup>;
  readonly #groups = new Map<string, Group>();
  readonly #total: Record<string, number> = {};

  constructor(by: readonly UsageGroup[]) {
    this.#by = new Set(by);
  }

  /** False: there are more groups than may be. */
  add({ day, keyId, model, counts }: UsageRow): boolean {
    const place: UsagePlace = [
      this.#by.has("day") ? formatDay(day) : "",
      this.#by.has("key") ? keyId : "",
      this.#by.has("model") ? model : "",
    ];
    const name = place.join(" ");
    let group = this.#groups.get(name);
    if (group === undefined) {
      if (this.#groups.size >= GROUPS_MAX) return false;
      this.#groups.set(name, (group = { place, counts: {} }));
    }
    for (const [counter, amount] of Object.entries(counts)) {
      group.counts[counter] = (group.counts[counter] ?? 0) + amount;
      this.#total[counter] = (this.#total[counter] ?? 0) + amount;
    }
    return true;
  }

  get total(): UsageSums {
    return sumsOf(this.#total);
  }

  /** In order, those behind a place; `more`: where a next page begins. */
  page(after: UsagePlace | null, limit: number): { readonly rows: UsageRowView[]; readonly more: UsagePlace | null } {
    const { shown, more } = pageOf(this.#groups.values(), after, limit);
    return { rows: shown.map(({ place, counts }) => ({ ...this.#namesOf(place), ...sumsOf(counts) })), more };
  }

  #namesOf([day, key, model]: UsagePlace): Pick<UsageRowView, "day" | "key" | "model"> {
    return {
      ...(this.#by.has("day") && { day }),
      ...(this.#by.has("key") && { key }),
      ...(this.#by.has("model") && { model: model === "" ? null : model }),
    };
  }
}

function sumsOf(counts: UsageCounts): UsageSums {
  const of = (counter: string): number => counts[counter] ?? 0;
  const outcomes: UsageSums["outcomes"] = {};
  let ended = 0;
  for (const outcome of CALL_OUTCOMES) {
    const count = of(outcomeCounter(outcome));
    if (count > 0) outcomes[outcome] = count;
    ended += count;
  }
  const replays = of(COUNTERS.replays);
  const cacheHits = of(COUNTERS.cacheHits);
  const ran = of(COUNTERS.ran);
  const tokens = (counter: string, told: string): number | null => (ran > 0 && of(told) === 0 ? null : of(counter));
  const cost: Record<string, number> = {};
  const prefix = costCounter("");
  for (const [counter, micros] of Object.entries(counts))
    if (counter.startsWith(prefix)) cost[counter.slice(prefix.length)] = micros / MICROS;
  return {
    requests: ended + replays + cacheHits,
    outcomes,
    replays,
    cache_hits: cacheHits,
    prompt_tokens: tokens(COUNTERS.prompt, COUNTERS.promptTold),
    completion_tokens: tokens(COUNTERS.completion, COUNTERS.completionTold),
    cached_tokens: tokens(COUNTERS.cached, COUNTERS.cachedTold),
    tokens_unknown: ran - of(COUNTERS.told),
    gpu_seconds: Math.round(of(COUNTERS.slotMicros) / 1_000) / 1_000,
    cost,
  };
}

/** In the order of an answer, those behind a place; `more`: where a next page begins. */
export function pageOf<T extends { readonly place: UsagePlace }>(
  groups: Iterable<T>,
  after: UsagePlace | null,
  limit: number,
): { readonly shown: readonly T[]; readonly more: UsagePlace | null } {
  const behind = [...groups]
    .filter(({ place }) => after === null || compare(place, after) > 0)
    .toSorted((a, b) => compare(a.place, b.place));
  const shown = behind.slice(0, limit);
  return { shown, more: behind.length > limit ? (shown.at(-1)?.place ?? null) : null };
}

function compare(a: UsagePlace, b: UsagePlace): number {
  for (const index of USAGE_GROUPS.keys()) {
    const [x = "", y = ""] = [a[index], b[index]];
    if (x !== y) return x < y ? -1 : 1;
  }
  return 0;
}
