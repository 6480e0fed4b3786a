import { isSameLead, type Lead } from "../../contract/agent-link.ts";
import type { GatewayReport } from "../../contract/feed.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import { NO_USE, type ReplicaUse } from "../reconcile/snapshot.ts";

/**
 * What all gateways together say of demand and of replicas that drain.
 *
 * Invariants:
 *   R1. Absence of data is no data: a gateway that is silent, has just started, has no mark of this term, or has left without a
 *       word may have calls on any replica.
 *   R2. A replica is idle only if every gateway reported no call on it under a mark at which it was draining already: none of
 *       them sends a new one there.
 *   R3. A gateway that said goodbye has ended its calls. One that broke off is remembered for `rememberMs`, or until another run of it
 *       comes: a process that was started again has no calls of the one before.
 */
export interface GatewayRules {
  /** A report older than this says nothing of now. */
  readonly freshMs: number;
  readonly rememberMs: number;
  /** From the start of a term: gateways that know another leader may not have come yet. */
  readonly gatherMs: number;
}

/** What no setting changes. */
export const GATEWAY_RULES: Omit<GatewayRules, "gatherMs"> = { freshMs: 5_000, rememberMs: 600_000 };

interface Gateway {
  /** The same for all runs of one gateway; null: not known. */
  readonly installation: string | null;
  report: GatewayReport | null;
  reportedAt: MonoMs | null;
  /** Null while it is connected. */
  leftAt: MonoMs | null;
}

export class GatewayReports {
  readonly #rules: GatewayRules;
  readonly #gateways = new Map<string, Gateway>();

  constructor(rules: GatewayRules) {
    this.#rules = rules;
  }

  connected(gatewayId: string, installation: string | null): void {
    const known = this.#gateways.get(gatewayId);
    if (known !== undefined) {
      known.leftAt = null;
      return;
    }
    for (const [id, other] of this.#gateways)
      if (installation !== null && other.installation === installation && other.leftAt !== null)
        this.#gateways.delete(id);
    this.#gateways.set(gatewayId, { installation, report: null, reportedAt: null, leftAt: null });
  }

  reported(gatewayId: string, report: GatewayReport, now: MonoMs): void {
    const gateway = this.#gateways.get(gatewayId);
    if (gateway === undefined) return;
    gateway.report = report;
    gateway.reportedAt = now;
  }

  left(gatewayId: string, how: "goodbye" | "broken", now: MonoMs): void {
    const gateway = this.#gateways.get(gatewayId);
    if (how === "goodbye") this.#gateways.delete(gatewayId);
    else if (gateway !== undefined) gateway.leftAt = now;
  }

  /** Names of models that requests wait for at gateways that report now. */
  demanded(now: MonoMs): ReadonlySet<string> {
    const names = new Set<string>();
    for (const gateway of this.#gateways.values()) {
      if (gateway.report === null || !this.#isFresh(gateway, now)) continue;
      for (const [name, { waiting }] of Object.entries(gateway.report.demand)) if (waiting > 0) names.add(name);
    }
    return names;
  }

  /** `draining`: since which version of the term's feed, by replica. Without any gateway nothing is known. */
  idle(draining: ReadonlyMap<string, number>, lead: Lead, termAgeMs: number, now: MonoMs): ReadonlySet<string> {
    this.#forgetLeft(now);
    const idle = new Set<string>();
    if (this.#gateways.size === 0 || termAgeMs < this.#rules.gatherMs) return idle;
    for (const [replicaId, since] of draining) {
      const all = [...this.#gateways.values()];
      if (all.every((gateway) => this.#hasNone(gateway, replicaId, since, lead, now))) idle.add(replicaId);
    }
    return idle;
  }

  /**
   * Of replicas that every gateway names under this term's mark. One that a gateway has not asked since it started has had no request
   * of it for as long as it is up.
   */
  use(lead: Lead, termAgeMs: number, now: MonoMs): ReadonlyMap<string, ReplicaUse> {
    this.#forgetLeft(now);
    const reports: GatewayReport[] = [];
    for (const gateway of this.#gateways.values()) {
      const { report, leftAt } = gateway;
      if (report === null || leftAt !== null || !this.#isFresh(gateway, now)) return NO_USE;
      if (report.have === null || !isSameLead(report.have, lead)) return NO_USE;
      reports.push(report);
    }
    const [first, ...others] = reports;
    if (first === undefined || termAgeMs < this.#rules.gatherMs) return NO_USE;
    const use = new Map<string, ReplicaUse>();
    for (const id of Object.keys(first.used)) {
      if (!others.every(({ used }) => Object.hasOwn(used, id))) continue;
      let [inFlight, idleMs] = [0, Infinity];
      for (const { used, upForMs } of reports) {
        const its = used[id]!;
        inFlight += its.inFlight;
        idleMs = Math.min(idleMs, its.inFlight > 0 ? 0 : (its.idleMs ?? upForMs));
      }
      use.set(id, { inFlight, idleMs });
    }
    return use;
  }

  #forgetLeft(now: MonoMs): void {
    for (const [id, { leftAt }] of this.#gateways)
      if (leftAt !== null && now - leftAt >= this.#rules.rememberMs) this.#gateways.delete(id);
  }

  #hasNone(gateway: Gateway, replicaId: string, since: number, lead: Lead, now: MonoMs): boolean {
    const { report, leftAt } = gateway;
    if (report === null || leftAt !== null || !this.#isFresh(gateway, now)) return false;
    const { have } = report;
    return (
      have !== null && isSameLead(have, lead) && have.version >= since && (report.used[replicaId]?.inFlight ?? 0) === 0
    );
  }

  #isFresh = ({ reportedAt }: Gateway, now: MonoMs): boolean =>
    reportedAt !== null && now - reportedAt < this.#rules.freshMs;
}
