import { assertNever } from "../../kernel/assert-never.ts";
import { asEpoch, formatIsoTime } from "../../kernel/clock.ts";
import type { TierBudget } from "../../contract/overflow-settings.ts";
import type { Lack } from "./decide-overflow.ts";

/**
 * The money that goes to tiers, as a function: (what is stored, event, time) → what is stored then. A store writes the outcome only
 * over what it was made from, so what is decided here is decided once, whoever else decides at the same time.
 *
 * Amounts are whole millionths of the account's currency, since sums of fractions drift.
 *
 * Invariants:
 *   L1. Spent and reserved together never exceed a cap by a reservation: `reserve` is refused first. What a provider charges above what was
 *       reserved is booked as it is, and the account is halted with it.
 *   L2. No call without `begin`, and no `begin` without a live reservation, a live approval where one is asked for, and the switch and the
 *       account open. A reservation begins once.
 *   L3. What began is given back or settled by its outcome alone; an outcome that nobody knows keeps the money held.
 *   L4. A reservation that did not begin runs out by itself.
 *   L5. A charged reservation is final: its id never reserves again.
 *   L6. An approval serves one reservation, for one content, provider and price. One that never began gives it back. All of it is looked at again
 *       when the call begins.
 *   L7. A halt that is over is gone with the next reservation, and holds no call that was reserved after it.
 */
export interface Account {
  readonly tier: string;
  readonly currency: string;
  /** By "2026-01-31". */
  readonly days: Readonly<Record<string, Sums>>;
  /** By "2026-01". */
  readonly months: Readonly<Record<string, Sums>>;
  /** Why nothing more may be spent; null: it may. */
  readonly halted: Halt | null;
}

/** Until an operator ends it, or what it names itself does. */
export interface Halt {
  readonly at: number;
  readonly why: string;
  readonly until?: number;
  /** It is of the tier as it was set up then: changed, the tier is another one. */
  readonly setup?: string;
}

export interface Sums {
  readonly spent: number;
  readonly reserved: number;
}

/** Whose use of what the money is counted as. */
export interface Payer {
  readonly keyId: string;
  readonly model: string | null;
  readonly upstream: string;
}

export interface Reservation {
  readonly id: string;
  readonly tier: string;
  /** The job or request that it is for. */
  readonly subject: string;
  readonly micros: number;
  readonly currency: string;
  readonly day: string;
  readonly month: string;
  readonly state: "reserved" | "begun" | "unknown" | "settled" | "void";
  readonly at: number;
  /** One that has not begun by then is void. */
  readonly expiresAt: number;
  readonly chargedMicros: number | null;
  readonly why: string;
  /** Whether an approval of its own was asked for. */
  readonly approved: boolean;
  /** A call was made, whatever was said of it later. */
  readonly called?: true;
  readonly payer?: Payer;
}

export interface Approval {
  readonly tier: string;
  readonly subject: string;
  /** Of the content that was approved. */
  readonly hash: string;
  /** Who was to be asked. */
  readonly provider: string;
  readonly maxMicros: number;
  readonly currency: string;
  readonly by: string;
  readonly at: number;
  readonly expiresAt: number;
  /** "forged": what is stored is not what was signed. */
  readonly state: "open" | "held" | "used" | "revoked" | "forged";
  readonly reservation: string | null;
}

/** The kill switch. */
export interface SpendSwitch {
  readonly stopped: { readonly by: string; readonly at: number; readonly why: string } | null;
}

export interface LedgerView {
  readonly spend: SpendSwitch;
  readonly account: Account | null;
  readonly reservation: Reservation | null;
  readonly approval: Approval | null;
}

/** What an approval has to be for. */
export interface ApprovedThing {
  readonly hash: string;
  readonly provider: string;
}

export interface ReserveAsk {
  /** The same for each attempt at one thing. */
  readonly id: string;
  readonly tier: string;
  readonly subject: string;
  readonly micros: number;
  readonly currency: string;
  readonly budget: TierBudget;
  /** Null: the tier's own approval is enough. */
  readonly approval: (ApprovedThing & { readonly requester: string; readonly twoPerson: boolean }) | null;
  readonly ttlMs: number;
  readonly payer?: Payer;
  /** Names how the tier is set up. */
  readonly setup?: string;
}

/** The place refuses the account, and not the work: whoever asks next would be told the same. */
export interface Refusal {
  readonly why: string;
  readonly setup: string;
  /** It is looked at again after this. */
  readonly pauseMs: number;
}

export type LedgerEvent =
  | ({ readonly kind: "reserve" } & ReserveAsk)
  /** The call is made next. `approval`: what is about to be sent, where an approval was asked for. */
  | { readonly kind: "begin"; readonly approval: ApprovedThing | null }
  | { readonly kind: "settle"; readonly chargedMicros: number | null }
  /** It is known that nothing is charged. `expired`: only if its time is over. `refusal`: nothing more is to be asked. */
  | { readonly kind: "void"; readonly why: string; readonly expired: boolean; readonly refusal?: Refusal | undefined }
  | { readonly kind: "unknown"; readonly why: string };

