import { assertNever } from "../../kernel/assert-never.ts";
import { asMono } from "../../kernel/clock.ts";
import type { MonoMs } from "../../kernel/clock.ts";

/**
 * What one control plane knows of its claim to lead, and what it does about it. The lease itself is a row of the store.
 *
 * Invariants:
 *   L1. Only the store's yes makes a leader, and only with an epoch above every one that agents have told of.
 *   L2. A claim counts from the moment the confirmed request was sent, by the own clock: however long an answer was on its way
 *       or this process was frozen, the claim ends no later than `blindMsMax` after that moment.
 *   L3. A store that does not answer ends no claim before that, and starts none.
 *   L4. One request is under way at a time.
 *   L5. Each term has an epoch of its own, also the next one of the same process: the numbers of commands and of what gateways are
 *       told begin anew with a term, and a write of the last one that is still on its way is fenced off.
 */
export interface LeaseSettings {
  /** How long the store keeps the lease for its holder. */
  readonly leaseMs: number;
  /** Between two requests. */
  readonly renewMs: number;
  /** How long a leader acts without a confirmation. */
  readonly blindMsMax: number;
}

export interface LeaseClaim {
  /** Random for each process. */
  readonly self: string;
  readonly role: "standby" | "leading" | "ended";
  /** Of the own claim, while leading. */
  readonly epoch: number | null;
  /** When the last confirmed request was sent. */
  readonly confirmedAt: MonoMs | null;
  /** When the request under way was sent. */
  readonly askedAt: MonoMs | null;
  readonly nextAskAt: MonoMs;
  /** The highest epoch of another holder that an agent told of. */
  readonly floor: number;
  /** An epoch that the store gave to this control plane, and that agents had obeyed of another one: the store had forgotten it. */
  readonly disputed: number | null;
  /** The highest epoch of the own terms that are over. */
  readonly spent: number;
  /** Who leads by the store's last word; null: not known. */
  readonly leader: LeaderTerm | null;
  /** Since when the store has not answered. */
  readonly unreachableSince: MonoMs | null;
}

export interface LeaderTerm {
  readonly holder: string;
  readonly epoch: number;
}

export type ClaimEvent =
  | { readonly kind: "tick" }
  /** The store's answers to a request. `priorEpoch` is the store's own number before this term began. */
  | { readonly kind: "held"; readonly epoch: number; readonly priorEpoch: number }
  | { readonly kind: "refused"; readonly by: LeaderTerm }
  | { readonly kind: "unreachable" }
  /** The store refused a write under this epoch. */
  | { readonly kind: "fenced"; readonly epoch: number }
  /** An agent told of the highest epoch it has obeyed. */
  | { readonly kind: "reported"; readonly term: LeaderTerm }
  | { readonly kind: "stop" };

export type StandDownReason =
  /** The store says that another one leads. */
  | "taken"
  /** No confirmation for `blindMsMax`. */
  | "blind"
  | "fenced"
  /** An agent obeys a higher epoch, or the same number of another holder. */
  | "overtaken"
  | "stopped";

export type ClaimEffect =
  | { readonly kind: "ask"; readonly floor: number }
  /** `raisedAbove`: agents knew of this epoch and the store did not, as after a restored backup; null in the everyday case. */
  | { readonly kind: "lead"; readonly epoch: number; readonly raisedAbove: number | null }
  | { readonly kind: "standDown"; readonly epoch: number; readonly why: StandDownReason }
  | { readonly kind: "release"; readonly epoch: number };

export interface ClaimStep {
  readonly claim: LeaseClaim;
  readonly effects: readonly ClaimEffect[];
}

/** An agent that tells of a larger number is broken, and must not use the numbers up. */
const EPOCH_REPORTED_MAX = 2 ** 48;

export const newClaim = (self: string, now: MonoMs): LeaseClaim => ({
  self,
  role: "standby",
  epoch: null,
  confirmedAt: null,
  askedAt: null,
  nextAskAt: now,
  floor: 0,
  disputed: null,
  spent: 0,
  leader: null,
  unreachableSince: null,
});

/** Whether an effect on the world may start now. Asked right before each one; safety does not rest on it alone. */
export const mayAct = (claim: LeaseClaim, now: MonoMs, settings: LeaseSettings): boolean =>
  claim.role === "leading" && claim.confirmedAt !== null && now - claim.confirmedAt < settings.blindMsMax;

/** When the next `tick` is due; null when no more is. */
export function wakeAt(claim: LeaseClaim, settings: LeaseSettings): MonoMs | null {
  if (claim.role === "ended") return null;
  const claimEnds =
    claim.role === "leading" && claim.confirmedAt !== null ? claim.confirmedAt + settings.blindMsMax : Infinity;
  const ask = claim.askedAt === null ? claim.nextAskAt : Infinity;
  const at = Math.min(claimEnds, ask);
  return at === Infinity ? null : asMono(at);
}

