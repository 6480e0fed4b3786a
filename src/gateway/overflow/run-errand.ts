import type { JobError, JobErrand, JobOverflow } from "../../contract/job.ts";
import type { OverflowPolicy, Tier } from "../../contract/overflow-settings.ts";
import type { Ledger, LedgerOutcome, ReservationName } from "../../coord/overflow/ledger.ts";
import { parseJson } from "../../decide/engines/readings.ts";
import type { Lack } from "../../decide/overflow/decide-overflow.ts";
import type { ApprovedThing } from "../../decide/overflow/ledger-book.ts";
import type { ProviderWork } from "../../decide/overflow/providers/provider-work.ts";
import { contentHash, providerName, setupOf } from "./content-hash.ts";
import {
  completed,
  findTask,
  outcomeUnknown,
  settled,
  takenOut,
  wordsOf,
  type ErrandClaim,
  type ErrandDeps,
  type RunEnd,
} from "./errand-claim.ts";
import { followTask } from "./follow-task.ts";
import { placeOf } from "./providers/make-provider.ts";
import type { Provider } from "./providers/provider.ts";
import { moneyEvent, type MoneyOutcome } from "./money-audit.ts";
import type { Look } from "./overflow-desk.ts";
import type { TierState } from "./tier-state.ts";

/** What is reserved comes back by itself after this, unless its call has begun. */
const RESERVED_MS = 60_000;
const HELD_AGAIN_MS = 2_000;
const LEDGER_AGAIN_MS = 5_000;

/** What was decided: "here" goes on with an engine, the others end this claim. */
type Sent = { readonly kind: "next"; readonly lack: Lack } | { readonly kind: "here" } | RunEndKind;
type RunEndKind = { readonly kind: "end"; readonly end: RunEnd };

/**
 * Takes jobs to tiers.
 *
 * Invariants:
 *   E1. A call to a tier is made only after, in this order: a look at what the tier lacks, a reservation, the job's own note of it, another
 *       look at the card and at the tier, the audit's record, and the ledger's word that the call begins. Each of these can say no.
 *   E2. A task's id is stored before anything else is done with the task. A submission is never made again: after a crash between the
 *       beginning and the stored id its outcome is known only to a place that can be asked by the job's key. Where none can say, the money
 *       stays held and the job fails.
 *   E3. What is certain to be free is given back; what is not is settled at what was reserved, or held. A place that says that it took nothing,
 *       and can be asked, is asked first.
 */
export class Errands {
  readonly #deps: ErrandDeps;

  constructor(deps: ErrandDeps) {
    this.#deps = deps;
  }

