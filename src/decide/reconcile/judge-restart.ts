import type { ReplicaDoc, RestartPace } from "../../contract/fleet.ts";

/** What to do now about one ready replica that is to be replaced. */
export type RestartVerdict =
  /** Its replacement was placed beside it. */
  | { readonly kind: "beside" }
  /** It is stopped now, and its replacement takes what it frees. */
  | { readonly kind: "inPlace"; readonly why: string }
  | { readonly kind: "refuse"; readonly why: string }
  | { readonly kind: "wait"; readonly why: string };

export interface RestartFacts {
  readonly model: string;
  readonly parked: string | null;
  /** Its own nodes report. */
  readonly isHeard: boolean;
  readonly stopFirst: boolean;
  readonly pace: RestartPace;
  /** Another replica is being moved away for this model. */
  readonly isMadeRoomFor: boolean;
  /** The model's failures let nothing be started now. */
  readonly isBackedOff: boolean;
  /** With its figures; "" where they do not. */
  readonly backedOffWhy: string;
  /** For how long that has been so, without a break. */
  readonly backedOffMs: number;
  readonly drainGraceMs: number;
  /** Replacements of the model that start, or have started, beside what they replace. */
  readonly beside: number;
  /** Of the model: how many the catalog wants, how many are there or on their way, and how many of these serve. */
  readonly wanted: number;
  readonly running: number;
  readonly ready: number;
  /** It is asked for as long as it is not done, by the catalog or a drained node: what can't be done now is waited for. */
  readonly isLasting: boolean;
  /** Takes the room beside it; else tells what is missing. */
  readonly placeBeside: () => string | null;
  /** Whether it will have room there, once what is being stopped or replaced elsewhere has gone. */
  readonly willFitBeside: () => boolean;
  /** Null: it fits with the old one gone; else what is missing. */
  readonly fitsInstead: () => string | null;
  /** Whether it will, once that has gone too. */
  readonly willFitInstead: () => boolean;
}

/** Where a replica stands in its own way, one may be away whatever the pace says: waiting would change nothing. */
const AWAY_MIN = 1;
const OTHERS_FIRST = "others have to be gone first that are being stopped or replaced";

/**
 * The order is that of the statements: a parked model is not touched; room that is being made is waited for; then beside, where the
 * pace and the room allow it; then in its place.
 */
export function judgeRestart(facts: RestartFacts): RestartVerdict {
  const { parked, pace } = facts;
  if (parked !== null)
    return refuse(`model ${facts.model} is parked: ${parked}; \`ctl retry ${facts.model}\` lifts that, then ask again`);
  if (!facts.isHeard) return wait("its node is not heard");
  if (facts.isMadeRoomFor) return wait("room is being made for its model");
  if (facts.isBackedOff) {
    if (facts.backedOffMs < facts.drainGraceMs) return wait(`its model waits: ${facts.backedOffWhy}`);
    return stopFirst(facts, `nothing could be started for ${Math.round(facts.drainGraceMs / 1_000)} s`);
  }
  if (facts.stopFirst) return instead(facts, "it was to be restarted in its place");
  if (facts.beside < pace.maxSurge) {
    const missing = facts.placeBeside();
    if (missing === null) return { kind: "beside" };
    // The room is not lacking because of the replica itself: stopping it first would leave its model without one for nothing.
    if (facts.willFitBeside()) return wait(`${OTHERS_FIRST}: ${missing}`);
    return stopFirst(facts, `there is no room beside it: ${missing}`);
  }
  if (pace.maxUnavailable > 0) return stopFirst(facts, "its pace lets it be away");
  return wait("others of its model are being replaced");
}

/**
 * Stops it before its replacement is ready, if enough others serve. Replicas that are missing count as away, whatever they lack: they may
 * have been taken by the restart before this one.
 */
function stopFirst(facts: RestartFacts, why: string): RestartVerdict {
  const { wanted, running, ready, pace } = facts;
  const left = ready - 1;
  const least = Math.max(pace.minAvailable, Math.max(wanted, running) - Math.max(AWAY_MIN, pace.maxUnavailable));
  if (left >= least) return instead(facts, why);
  if (running > ready || facts.isLasting) return wait(`${Math.max(wanted, running) - ready} of its model do not serve`);
  return refuse(
    `${why}; stopping it would leave ${left} of ${wanted} ready, and at least ${least} are to be; \`--in-place\` does it all the same`,
  );
}

function instead({ fitsInstead, willFitInstead, isLasting }: RestartFacts, why: string): RestartVerdict {
  const missing = fitsInstead();
  if (missing === null) return { kind: "inPlace", why };
  // Whoever is being replaced holds room twice for a while.
  if (willFitInstead()) return wait(`${OTHERS_FIRST}: ${missing}`);
  const words = `its replacement would fit nowhere, even with this one stopped: ${missing}`;
  return isLasting ? wait(words) : refuse(words);
}

const refuse = (why: string): RestartVerdict => ({ kind: "refuse", why });
const wait = (why: string): RestartVerdict => ({ kind: "wait", why });

/** The state of a restart in words. */
export type RestartState = "none" | "queued" | "replacing" | "in place" | `refused: ${string}`;

export function restartState({ restart }: Pick<ReplicaDoc, "restart">): RestartState {
  switch (restart?.state) {
    case undefined:
      return "none";
    case "inPlace":
      return "in place";
    case "refused":
      return `refused: ${restart?.why ?? "no reason was kept"}`;
    case "queued":
    case "replacing":
      return restart!.state;
  }
}
