import { MICROS } from "../../contract/money.ts";
import type { OverflowPolicy, Tier } from "../../contract/overflow-settings.ts";
import type { ApprovalView, OverflowStateView, SpendView } from "../../contract/overflow-view.ts";
import type { Ledger } from "../../coord/overflow/ledger.ts";
import type { Approval, Halt, SpendSwitch } from "../../decide/overflow/ledger-book.ts";
import { asEpoch, formatIsoTime } from "../../kernel/clock.ts";
import { setupOf } from "./content-hash.ts";
import type { Look, OverflowDesk } from "./overflow-desk.ts";

const iso = (ms: number): string => formatIsoTime(asEpoch(ms));
const money = (micros: number | null): number | null => (micros === null ? null : micros / MICROS);

/**
 * The whole logic of one upstream with its values as of the look. What a tier lacks is told for a free job of a key whose data may leave the
 * house; what depends on the job itself is known only with the job.
 */
export async function overflowState(
  desk: OverflowDesk,
  policy: OverflowPolicy,
  look: Look | null,
  ledger: Ledger | null,
): Promise<OverflowStateView> {
  const tiers = await Promise.all(policy.tiers.map((tier) => tierState(desk, tier, ledger)));
  const wanted = look?.view.wanted === true;
  return {
    upstream: policy.upstream,
    at: look === null ? null : iso(look.at),
    card: look?.view.card ?? null,
    why: look?.view.why ?? "",
    would_go_to: wanted ? (tiers.find(({ missing }) => missing.length === 0)?.id ?? null) : null,
    hold_s: policy.holdMs / 1000,
    on_unreachable: policy.onUnreachable,
    signals: (look?.readings ?? []).map(({ ofCard: _ofCard, ...signal }) => signal),
    tiers,
  };
}

async function tierState(
  desk: OverflowDesk,
  tier: Tier,
  ledger: Ledger | null,
): Promise<OverflowStateView["tiers"][number]> {
  const state = desk.tierState(tier.id);
  const { lacks } = desk.verdict(tier, { keyId: null, allowedThen: true, priceMicros: 0 });
  const asked = {
    id: `${tier.id}:look`,
    tier: tier.id,
    subject: "look",
    micros: 0,
    currency: tier.provider.price?.currency ?? "",
    budget: tier.budget,
    approval: tier.approval === "tier" ? null : { hash: "", provider: "", requester: "", twoPerson: false },
    ttlMs: 0,
    setup: setupOf(tier),
  };
  const lack = ledger === null ? "ledger_away" : await ledger.peek(asked);
  const [spend] = (await ledger?.spend([asked]).catch(() => [])) ?? [];
  return {
    id: tier.id,
    provider: tier.provider.kind,
    approved: tier.approved,
    approval: tier.approval,
    in_flight: state?.inFlight ?? 0,
    breaker: state?.standing ?? "closed",
    breaker_reason: state?.breaker.reason() ?? null,
    halted: viewHalt(spend?.halted ?? null),
    missing: lack === null ? [...lacks] : [...lacks, lack],
  };
}

/** Rejects with OVERFLOW_LEDGER_UNAVAILABLE. */
export async function spendState(desk: OverflowDesk, ledger: Ledger): Promise<SpendView> {
  const tiers = desk.tiers;
  const [refuses, spend, spends, reservations] = await Promise.all([
    ledger.whyRefused(),
    ledger.spendSwitch(),
    ledger.spend(tiers.map((tier) => ({ tier: tier.id, setup: setupOf(tier) }))),
    ledger.reservations(),
  ]);
  return {
    ledger: ledger.kind,
    ...viewSwitch(spend),
    refuses,
    tiers: spends.map(({ tier, currency, day, month, today, thisMonth, halted }, index) => ({
      tier,
      currency: currency === "" ? null : currency,
      day,
      month,
      spent_today: today.spent / MICROS,
      reserved_today: today.reserved / MICROS,
      per_day: money(tiers[index]?.budget.dayMicros ?? null),
      spent_this_month: thisMonth.spent / MICROS,
      reserved_this_month: thisMonth.reserved / MICROS,
      per_month: money(tiers[index]?.budget.monthMicros ?? null),
      halted: viewHalt(halted),
    })),
    open: reservations.map(({ id, tier, subject, state, micros, currency, at, why }) => ({
      id,
      tier,
      subject,
      state,
      reserved: micros / MICROS,
      currency,
      at: iso(at),
      why,
    })),
  };
}

const viewHalt = (halt: Halt | null): SpendView["tiers"][number]["halted"] =>
  halt === null ? null : { at: iso(halt.at), why: halt.why, until: halt.until === undefined ? null : iso(halt.until) };

export const viewSwitch = ({ stopped }: SpendSwitch): Pick<SpendView, "stopped"> => ({
  stopped: stopped === null ? null : { ...stopped, at: iso(stopped.at) },
});

export const viewApproval = (approval: Approval): ApprovalView => ({
  tier: approval.tier,
  job: approval.subject,
  content_hash: approval.hash,
  provider: approval.provider,
  max_price: approval.maxMicros / MICROS,
  currency: approval.currency,
  by: approval.by,
  at: iso(approval.at),
  expires_at: iso(approval.expiresAt),
  state: approval.state,
});
