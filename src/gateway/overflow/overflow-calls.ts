import { randomBytes } from "node:crypto";
import type { AuditEvent } from "../../contract/audit-event.ts";
import type { OverflowPolicy, Tier } from "../../contract/overflow-settings.ts";
import type { RequestClass } from "../../contract/request-class.ts";
import type { Ledger, LedgerOutcome, ReservationName } from "../../coord/overflow/ledger.ts";
import { parseJson } from "../../decide/engines/readings.ts";
import type { Lack } from "../../decide/overflow/decide-overflow.ts";
import { judgeEndedCall, judgeFailedCall, type CallMoney } from "../../decide/overflow/judge-call.ts";
import { RefusalDigest } from "../../decide/overflow/refusal-digest.ts";
import type { RetryCause } from "../../decide/routing/retry-policy.ts";
import type { Clock } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { AuditSink } from "../audit/audit-sink.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import { setupOf } from "./content-hash.ts";
import { takenOut } from "./errand-claim.ts";
import { moneyEvent, type MoneyOutcome, type MoneyWords } from "./money-audit.ts";
import type { Look, OverflowDesk } from "./overflow-desk.ts";
import type { OverflowMetrics } from "./overflow-metrics.ts";
import type { TierState } from "./tier-state.ts";

export interface OverflowCallsDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly desk: OverflowDesk;
  readonly metrics: OverflowMetrics;
  /** What a tier's calls go through; undefined: the tier takes none. */
  readonly upstreamOf: (tierId: string) => Upstream | undefined;
}

export interface OverflowCall {
  readonly requestId: string;
  readonly keyId: string;
  readonly allowExternal: boolean;
  readonly model: string;
  readonly path: string;
  readonly chunks: readonly Buffer[];
}

/** Begins the names of calls in the ledger; those of jobs begin otherwise. */
export const CALL_PREFIX = "call_";

/** Where a call goes instead. Its money is settled by the call's own record, or by how it failed. */
export interface CallRoute {
  readonly upstream: Upstream;
  readonly audit: AuditSink;
  /** Each time that it is sent may be charged, so it is sent once, whatever broke. */
  readonly isPaid: boolean;
  /** The call is not made after all. */
  cancel(why: string): void;
  /** It failed before its client saw anything. True: its own upstream may be asked now, and this call is settled. */
  failed(cause: RetryCause, canGoOn: boolean): boolean;
}

const RESERVED_MS = 60_000;
const CHAT = "/v1/chat/completions";
const CALL_ID_BYTES = 8;
const LOOK_MS_MAX = 50;
const LOOK_AGE_MS_MAX = 10_000;

/**
 * People's chats whose upstream's queue is long, or which can't be reached, on their way to a tier with the same API.
 *
 * Invariants:
 *   C1. Nothing is sent to a tier before its money is reserved, its record is stored and the ledger lets the call begin.
 *   C2. Each call that began is settled once: at what it used, at nothing where the tier certainly took nothing, at what was reserved where it
 *       began to answer and did not say; and its money stays held where nobody knows whether it was taken.
 *   C3. A call that the tier failed before its client saw anything goes on at its own upstream, unless the tier may be at work on it for money.
 */
export class OverflowCalls {
  readonly #deps: OverflowCallsDeps;
  readonly #refused = new RefusalDigest();

  constructor(deps: OverflowCallsDeps) {
    this.#deps = deps;
  }

  /** Null, for nearly every call: it goes where it always goes. */
  concerns(upstream: Upstream, requestClass: RequestClass, path: string, isJob: boolean): OverflowPolicy | null {
    if (isJob || requestClass !== "interactive" || path !== CHAT) return null;
    const policy = this.#deps.desk.policyOf(upstream.settings.id);
    return policy?.tiers.some(({ provider }) => provider.kind === "openai") === true ? policy : null;
  }

  /** Null: here. Never rejects. */
  async route(policy: OverflowPolicy, call: OverflowCall): Promise<CallRoute | null> {
    const { metrics, log } = this.#deps;
    try {
      const { view } = await this.#lookSoon(policy);
      if (!view.wanted) return null;
      const body = parseJson(Buffer.concat(call.chunks).toString("utf8"));
      const refusals: Refused[] = [];
      for (const tier of policy.tiers) {
        if (tier.provider.kind !== "openai") continue;
        const offered = await this.#offer(policy, tier, call, body);
        if (offered.kind === "route") {
          metrics.decided(policy.upstream, "tier");
          return offered.route;
        }
        for (const lack of offered.lacks) metrics.refused(tier.id, lack);
        refusals.push({ tier, lacks: offered.lacks });
      }
      metrics.decided(policy.upstream, "local");
      this.#recordRefused(policy, call, refusals);
    } catch (error) {
      log.warn("overflow.call", { message: messageOf(error) });
    }
    return null;
  }