export type LedgerStep =
  | { readonly kind: "moved"; readonly view: LedgerView }
  | { readonly kind: "same" }
  | { readonly kind: "refused"; readonly lack: Lack };

const DAYS_KEPT = 62;
const MONTHS_KEPT = 14;
const WHY_CHARS_MAX = 300;
const NOTHING: Sums = { spent: 0, reserved: 0 };
const SAME: LedgerStep = { kind: "same" };
const refused = (lack: Lack): LedgerStep => ({ kind: "refused", lack });

export function stepLedger(view: LedgerView, event: LedgerEvent, now: number): LedgerStep {
  switch (event.kind) {
    case "reserve":
      return reserve(view, event, now);
    case "begin":
      return begin(view, event.approval, now);
    case "settle":
      return settle(view, event.chargedMicros, now);
    case "void":
      return withHalt(giveBack(view, event, now), event.refusal, now);
    case "unknown":
      if (view.reservation?.state !== "begun") return SAME;
      return moved(view, { reservation: { ...view.reservation, state: "unknown", why: bounded(event.why) } });
    default:
      return assertNever(event, "ledger event");
  }
}

function reserve(before: LedgerView, ask: ReserveAsk, now: number): LedgerStep {
  const known = before.reservation?.state;
  if (known === "begun" || known === "unknown") return refused("underway");
  if (known === "settled") return refused("already_charged");
  if (!isAmount(ask.micros)) return refused("unpriced");
  // One that did not begin makes place for what is asked now: prices may have changed since.
  const cleared = known === "reserved" ? giveBack(before, { why: "reserved anew", expired: false }, now) : SAME;
  const view = cleared.kind === "moved" ? cleared.view : before;
  if (view.spend.stopped !== null) return refused("stopped");
  const account: Account = view.account ?? {
    tier: ask.tier,
    currency: ask.currency,
    days: {},
    months: {},
    halted: null,
  };
  if (haltNow(account, ask.setup, now) !== null) return refused("halted");
  const { day, month } = periodOf(now);
  const today = account.days[day] ?? NOTHING;
  const thisMonth = account.months[month] ?? NOTHING;
  if (account.currency !== ask.currency && thisMonth.spent + thisMonth.reserved > 0) return refused("currency");
  if (ask.approval !== null) {
    const lack = judgeApproval(view.approval, ask, ask.approval, now);
    if (lack !== null) return refused(lack);
  }
  if (exceeds(today, ask.micros, ask.budget.dayMicros)) return refused("budget_day");
  if (exceeds(thisMonth, ask.micros, ask.budget.monthMicros)) return refused("budget_month");
  return moved(view, {
    account: booked(
      { ...account, currency: ask.currency, halted: null },
      { day, month },
      { reserved: ask.micros, spent: 0 },
    ),
    reservation: {
      id: ask.id,
      tier: ask.tier,
      subject: ask.subject,
      micros: ask.micros,
      currency: ask.currency,
      day,
      month,
      state: "reserved",
      at: now,
      expiresAt: now + ask.ttlMs,
      chargedMicros: null,
      why: "",
      approved: ask.approval !== null,
      ...(ask.payer !== undefined && { payer: ask.payer }),
    },
    approval:
      ask.approval === null || view.approval === null
        ? view.approval
        : { ...view.approval, state: "held", reservation: ask.id },
  });
}

function judgeApproval(
  approval: Approval | null,
  ask: ReserveAsk,
  { requester, twoPerson, ...thing }: NonNullable<ReserveAsk["approval"]>,
  now: number,
): Lack | null {
  if (approval === null) return "no_job_approval";
  // Of what is forged nothing is believed, not even what it is for.
  if (approval.state === "forged") return "approval_forged";
  if (approval.tier !== ask.tier || approval.subject !== ask.subject) return "no_job_approval";
  if (approval.state === "held" || approval.state === "used") return "approval_used";
  return (
    whyNotFor(approval, thing, ask, now) ?? (twoPerson && approval.by === requester ? "approved_by_requester" : null)
  );
}

/** Whether it is a true and living approval of this thing at this price, whoever holds it. */
function whyNotFor(
  approval: Approval,
  { hash, provider }: ApprovedThing,
  { micros, currency }: Pick<Reservation, "micros" | "currency">,
  now: number,
): Lack | null {
  if (approval.state === "forged") return "approval_forged";
  if (approval.state === "revoked") return "approval_revoked";
  if (approval.expiresAt <= now) return "approval_expired";
  if (approval.hash !== hash) return "approval_for_other_content";
  if (approval.provider !== provider) return "approval_for_other_provider";
  return approval.currency !== currency || approval.maxMicros < micros ? "approval_below_price" : null;
}

