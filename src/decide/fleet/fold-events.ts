import type { FleetEvent } from "../../contract/fleet.ts";
import type { MonoMs } from "../../kernel/clock.ts";

/**
 * What a node can make up without end is told of it so often and then only counted: the history that is kept is for everybody's
 * events, and one node must not write the others' out of it.
 */
export const FOLD_BURST = 20;
/** One more of a kind and node may be told after this time. */
export const FOLD_MS = 60_000;

/** Kinds that stand for a node's mere word. */
const MADE_UP: ReadonlySet<FleetEvent["kind"]> = new Set(["unknownEngine"]);

interface Source {
  /** Of which each that is told takes one. */
  readonly left: number;
  readonly at: MonoMs;
  /** Not told since the last one that was. */
  readonly held: number;
}

/** By kind and node. */
export type FoldState = ReadonlyMap<string, Source>;

export function foldEvents(
  state: FoldState,
  events: readonly FleetEvent[],
  now: MonoMs,
): { readonly events: readonly FleetEvent[]; readonly state: FoldState } {
  if (!events.some(({ kind }) => MADE_UP.has(kind))) return { events, state };
  const next = new Map(state);
  const told = events.flatMap((event) => {
    if (!MADE_UP.has(event.kind)) return event;
    const key = `${event.kind} ${event.nodeId ?? ""}`;
    const before = next.get(key) ?? { left: FOLD_BURST, at: now, held: 0 };
    const left = Math.min(FOLD_BURST, before.left + (now - before.at) / FOLD_MS);
    if (left < 1) {
      next.set(key, { left, at: now, held: before.held + 1 });
      return [];
    }
    next.set(key, { left: left - 1, at: now, held: 0 });
    const missing = before.held === 0 ? "" : `, after ${before.held} more that were only counted`;
    const follow = left < 2 ? "; what follows of this node is only counted for a while" : "";
    return { ...event, why: event.why + missing + follow };
  });
  // A source that has all of its own again, and nothing to tell, is as good as new.
  for (const [key, { left, at, held }] of next)
    if (held === 0 && left + (now - at) / FOLD_MS >= FOLD_BURST) next.delete(key);
  return { events: told, state: next };
}