  /** A signal that is slow holds up no chat for long: what was seen before counts then, if it is not old. */
  async #lookSoon(policy: OverflowPolicy): Promise<Look> {
    const { desk, clock } = this.#deps;
    const look = desk.look(policy, false);
    const before = desk.lastLook(policy.upstream);
    if (before === null || clock.wall() - before.at > LOOK_AGE_MS_MAX) return look;
    const { promise: late, resolve } = Promise.withResolvers<Look>();
    const timer = clock.after(LOOK_MS_MAX, () => resolve(before));
    return Promise.race([look, late]).finally(() => timer.cancel());
  }

  /** What a tier would have been paid for is on record, whoever was refused. */
  #recordRefused(policy: OverflowPolicy, call: OverflowCall, refusals: readonly Refused[]): void {
    const [first, ...others] = refusals.filter(({ tier, lacks }) => tier.provider.price !== null && lacks.length > 0);
    if (first === undefined) return;
    const lacking = [first, ...others].map(({ tier, lacks }) => `${tier.id}: ${lacks.join(", ")}`).join("; ");
    const { audit, clock } = this.#deps;
    const more = this.#refused.note(JSON.stringify([policy.upstream, call.keyId, lacking]), clock.mono());
    if (more === null) return;
    const why = more === 0 ? lacking : `${lacking}; and ${more} like it since the last record`;
    audit.record(moneyEvent(clock, "money_refused", { ...wordsOf(policy, first.tier, call), why }));
  }

  async #offer(policy: OverflowPolicy, tier: Tier, call: OverflowCall, body: unknown): Promise<Offered> {
    const { desk, metrics, audit, clock, log } = this.#deps;
    const { ledger } = desk;
    const state = desk.tierState(tier.id);
    const upstream = this.#deps.upstreamOf(tier.id);
    if (ledger === null || state === undefined || upstream === undefined)
      return { kind: "refused", lacks: ["tier_unavailable"] };
    const work = { jobId: call.requestId, idempotencyKey: call.requestId, path: call.path, body };
    const quote = state.provider.price({ ...work, maxMicros: Number.MAX_SAFE_INTEGER });
    const priceMicros = quote.kind === "priced" ? quote.micros : null;
    const question = { keyId: call.keyId, allowedThen: call.allowExternal, priceMicros };
    const { lacks } = desk.verdict(tier, question);
    if (lacks.length > 0 || quote.kind !== "priced") return { kind: "refused", lacks };
    // A client may name its requests as it likes, two of them alike.
    const subject = `${CALL_PREFIX}${randomBytes(CALL_ID_BYTES).toString("hex")}`;
    const name: ReservationName = { id: `${tier.id}:${subject}`, tier: tier.id, subject };
    const { micros, currency } = quote;
    const words: MoneyWords = { ...wordsOf(policy, tier, call), micros, currency };
    state.enter();
    const lack = await this.#begin(ledger, tier, name, words).catch((): Lack => "ledger_away");
    if (lack !== null) {
      state.onSubmission("abandoned");
      state.leave();
      return { kind: "refused", lacks: [lack] };
    }
    const parts = { clock, log, audit, ledger, name, words, tier, state, metrics };
    return { kind: "route", route: new PaidCall(parts, upstream) };
  }

  /** Null: it has begun. */
  async #begin(ledger: Ledger, tier: Tier, name: ReservationName, words: MoneyWords): Promise<Lack | null> {
    const { audit, clock } = this.#deps;
    const reserved = await ledger.reserve({
      ...name,
      micros: words.micros,
      currency: words.currency,
      budget: tier.budget,
      // A call can't wait for an approval of its own.
      approval:
        tier.approval === "tier" ? null : { hash: "", provider: "", requester: words.keyId, twoPerson: tier.twoPerson },
      ttlMs: RESERVED_MS,
      setup: setupOf(tier),
      payer: { keyId: words.keyId, model: words.model, upstream: words.upstream },
    });
    if (reserved.kind === "refused") return reserved.lack;
    try {
      await audit.commit(moneyEvent(clock, "money_committed", words));
    } catch {
      await ledger.giveBack(name, "the audit takes no record");
      return "audit_away";
    }
    const begun = await ledger.begin(name);
    if (begun.kind === "done") return null;
    await ledger.giveBack(name, "the call did not begin");
    return begun.lack;
  }
}

