import { isSameLead } from "../../contract/agent-link.ts";
import type { FleetEvent, NodeDoc, NodeReport, NodeState } from "../../contract/fleet.ts";
import type { MonoMs } from "../../kernel/clock.ts";

/**
 * Which nodes are there, by how long they have been silent. One watch lives as long as one leader's term.
 *
 * Invariants:
 *   W1. Silence counts from the start of the term at the earliest: a leader that has just started knows nothing, and nobody is
 *       lost before `lostAfterMs` of its own time have passed.
 *   W2. A lost verdict needs a working observer. While most of the fleet, or all of a zone, is silent, nobody there becomes
 *       lost; when that ends, whoever is still silent gets the whole time again.
 *   W3. Only a report ends a silence, and it ends it at once, whatever the state was.
 *   W4. What a report says counts only when its agent has taken this term for the highest: then no older leader's command can
 *       change it any more. Until then the node is alive, but nothing is known of it.
 */
export interface WatchSettings {
  readonly unreachableAfterMs: number;
  readonly lostAfterMs: number;
  /** How long a new leader waits for the agents that the store knows before it acts without them. */
  readonly settleMs: number;
}

export const WATCH_DEFAULTS: WatchSettings = { unreachableAfterMs: 10_000, lostAfterMs: 60_000, settleMs: 15_000 };

/** So many in a hundred of the nodes that are not lost, silent at once, speak against the observer. Whole, as 100 * 0.55 is more than 55. */
const MASS_SILENCE_PERCENT = 55;
/** The silence of a zone's only node tells nothing about the zone. */
export const ZONE_NODES_MIN = 2;
export const ZONE_LABEL = "zone";

export interface NodeStatus {
  readonly nodeId: string;
  readonly state: NodeState;
  /** Null for a node that was never seen. */
  readonly silentMs: number | null;
  /** The last one of this term. */
  readonly report: NodeReport | null;
  /** Rises with each report: two observations are two numbers. 0 without a report. */
  readonly reportSeq: number;
}

export interface FleetStatus {
  readonly nodes: ReadonlyMap<string, NodeStatus>;
  /** Agents that the store knows have not reported yet, and the window for it is open. */
  readonly settling: boolean;
  /** Most of the fleet is silent or unknown: nothing may be stopped, deleted or moved. */
  readonly braked: boolean;
  readonly silentZones: ReadonlySet<string>;
  /** The next time at which a verdict changes if nobody reports; null: never. */
  readonly nextChangeAt: MonoMs | null;
  readonly events: readonly FleetEvent[];
}

/** The term of the leader whose watch it is. */
export type Lead = NonNullable<NodeReport["highestEpoch"]>;

interface Watched {
  /** Null until the node's first report ever. */
  heardAt: MonoMs | null;
  /** Until when the observer itself was under suspicion. */
  doubtedUntil: MonoMs;
  report: NodeReport | null;
  reportSeq: number;
  state: NodeState | null;
  zone: string | null;
}

export class NodeWatch {
  readonly #settings: WatchSettings;
  readonly #lead: Lead;
  readonly #startedAt: MonoMs;
  readonly #nodes = new Map<string, Watched>();
  #fleetSilent = false;
  #silentZones = new Set<string>();

  constructor(settings: WatchSettings, lead: Lead, startedAt: MonoMs) {
    this.#settings = settings;
    this.#lead = lead;
    this.#startedAt = startedAt;
  }