export function stepClaim(claim: LeaseClaim, event: ClaimEvent, now: MonoMs, settings: LeaseSettings): ClaimStep {
  if (claim.role === "ended") return { claim, effects: [] };
  const { claim: current, effects } = endBlindClaim(claim, now, settings);
  const next = onEvent(current, event, now, settings);
  return { claim: next.claim, effects: [...effects, ...next.effects] };
}

/** Whatever woke it: a process that slept past its claim stands down before anything else. */
function endBlindClaim(claim: LeaseClaim, now: MonoMs, settings: LeaseSettings): ClaimStep {
  return claim.role === "leading" && !mayAct(claim, now, settings) ? standDown(claim, "blind") : { claim, effects: [] };
}

function onEvent(claim: LeaseClaim, event: ClaimEvent, now: MonoMs, settings: LeaseSettings): ClaimStep {
  switch (event.kind) {
    case "tick":
      return askIfDue(claim, now);
    case "held":
      return onHeld(claim, event, now, settings);
    case "refused": {
      const answered = { ...claim, askedAt: null, unreachableSince: null, nextAskAt: later(now, settings) };
      const down = standDown(answered, "taken");
      return { claim: { ...down.claim, leader: event.by }, effects: down.effects };
    }
    case "unreachable":
      return {
        claim: {
          ...claim,
          askedAt: null,
          nextAskAt: later(now, settings),
          unreachableSince: claim.unreachableSince ?? claim.askedAt ?? now,
        },
        effects: [],
      };
    case "fenced":
      return claim.epoch === event.epoch ? askAgain(standDown(claim, "fenced"), now) : { claim, effects: [] };
    case "reported":
      return onReported(claim, event.term, now);
    case "stop": {
      const down = standDown(claim, "stopped");
      const release: ClaimEffect[] = claim.epoch === null ? [] : [{ kind: "release", epoch: claim.epoch }];
      return { claim: { ...down.claim, role: "ended" }, effects: [...down.effects, ...release] };
    }
    default:
      return assertNever(event, "claim event");
  }
}

/** The next epoch is to be above it. */
const floorOf = ({ floor, spent }: LeaseClaim): number => Math.max(floor, spent);

const later = (now: MonoMs, settings: LeaseSettings): MonoMs => asMono(now + settings.renewMs);

function askIfDue(claim: LeaseClaim, now: MonoMs): ClaimStep {
  if (claim.askedAt !== null || now < claim.nextAskAt) return { claim, effects: [] };
  return { claim: { ...claim, askedAt: now }, effects: [{ kind: "ask", floor: floorOf(claim) }] };
}

const askAgain = ({ claim, effects }: ClaimStep, now: MonoMs): ClaimStep => {
  const asked = askIfDue({ ...claim, nextAskAt: now }, now);
  return { claim: asked.claim, effects: [...effects, ...asked.effects] };
};

function onHeld(
  claim: LeaseClaim,
  { epoch, priorEpoch }: Extract<ClaimEvent, { kind: "held" }>,
  now: MonoMs,
  settings: LeaseSettings,
): ClaimStep {
  const { askedAt } = claim;
  if (askedAt === null) return { claim, effects: [] };
  const answered = { ...claim, askedAt: null, unreachableSince: null, leader: { holder: claim.self, epoch } };
  // Told meanwhile of a higher one, answered for a term that is over, or so late that this one would be: only another request helps.
  if (epoch <= floorOf(claim) || now - askedAt >= settings.blindMsMax)
    return askAgain(standDown(answered, "overtaken"), now);
  const leading: LeaseClaim = {
    ...answered,
    disputed: null,
    role: "leading",
    epoch,
    confirmedAt: askedAt,
    nextAskAt: asMono(Math.max(now, askedAt + settings.renewMs)),
  };
  if (claim.role === "leading" && claim.epoch === epoch) return { claim: leading, effects: [] };
  // What is above the own last term alone tells nothing of the store.
  const isOldStore =
    epoch > Math.max(priorEpoch, claim.spent) + 1 || (claim.disputed !== null && claim.disputed === priorEpoch);
  const raisedAbove = isOldStore ? claim.floor : null;
  return { claim: leading, effects: [{ kind: "lead", epoch, raisedAbove }] };
}

function onReported(claim: LeaseClaim, term: LeaderTerm, now: MonoMs): ClaimStep {
  if (term.holder === claim.self || term.epoch <= claim.floor || !(term.epoch <= EPOCH_REPORTED_MAX))
    return { claim, effects: [] };
  const raised = { ...claim, floor: term.epoch };
  if (claim.epoch === null || claim.epoch > term.epoch) return { claim: raised, effects: [] };
  const disputed = claim.epoch === term.epoch ? claim.epoch : claim.disputed;
  return askAgain(standDown({ ...raised, disputed }, "overtaken"), now);
}

function standDown(claim: LeaseClaim, why: StandDownReason): ClaimStep {
  if (claim.role !== "leading" || claim.epoch === null) return { claim, effects: [] };
  return {
    claim: { ...claim, role: "standby", epoch: null, confirmedAt: null, spent: Math.max(claim.spent, claim.epoch) },
    effects: [{ kind: "standDown", epoch: claim.epoch, why }],
  };
}