type Offered =
  | { readonly kind: "route"; readonly route: CallRoute }
  | { readonly kind: "refused"; readonly lacks: readonly Lack[] };

interface Refused {
  readonly tier: Tier;
  readonly lacks: readonly Lack[];
}

const wordsOf = ({ upstream }: OverflowPolicy, tier: Tier, { requestId, keyId, model }: OverflowCall): MoneyWords => ({
  subject: requestId,
  keyId,
  class: "interactive",
  model,
  upstream,
  tier: tier.id,
  micros: 0,
  currency: "",
  why: "",
});

interface PaidCallParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly audit: AuditSink;
  readonly ledger: Ledger;
  readonly name: ReservationName;
  readonly words: MoneyWords;
  readonly tier: Tier;
  readonly state: TierState;
  readonly metrics: OverflowMetrics;
}

class PaidCall implements CallRoute {
  readonly upstream: Upstream;
  readonly audit: AuditSink;
  readonly isPaid: boolean;
  readonly #parts: PaidCallParts;
  #over = false;

  constructor(parts: PaidCallParts, upstream: Upstream) {
    const { audit, tier } = parts;
    this.#parts = parts;
    this.upstream = upstream;
    this.isPaid = tier.provider.price !== null;
    this.audit = {
      record: (event) => {
        audit.record({ ...event, overflow: tier.id });
        this.#settle(event);
      },
      commit: (event) => audit.commit(event),
      query: (query) => audit.query(query),
      stats: () => audit.stats(),
      close: () => Promise.resolve(),
    };
  }

  cancel(why: string): void {
    this.#end("abandoned", { kind: "free", why });
  }

  failed(cause: RetryCause, canGoOn: boolean): boolean {
    const { metrics, tier } = this.#parts;
    const { money, goesOn, tiersFault, refusesAccount } = judgeFailedCall(cause, tier.provider.price !== null);
    metrics.submitted(tier.id, money.kind === "unknown" ? "unknown" : tiersFault ? "unavailable" : "refused");
    this.#end(tiersFault ? "failed" : "abandoned", money, refusesAccount);
    return goesOn && canGoOn;
  }

  #settle(event: AuditEvent): void {
    if (this.#over) return;
    const { metrics, tier } = this.#parts;
    const { outcome, errorCode } = event;
    const tiersFault = errorCode?.startsWith("UPSTREAM_") === true;
    if (event.attempts > 0) metrics.submitted(tier.id, outcome === "ok" ? "done" : "unknown");
    this.#end(
      tiersFault ? "failed" : outcome === "ok" ? "ok" : "abandoned",
      judgeEndedCall(event, tier.provider.price),
    );
  }

  /** C2 */
  #end(health: "ok" | "failed" | "abandoned", money: CallMoney, refusesAccount = false): void {
    if (this.#over) return;
    this.#over = true;
    const { ledger, log, name, state, tier, words } = this.#parts;
    state.onSubmission(health);
    state.leave();
    switch (money.kind) {
      case "free":
        this.#record("money_freed", words.micros, money.why);
        return this.#told(
          refusesAccount ? takenOut({ log }, ledger, name, { tier, why: money.why }) : ledger.giveBack(name, money.why),
        );
      case "charged":
        this.#record("money_charged", money.micros ?? words.micros, "");
        return this.#told(ledger.settle(name, money.micros));
      case "unknown":
        this.#record("money_held", words.micros, money.why);
        // By its id alone nobody could find out which request it was.
        return this.#told(ledger.outcomeUnknown(name, `${money.why}; request ${words.subject}`));
      default:
        money satisfies never;
    }
  }

  /** A ledger that is away holds what it held, and an operator finds it there. */
  #told(step: Promise<LedgerOutcome>): void {
    const { log, name } = this.#parts;
    void step.then((outcome) => {
      if (outcome.kind === "refused") log.error("overflow.unsettled", { reservation: name.id, why: outcome.why });
    });
  }

  #record(outcome: MoneyOutcome, micros: number, why: string): void {
    const { audit, clock, words } = this.#parts;
    audit.record(moneyEvent(clock, outcome, { ...words, micros, why }));
  }
}