  heard(report: NodeReport, now: MonoMs): void {
    const node = this.#nodes.get(report.nodeId) ?? this.#watch(report.nodeId, null);
    node.heardAt = now;
    const { highestEpoch } = report;
    if (highestEpoch === null || !isSameLead(highestEpoch, this.#lead)) return;
    node.report = report;
    node.reportSeq += 1;
  }

  /** The verdicts at `now` over the nodes that the store holds; others are dropped. Tells each change once. */
  judge(docs: Iterable<NodeDoc>, now: MonoMs): FleetStatus {
    const events: FleetEvent[] = [];
    const known = this.#sync(docs);
    const braked = this.#judgeMass(known, now, events);
    const nodes = new Map<string, NodeStatus>();
    let unreported = false;
    let nextChangeAt: number | null = null;
    for (const { id } of known) {
      const node = this.#nodes.get(id)!;
      const state = this.#stateOf(node, now);
      if (state !== node.state) {
        const event = transition(id, node, state, now);
        if (event !== null) events.push(event);
        node.state = state;
      }
      if (node.heardAt !== null && node.report === null && state !== "lost") unreported = true;
      const changesAt = this.#changesAt(node, state);
      if (changesAt !== null && (nextChangeAt === null || changesAt < nextChangeAt)) nextChangeAt = changesAt;
      nodes.set(id, {
        nodeId: id,
        state,
        silentMs: node.heardAt === null ? null : now - node.heardAt,
        report: node.report,
        reportSeq: node.reportSeq,
      });
    }
    const settling = unreported && now - this.#startedAt < this.#settings.settleMs;
    return {
      nodes,
      settling,
      braked,
      silentZones: new Set(this.#silentZones),
      nextChangeAt: nextChangeAt as MonoMs | null,
      events,
    };
  }

  #watch(id: string, heardAt: MonoMs | null): Watched {
    const node: Watched = {
      heardAt,
      doubtedUntil: this.#startedAt,
      report: null,
      reportSeq: 0,
      state: null,
      zone: null,
    };
    this.#nodes.set(id, node);
    return node;
  }

  #sync(docs: Iterable<NodeDoc>): readonly NodeDoc[] {
    const known = [...docs];
    for (const doc of known) {
      const node = this.#nodes.get(doc.id) ?? this.#watch(doc.id, doc.bootId === null ? null : this.#startedAt);
      node.zone = (node.report?.labels ?? doc.labels)[ZONE_LABEL] ?? null;
    }
    if (this.#nodes.size > known.length) {
      const ids = new Set(known.map((doc) => doc.id));
      for (const id of this.#nodes.keys()) if (!ids.has(id)) this.#nodes.delete(id);
    }
    return known;
  }

  /** Whether the node has been silent for long enough to be unreachable; null for one that was never seen or is lost already. */
  #silent(node: Watched, now: MonoMs): boolean | null {
    if (node.heardAt === null) return null;
    const silent = node.report === null || now - node.heardAt >= this.#settings.unreachableAfterMs;
    return node.state === "lost" && silent ? null : silent;
  }

  /** Finds silences that speak against the observer (W2). */
  #judgeMass(known: readonly NodeDoc[], now: MonoMs, events: FleetEvent[]): boolean {
    let [total, silent] = [0, 0];
    const zones = new Map<string, { total: number; silent: number }>();
    for (const { id } of known) {
      const node = this.#nodes.get(id)!;
      const its = this.#silent(node, now);
      if (its === null) continue;
      total += 1;
      silent += Number(its);
      if (node.zone === null) continue;
      const zone = zones.get(node.zone) ?? { total: 0, silent: 0 };
      zone.total += 1;
      zone.silent += Number(its);
      zones.set(node.zone, zone);
    }
    const braked = total > 0 && silent * 100 >= total * MASS_SILENCE_PERCENT;
    const silentZones = new Set<string>();
    for (const [name, zone] of zones)
      if (zone.total >= ZONE_NODES_MIN && zone.silent === zone.total) silentZones.add(name);
    // In the first seconds of a term everybody is silent; that is no alert.
    if (now - this.#startedAt >= this.#settings.unreachableAfterMs)
      this.#tellMass(braked, silentZones, silent, total, events);
    for (const { id } of known) {
      const node = this.#nodes.get(id)!;
      if (braked || (node.zone !== null && silentZones.has(node.zone))) node.doubtedUntil = now;
    }
    return braked;
  }

  #tellMass(braked: boolean, zones: Set<string>, silent: number, total: number, events: FleetEvent[]): void {
    if (braked !== this.#fleetSilent) {
      const why = braked
        ? `${silent} of ${total} nodes are silent at once: the network is suspected, not the nodes, and nothing is moved`
        : `${total - silent} of ${total} nodes report again`;
      events.push(fleetEvent(braked ? "fleetSilent" : "brakeReleased", null, why));
    }
    for (const zone of zones) {
      if (this.#silentZones.has(zone)) continue;
      events.push(
        fleetEvent("zoneSilent", null, `all nodes of zone ${zone} are silent at once: nothing of it is moved`),
      );
    }
    for (const zone of this.#silentZones) {
      if (!zones.has(zone)) events.push(fleetEvent("brakeReleased", null, `nodes of zone ${zone} report again`));
    }
    this.#fleetSilent = braked;
    this.#silentZones = zones;
  }

  #stateOf(node: Watched, now: MonoMs): NodeState {
    if (node.heardAt === null) return "never_seen";
    const silence = now - node.heardAt;
    if (silence < this.#settings.unreachableAfterMs) return node.report === null ? "unreachable" : "ready";
    if (node.state === "lost") return "lost";
    return now - Math.max(node.heardAt, node.doubtedUntil) >= this.#settings.lostAfterMs ? "lost" : "unreachable";
  }

  #changesAt(node: Watched, state: NodeState): number | null {
    if (node.heardAt === null || state === "lost") return null;
    if (state === "ready") return node.heardAt + this.#settings.unreachableAfterMs;
    return Math.max(node.heardAt, node.doubtedUntil) + this.#settings.lostAfterMs;
  }
}

const fleetEvent = (kind: FleetEvent["kind"], nodeId: string | null, why: string): FleetEvent => ({
  kind,
  model: null,
  replicaId: null,
  nodeId,
  why,
});

function transition(id: string, node: Watched, state: NodeState, now: MonoMs): FleetEvent | null {
  const silentS = node.heardAt === null ? 0 : Math.round((now - node.heardAt) / 1_000);
  switch (state) {
    case "never_seen":
      return null;
    case "ready":
      // The first reports of a term tell a new leader what others knew: no news, unless nobody had ever heard of the node.
      if (node.state === "lost") return fleetEvent("nodeReady", id, "reports again after it was lost");
      return node.state === "never_seen" || node.reportSeq > 1 ? fleetEvent("nodeReady", id, "reports") : null;
    case "unreachable":
      // A new leader has heard of nobody yet: that is no news.
      return node.state === null || node.report === null
        ? null
        : fleetEvent("nodeUnreachable", id, `silent for ${silentS} s`);
    case "lost":
      return fleetEvent("nodeLost", id, `silent for ${silentS} s: what ran there is started elsewhere`);
  }
}