function begin(view: LedgerView, thing: ApprovedThing | null, now: number): LedgerStep {
  const { reservation, approval } = view;
  if (reservation === null || reservation.state === "void") return refused("reservation_over");
  if (reservation.state === "settled") return refused("already_charged");
  if (reservation.state !== "reserved") return refused("underway");
  if (view.spend.stopped !== null) return refused("stopped");
  if (view.account === null || view.account.halted !== null) return refused("halted");
  if (reservation.expiresAt <= now) return refused("reservation_over");
  if (reservation.approved) {
    if (approval === null || approval.reservation !== reservation.id) return refused("no_job_approval");
    if (approval.state === "open" || approval.state === "used") return refused("approval_used");
    const lack = thing === null ? "no_job_approval" : whyNotFor(approval, thing, reservation, now);
    if (lack !== null) return refused(lack);
  }
  return moved(view, {
    reservation: { ...reservation, state: "begun", called: true },
    approval: reservation.approved && approval !== null ? { ...approval, state: "used" } : approval,
  });
}

function settle(view: LedgerView, told: number | null, now: number): LedgerStep {
  const { reservation, account } = view;
  if (reservation === null || account === null) return SAME;
  // Somebody said that nothing was charged while the call was still under way: what it cost is booked all the same.
  const late = reservation.state === "void" && reservation.called === true;
  if (reservation.state !== "begun" && reservation.state !== "unknown" && !late) return SAME;
  // A provider that tells no price that can be read is taken at the price that was reserved.
  const charged = told !== null && isAmount(told) ? told : reservation.micros;
  const overrun = charged > reservation.micros;
  const next = booked(account, reservation, { reserved: late ? 0 : -reservation.micros, spent: charged });
  const why = `charged ${charged} where ${reservation.micros} millionths were reserved: the price has changed`;
  // A halt that ends by itself is less than this one.
  const stays = !overrun || (next.halted !== null && next.halted.until === undefined);
  return moved(view, {
    account: stays ? next : { ...next, halted: { at: now, why } },
    reservation: { ...reservation, state: "settled", chargedMicros: charged },
  });
}

function giveBack(
  view: LedgerView,
  { why, expired }: { readonly why: string; readonly expired: boolean },
  now: number,
): LedgerStep {
  const { reservation, account, approval } = view;
  if (reservation === null || account === null) return SAME;
  if (reservation.state === "settled" || reservation.state === "void") return SAME;
  if (expired && (reservation.state !== "reserved" || reservation.expiresAt > now)) return SAME;
  const reopens = reservation.state === "reserved" && approval?.state === "held";
  return moved(view, {
    account: booked(account, reservation, { reserved: -reservation.micros, spent: 0 }),
    reservation: { ...reservation, state: "void", chargedMicros: 0, why: bounded(why) },
    approval:
      reopens && approval.reservation === reservation.id ? { ...approval, state: "open", reservation: null } : approval,
  });
}

/** What still keeps a tier that is set up like this from being asked; null: nothing does. */
export function haltNow({ halted }: Pick<Account, "halted">, setup: string | undefined, now: number): Halt | null {
  if (halted === null || now >= (halted.until ?? Number.POSITIVE_INFINITY)) return null;
  return halted.setup === undefined || setup === undefined || halted.setup === setup ? halted : null;
}

/** One that is in force stays as it is: an operator may have to end it. */
function withHalt(step: LedgerStep, refusal: Refusal | undefined, now: number): LedgerStep {
  if (step.kind !== "moved" || refusal === undefined || step.view.account === null) return step;
  const { account } = step.view;
  const { why, setup, pauseMs } = refusal;
  const halted = haltNow(account, setup, now) ?? { at: now, why: bounded(why), until: now + pauseMs, setup };
  return moved(step.view, { account: { ...account, halted } });
}

/** Adds to both periods, and forgets the oldest ones. */
function booked(
  account: Account,
  { day, month }: { readonly day: string; readonly month: string },
  change: Sums,
): Account {
  return {
    ...account,
    days: newest({ ...account.days, [day]: plus(account.days[day] ?? NOTHING, change) }, DAYS_KEPT),
    months: newest({ ...account.months, [month]: plus(account.months[month] ?? NOTHING, change) }, MONTHS_KEPT),
  };
}

const plus = (sums: Sums, change: Sums): Sums => ({
  spent: sums.spent + change.spent,
  // Of a period that was forgotten and is told of again nothing is known but that it is not negative.
  reserved: Math.max(0, sums.reserved + change.reserved),
});

function newest(periods: Readonly<Record<string, Sums>>, kept: number): Readonly<Record<string, Sums>> {
  const names = Object.keys(periods).toSorted();
  if (names.length <= kept) return periods;
  return Object.fromEntries(names.slice(-kept).map((name) => [name, periods[name] ?? NOTHING]));
}

const exceeds = (sums: Sums, micros: number, cap: number | null): boolean =>
  cap !== null && sums.spent + sums.reserved + micros > cap;

const isAmount = (micros: number): boolean => Number.isSafeInteger(micros) && micros >= 0;
const bounded = (why: string): string => why.slice(0, WHY_CHARS_MAX);
const moved = (view: LedgerView, change: Partial<LedgerView>): LedgerStep => ({
  kind: "moved",
  view: { ...view, ...change },
});

/** Days and months are UTC's. */
export function periodOf(now: number): { readonly day: string; readonly month: string } {
  const text = formatIsoTime(asEpoch(now));
  return { day: text.slice(0, 10), month: text.slice(0, 7) };
}