  /** Null: the job runs here. Never rejects but for what the claim's store rejects with. */
  async run(claim: ErrandClaim): Promise<RunEnd | null> {
    const { job } = claim;
    const upstream = this.#deps.upstreamIdOf(job);
    if (job.overflow !== undefined && job.overflow.errand !== null && job.overflow.errand.state !== "ended") {
      const resumed = await this.#resume(claim, upstream ?? "", job.overflow, job.overflow.errand);
      if (resumed !== null) return resumed;
    }
    const policy = upstream === null ? undefined : this.#deps.desk.policyOf(upstream);
    if (policy === undefined) return null;
    return new Errand(this.#deps, claim, policy).decide();
  }

  /** Null: it is certain that nothing was sent. */
  async #resume(
    claim: ErrandClaim,
    upstream: string,
    overflow: JobOverflow,
    errand: JobErrand,
  ): Promise<RunEnd | null> {
    const { desk } = this.#deps;
    const { job, token } = claim;
    const { ledger } = desk;
    const name: ReservationName = { id: errand.reservation, tier: errand.tier, subject: job.id };
    if (errand.taskId !== null) {
      const state = desk.tierState(errand.tier, errand.place);
      const gone = desk.tierState(errand.tier) === undefined ? "is not configured" : "is at another place now";
      const why = `the tier ${errand.tier}, which has the job, ${gone}`;
      if (state === undefined || ledger === null) return postponed(token, "OVERFLOW_OUTCOME_UNKNOWN", why);
      state.inFlight += 1;
      try {
        return await followTask(this.#deps, claim, { upstream, overflow, errand, name, ledger, state });
      } finally {
        state.leave();
      }
    }
    const reservation = await ledger?.find(name).catch(() => undefined);
    if (reservation === undefined || ledger === null)
      return postponed(token, "OVERFLOW_LEDGER_UNAVAILABLE", "the ledger that knows whether the job was sent is away");
    if (reservation === null || reservation.state === "reserved" || reservation.state === "void") {
      await ledger.giveBack(name, "its gateway ended before the call");
      return null;
    }
    const state = desk.tierState(errand.tier, errand.place);
    const found = await (state && findTask(this.#deps.clock, state.provider, job.id, claim.signal));
    if (state !== undefined && found?.kind === "found") {
      const known: JobErrand = { ...errand, taskId: found.taskId, state: "accepted" };
      const noted = { ...overflow, errand: known };
      await claim.write(noted);
      state.inFlight += 1;
      try {
        return await followTask(this.#deps, claim, { upstream, overflow: noted, errand: known, name, ledger, state });
      } finally {
        state.leave();
      }
    }
    if (claim.signal.aborted) return { event: { kind: "handBack", token } };
    await ledger.outcomeUnknown(name, "its gateway ended inside the call");
    const words = { ...wordsOf(job, upstream, errand), why: "its gateway ended inside the call" };
    this.#deps.audit.record(moneyEvent(this.#deps.clock, "money_held", words));
    return outcomeUnknown(token, errand.tier);
  }
}

/** One decision about one claimed job. */
class Errand {
  readonly #deps: ErrandDeps;
  readonly #claim: ErrandClaim;
  readonly #policy: OverflowPolicy;
  /** Read when a tier is first asked for its price: most jobs stay here. */
  #asked: { readonly body: unknown } | null = null;
  #look: Look | null = null;

  constructor(deps: ErrandDeps, claim: ErrandClaim, policy: OverflowPolicy) {
    this.#deps = deps;
    this.#claim = claim;
    this.#policy = policy;
  }

  async decide(): Promise<RunEnd | null> {
    this.#look = await this.#deps.desk.look(this.#policy, false);
    if (this.#deps.mayBeAtWork(this.#claim.job)) return this.#stayHere([], "local");
    const lacks: { tier: string; lacks: Lack[] }[] = [];
    for (const { id } of this.#look.view.wanted ? this.#policy.tiers : []) {
      // A reload while the ledger or a tier was asked counts.
      const tier = this.#deps.desk.currentTier(this.#policy.upstream, id);
      if (tier === undefined) continue;
      const found = this.#lacksOf(tier);
      if (found.length === 0) {
        const sent = await this.#send(tier);
        if (sent.kind === "end") return sent.end;
        if (sent.kind === "here") return this.#stayHere([], "local");
        found.push(sent.lack);
      }
      lacks.push({ tier: id, lacks: found });
      for (const lack of found) this.#deps.metrics.refused(id, lack);
    }
    return this.#stayHere(lacks, this.#isHeld() ? "held" : "local");
  }

  /** Off a busy card for a while; a job that is kept waits in the store, where it can be claimed and decided anew. */
  #isHeld(): boolean {
    const { job } = this.#claim;
    if (this.#look?.view.cardBusy !== true) return false;
    const now = job.plan.at(-1)?.at ?? 0;
    const since = job.overflow?.heldSince ?? now;
    return now - since < this.#policy.holdMs;
  }

  async #stayHere(lacks: JobOverflow["lacks"], decision: "local" | "held"): Promise<RunEnd | null> {
    const { job, token } = this.#claim;
    const before = job.overflow?.lacks ?? [];
    if (lacks.length > 0 && JSON.stringify(before) !== JSON.stringify(lacks)) {
      const [first] = lacks;
      const why = lacks.map((each) => `${each.tier}: ${each.lacks.join(", ")}`).join("; ");
      const words = { tier: first?.tier ?? "", micros: 0, currency: "" };
      this.#record("money_refused", { ...words, why });
    }
    this.#deps.metrics.decided(this.#policy.upstream, decision);
    const errand = job.overflow?.errand?.state === "ended" ? job.overflow.errand : null;
    const written = await this.#claim.write(this.#noted(decision, null, lacks, errand));
    if (decision === "local" || !written) return null;
    const why = this.#look?.view.why ?? "";
    return postponed(token, "OVERFLOW_HELD", `the card is busy (${why}) and no tier may take the job`, HELD_AGAIN_MS);
  }

  #lacksOf(tier: Tier): Lack[] {
    const { job } = this.#claim;
    const priceMicros = this.#quote(tier)?.micros ?? null;
    const question = { keyId: job.keyId, allowedThen: job.allowExternal, priceMicros };
    const { lacks } = this.#deps.desk.verdict(tier, question);
    // A tier is asked for one thing at a price; parts are many, each with an end of its own.
    return job.parts === null ? [...lacks] : ["has_parts", ...lacks.filter((lack) => lack !== "unpriced")];
  }

  #quote(tier: Tier): { readonly micros: number; readonly currency: string } | null {
    const state = this.#deps.desk.tierState(tier.id);
    const quote = state?.provider.price(this.#workFor(Number.MAX_SAFE_INTEGER));
    return quote?.kind === "priced" ? { micros: quote.micros, currency: quote.currency } : null;
  }

  #workFor(maxMicros: number): ProviderWork {
    const { job, body } = this.#claim;
    this.#asked ??= { body: body === undefined ? undefined : parseJson(body.toString("utf8")) };
    return { jobId: job.id, idempotencyKey: job.id, path: job.path, body: this.#asked.body, maxMicros };
  }

  /** E1. */
  async #send(tier: Tier): Promise<Sent> {
    const { desk } = this.#deps;
    const { job } = this.#claim;
    const { ledger } = desk;
    const state = desk.tierState(tier.id);
    const quote = this.#quote(tier);
    if (ledger === null || state === undefined || quote === null) return { kind: "next", lack: "ledger_away" };
    const name: ReservationName = { id: `${tier.id}:${job.id}`, tier: tier.id, subject: job.id };
    const thing =
      tier.approval === "tier" ? null : { hash: contentHash(job, this.#claim.body), provider: providerName(tier) };
    // Taken before anything is waited for: jobs that are decided at once must not all see the same room.
    state.enter();
    try {
      const reserved = await ledger.reserve({
        ...name,
        ...quote,
        budget: tier.budget,
        approval: thing === null ? null : { ...thing, requester: job.keyId, twoPerson: tier.twoPerson },
        ttlMs: RESERVED_MS,
        setup: setupOf(tier),
        payer: { keyId: job.keyId, model: job.model, upstream: this.#policy.upstream },
      });
      if (reserved.kind === "refused") return this.#notBegun(state, reserved);
      const errand: JobErrand = {
        tier: tier.id,
        place: state.place,
        reservation: name.id,
        ...quote,
        taskId: null,
        paidMicros: null,
        state: "intended",
      };
      return await this.#begin({ tier, name, ledger, state, errand, thing });
    } finally {
      state.leave();
    }
  }

  async #begin(going: Going): Promise<Sent> {
    const { tier, name, ledger, state, errand, thing } = going;
    const { audit, clock } = this.#deps;
    const back = async (why: string): Promise<void> => {
      state.onSubmission("abandoned");
      await ledger.giveBack(name, why);
    };
    if (!(await this.#claim.write(this.#noted("tier", tier.id, [], errand)))) {
      await back("the job was taken back");
      return { kind: "here" };
    }
    // The last look before money is spent: what has come back meanwhile keeps the job here.
    this.#look = await this.#deps.desk.look(this.#policy, true);
    const now = this.#deps.desk.currentTier(this.#policy.upstream, tier.id);
    // What was looked at is what is asked, though a reload comes before the call does.
    const { provider } = state;
    const moved: Lack | undefined =
      now !== undefined && placeOf(now.provider) !== errand.place ? "tier_unavailable" : undefined;
    const lack = this.#lacksNow(now, thing !== null)[0] ?? moved;
    if (!this.#look.view.wanted || lack !== undefined || this.#claim.stopped() !== null) {
      await back(lack === undefined ? "capacity is back" : `the tier lacks ${lack}`);
      return lack === undefined ? { kind: "here" } : { kind: "next", lack };
    }
    const words = wordsOf(this.#claim.job, this.#policy.upstream, errand);
    try {
      await audit.commit(moneyEvent(clock, "money_committed", words));
    } catch {
      await back("the audit takes no record");
      return { kind: "next", lack: "audit_away" };
    }
    // By the tier as it is now, which a reload may have moved to another place.
    const begun = await ledger.begin(name, thing === null ? null : { ...thing, provider: providerName(now ?? tier) });
    if (begun.kind === "refused") {
      await ledger.giveBack(name, "the call did not begin");
      return this.#notBegun(state, begun);
    }
    return this.#submit(going, provider);
  }

  /** What the tier lacks as it is now. Its rules may have been changed since, an approval of each job's own asked for. */
  #lacksNow(tier: Tier | undefined, isApproved: boolean): readonly Lack[] {
    if (tier === undefined) return ["not_approved"];
    if (tier.approval === "per_job" && !isApproved) return ["no_job_approval"];
    return this.#lacksOf(tier).filter((lack) => !OWN.has(lack));
  }

  #notBegun(state: TierState, { lack }: Extract<LedgerOutcome, { kind: "refused" }>): Sent {
    state.onSubmission("abandoned");
    return { kind: "next", lack };
  }

  /** E2. The submission itself is never broken off: what became of it would be unknown. */
  async #submit(going: Going, provider: Provider): Promise<Sent> {
    const { tier, name, ledger, state, errand } = going;
    const { metrics, log } = this.#deps;
    const { job, token } = this.#claim;
    this.#claim.left();
    let outcome = await provider.submit(this.#workFor(errand.micros), new AbortController().signal);
    metrics.submitted(tier.id, outcome.kind);
    log.info("overflow.submit", { job: job.id, tier: tier.id, outcome: outcome.kind });
    if (outcome.kind === "unknown" || outcome.kind === "doubtful") {
      // Not by the claim's signal: a job that has ended has its task called off, if there is one.
      const found = await findTask(this.#deps.clock, state.provider, job.id, new AbortController().signal);
      const free = outcome.kind === "doubtful" && found.kind === "none";
      if (found.kind === "found") {
        state.onSubmission("failed");
        return this.#follow(going, found.taskId);
      }
      outcome = { kind: free ? "unavailable" : "unknown", why: outcome.why };
    }
    switch (outcome.kind) {
      case "accepted":
        state.onSubmission("ok");
        return this.#follow(going, outcome.taskId);
      case "done": {
        state.onSubmission("ok");
        metrics.decided(this.#policy.upstream, "tier");
        const paid = await settled(this.#deps, ledger, name, outcome.chargedMicros ?? null, errand);
        this.#record("money_charged", { ...errand, micros: paid, why: "" });
        await this.#claim.write(this.#noted("tier", tier.id, [], { ...errand, paidMicros: paid }));
        return { kind: "end", end: completed(token, outcome.result, `tier ${tier.id} answered`) };
      }
      case "unknown": {
        state.onSubmission("failed");
        await ledger.outcomeUnknown(name, outcome.why);
        this.#record("money_held", { ...errand, why: outcome.why });
        return { kind: "end", end: outcomeUnknown(token, tier.id) };
      }
      default: {
        const ofAccount = outcome.kind === "refused" && (outcome.reason === "auth" || outcome.reason === "quota");
        state.onSubmission(outcome.kind === "unavailable" || ofAccount ? "failed" : "abandoned");
        if (ofAccount) await takenOut(this.#deps, ledger, name, { tier, why: outcome.why });
        else await ledger.giveBack(name, outcome.why);
        this.#record("money_freed", { ...errand, why: `${outcome.kind}: ${outcome.why}` });
        // Nothing was taken, and it is known: the job's own note says so too before another place is asked.
        await this.#claim.write(this.#noted("local", null, [], null));
        const ofJob = outcome.kind === "refused" && (outcome.reason === "input" || outcome.reason === "policy");
        if (ofJob) return { kind: "here" };
        return { kind: "next", lack: outcome.kind === "refused" ? "tier_refused" : "tier_unavailable" };
      }
    }
  }

  /** E2 */
  async #follow({ tier, name, ledger, state, errand }: Going, taskId: string): Promise<Sent> {
    const { upstream } = this.#policy;
    this.#deps.metrics.decided(upstream, "tier");
    const accepted: JobErrand = { ...errand, taskId, state: "accepted" };
    const overflow = this.#noted("tier", tier.id, [], accepted);
    await this.#claim.write(overflow);
    const task = { upstream, overflow, errand: accepted, name, ledger, state };
    return { kind: "end", end: await followTask(this.#deps, this.#claim, task) };
  }

  #noted(
    decision: JobOverflow["decision"],
    tier: string | null,
    lacks: JobOverflow["lacks"],
    errand: JobErrand | null,
  ): JobOverflow {
    const look = this.#look;
    const signals = (look?.readings ?? []).map(({ ofCard: _ofCard, ...signal }) => signal);
    const { card = "free", why = "" } = look?.view ?? {};
    return { card, why, decision, tier, signals, lacks, errand };
  }

  #record(outcome: MoneyOutcome, words: { tier: string; micros: number; currency: string; why: string }): void {
    const { clock, audit } = this.#deps;
    const { job } = this.#claim;
    const { tier, micros, currency, why } = words;
    audit.record(
      moneyEvent(clock, outcome, { ...wordsOf(job, this.#policy.upstream, { tier, micros, currency }), why }),
    );
  }
}

interface Going {
  readonly tier: Tier;
  readonly name: ReservationName;
  readonly ledger: Ledger;
  readonly state: TierState;
  readonly errand: JobErrand;
  /** What an approval of the job's own has to be for; null: none is asked for. */
  readonly thing: ApprovedThing | null;
}

/** What the errand itself takes up at the tier. */
const OWN: ReadonlySet<Lack> = new Set(["in_flight", "breaker_open"]);

const postponed = (
  token: string,
  code: JobError["code"],
  message: string,
  afterMs: number = LEDGER_AGAIN_MS,
): RunEnd => ({
  event: { kind: "postpone", token, error: { code, message }, afterMs },
});
