import { isSevere, type GpuFault, type GpuVerdict } from "./gpu-card.ts";

/** One endpoint as the guard sees it. */
export interface GuardedView {
  readonly id: string;
  /** It could take work but for its cards. */
  readonly able: boolean;
  /** One for each card that is named and known, and "unknown" for each that nobody told of. */
  readonly cards: readonly { readonly gpu: string; readonly verdict: GpuVerdict }[];
}

export interface GuardRules {
  readonly coupleFaults: boolean;
  /** Null: drop where the fault is severe, keep where it is heat. */
  readonly lastEndpoint: "keep" | "drop" | null;
}

export interface GuardVerdict {
  readonly id: string;
  readonly guarded: boolean;
  /** The fault that the endpoint has, also where it is kept in spite of it. */
  readonly fault: (GpuFault & { readonly gpu: string }) | null;
}

/**
 * Which endpoints of one upstream are out for their cards. The cards under an endpoint decide about that endpoint alone. Where
 * that would leave none that can serve, heat keeps them all in: one of them alone would get the load of all.
 */
export function judgeGuards(views: readonly GuardedView[], rules: GuardRules): GuardVerdict[] {
  const found = views.map((view) => ({ view, fault: worstFault(view) }));
  const othersServe = found.some(({ view, fault }) => view.able && fault === null);
  return found.map(({ view, fault }) => ({
    id: view.id,
    fault,
    guarded: rules.coupleFaults && fault !== null && (othersServe || !isKept(fault, rules)),
  }));
}

function worstFault({ cards }: GuardedView): GuardVerdict["fault"] {
  const faults = cards.flatMap(({ gpu, verdict }) =>
    verdict.kind === "faulted" ? [{ ...verdict.faults[0], gpu }] : [],
  );
  return faults.find(isSevere) ?? faults[0] ?? null;
}

const isKept = (fault: GpuFault, { lastEndpoint }: GuardRules): boolean =>
  (lastEndpoint ?? (isSevere(fault) ? "drop" : "keep")) === "keep";

/** For each endpoint that can take work, whether each of its cards is saturated; an upstream without such has none. */
export const isSaturated = (able: readonly (readonly boolean[])[]): boolean =>
  able.length > 0 && able.every((cards) => cards.length > 0 && cards.every((saturated) => saturated));
