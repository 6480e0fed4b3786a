import type { OverflowRules, TierRules } from "../../contract/overflow-settings.ts";
import type { SignalReading } from "./judge-signal.ts";

/** What a tier lacks. Closed: metrics have it as a label. */
export type Lack =
  | "not_approved"
  | "no_key"
  | "key_forbids_external"
  | "breaker_open"
  | "unpriced"
  | "over_max_price"
  | "in_flight"
  | "has_parts"
  | "control_away"
  | "ledger_away"
  | "audit_away"
  | "stopped"
  | "halted"
  | "currency"
  | "budget_day"
  | "budget_month"
  | "no_job_approval"
  | "approval_expired"
  | "approval_revoked"
  | "approval_used"
  | "approval_for_other_content"
  | "approval_for_other_provider"
  | "approval_forged"
  | "approval_below_price"
  | "approved_by_requester"
  | "underway"
  | "already_charged"
  | "reservation_over"
  | "tier_unavailable"
  | "tier_refused";

/** What is known of a tier without asking the ledger. */
export interface TierView {
  readonly rules: TierRules;
  readonly keyPresent: boolean;
  /** By the key that asked for the work, as it is now and as it was then. */
  readonly externalAllowed: boolean;
  readonly breakerClosed: boolean;
  /** What one piece of work may cost at most, in millionths; null: nobody can say. */
  readonly priceMicros: number | null;
  readonly inFlight: number;
  /** The control plane that this gateway follows is not heard. */
  readonly controlAway: boolean;
}

export interface TierVerdict {
  readonly tier: string;
  /** Empty: it may take the work, as far as can be told without the ledger. */
  readonly lacks: readonly Lack[];
}

export interface LocalView {
  /** Why no endpoint can take work; null: one can. */
  readonly unreachable: string | null;
  /** Why nothing goes anywhere now, whatever the card says; null: nothing stands in its way. */
  readonly brake: string | null;
}

export type CardState = "free" | "loaded" | "unreachable";

export interface OverflowView {
  readonly card: CardState;
  /** In words and numbers; empty for a free card. */
  readonly why: string;
  /** Whether the card itself says that it is busy, and not only the queue before it. */
  readonly cardBusy: boolean;
  /** Whether work is to go elsewhere if somebody may take it. */
  readonly wanted: boolean;
}

/** A brake keeps all work here, and its reason is told behind the card's own. */
export function judgeCard(
  readings: readonly SignalReading[],
  local: LocalView,
  onUnreachable: OverflowRules["onUnreachable"],
): OverflowView {
  const view = judgeReadings(readings, local, onUnreachable);
  if (local.brake === null || !view.wanted) return view;
  return { ...view, wanted: false, why: `${view.why}; nothing goes elsewhere: ${local.brake}` };
}

/** Any busy signal is enough. A broken one says nothing, and neither does one whose page is not reachable: that is of the signal, not of the card. */
function judgeReadings(
  readings: readonly SignalReading[],
  local: LocalView,
  onUnreachable: OverflowRules["onUnreachable"],
): OverflowView {
  if (local.unreachable !== null)
    return {
      card: "unreachable",
      why: local.unreachable,
      cardBusy: false,
      wanted: onUnreachable === "overflow",
    };
  const busy = readings.filter(({ state }) => state === "busy");
  if (busy.length === 0) return { card: "free", why: "", cardBusy: false, wanted: false };
  return {
    card: "loaded",
    why: busy.map(({ reason }) => reason).join("; "),
    cardBusy: busy.some(({ ofCard }) => ofCard),
    wanted: true,
  };
}

/** All that a tier lacks, so that who reads it need not mend one thing after the other to learn the next. */
export function judgeTier(view: TierView): TierVerdict {
  const { rules } = view;
  const lacks: Lack[] = [];
  const needs = (holds: boolean, lack: Lack): void => void (holds || lacks.push(lack));
  needs(rules.approved, "not_approved");
  needs(view.keyPresent, "no_key");
  needs(view.externalAllowed, "key_forbids_external");
  needs(view.breakerClosed, "breaker_open");
  needs(view.priceMicros !== null, "unpriced");
  needs((view.priceMicros ?? 0) <= (rules.priceMicrosMax ?? Number.POSITIVE_INFINITY), "over_max_price");
  needs(view.inFlight < rules.inFlightMax, "in_flight");
  needs(!view.controlAway, "control_away");
  return { tier: rules.id, lacks };
}
