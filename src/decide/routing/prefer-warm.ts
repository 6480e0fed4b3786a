import type { AffinityWish, WarmMatch } from "./affinity-table.ts";
import { hashText } from "./prefix-blocks.ts";

export interface AffinityView {
  readonly wish: AffinityWish;
  /** What is warm for it, the best first. */
  readonly matches: readonly WarmMatch[];
  /** How far above the mean an endpoint's load may be for its warmth: 1.25 is a quarter. */
  readonly loadBound: number;
}

/**
 * `warm`: where the longest known prefix, or the session, is. `placed`: nothing is known to be warm, and it went where its hash
 * says. `spilled`: where it would have gone there was no room below the bound. `unheard`: nobody below the bound could take it,
 * and load alone decided.
 */
export type AffinityOutcome = "warm" | "placed" | "spilled" | "unheard";

/** What counts of an endpoint here. */
export interface LoadedEndpoint {
  readonly id: string;
  readonly slots: number;
  readonly inFlight: number;
  readonly external: number;
}

export interface Preference<View> {
  readonly endpoint: View | undefined;
  readonly outcome: AffinityOutcome;
  /** Of the prompt, what is warm there; 0 where nothing is known. */
  readonly part: number;
}

const loadOf = ({ inFlight, external }: LoadedEndpoint): number => inFlight + external;

/**
 * Bounded load (Mirrokni, Thorup, Zadimoghaddam 2017): an endpoint takes no more than `bound` times its share by slots of all that runs
 * with this request, rounded up. `inRotation`: those that could serve it if they had room. `mayTake`: those that can now.
 */
export function preferWarm<View extends LoadedEndpoint>(
  inRotation: readonly View[],
  mayTake: (view: View) => boolean,
  { wish, matches, loadBound }: AffinityView,
): Preference<View> {
  let [load, slots] = [1, 0];
  for (const view of inRotation) {
    load += loadOf(view);
    slots += view.slots;
  }
  const isOpen = (view: View): boolean =>
    loadOf(view) < Math.ceil((loadBound * load * view.slots) / slots) && mayTake(view);
  let spilled = false;
  for (const { ids, part } of matches) {
    const holders = inRotation.filter(({ id }) => ids.includes(id));
    const endpoint = leastBusy(holders.filter(isOpen));
    if (endpoint !== undefined) return { endpoint, outcome: spilled ? "spilled" : "warm", part };
    spilled ||= holders.length > 0;
  }
  const ranked = rankByHash(keyOf(wish), inRotation);
  const endpoint = ranked.find(isOpen);
  if (endpoint === undefined) return { endpoint, outcome: "unheard", part: 0 };
  return { endpoint, outcome: spilled || endpoint !== ranked[0] ? "spilled" : "placed", part: 0 };
}

function leastBusy<View extends LoadedEndpoint>(views: readonly View[]): View | undefined {
  let best: View | undefined;
  for (const view of views)
    if (best === undefined || loadOf(view) / view.slots < loadOf(best) / best.slots) best = view;
  return best;
}

const keyOf = ({ session, prefix }: AffinityWish): number =>
  session ?? (prefix === null ? 0 : prefix.hashes[prefix.head]!);

/**
 * Weighted rendezvous hashing: every gateway that knows the same endpoints finds the same order, and an endpoint that leaves
 * moves only what it had itself.
 */
export function rankByHash<View extends LoadedEndpoint>(key: number, views: readonly View[]): View[] {
  const score = ({ id, slots }: View): number => -slots / Math.log(unitOf(key, id));
  return views
    .map((view) => ({ view, score: score(view) }))
    .toSorted((a, b) => b.score - a.score || (a.view.id < b.view.id ? -1 : 1))
    .map(({ view }) => view);
}

/** Evenly in (0, 1). */
const unitOf = (key: number, id: string): number => (mixed(hashText(`${key}\n${id}`)) + 0.5) / 2 ** 32;

/** The last bytes of a hashed text hardly reach its upper bits: this spreads every bit over all (MurmurHash3's finaliser). */
function mixed(hash: number): number {
  let bits = (hash >>> 0) ^ Math.floor(hash / 2 ** 32);
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}
