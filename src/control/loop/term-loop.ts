import { controlEvent, type NewEvent } from "../../contract/control-event.ts";
import type { FleetEvent, NodeDoc, NodeReport, StoreWrite } from "../../contract/fleet.ts";
import { foldEvents, type FoldState } from "../../decide/fleet/fold-events.ts";
import { NodeWatch, type WatchSettings } from "../../decide/fleet/node-watch.ts";
import { reportNews } from "../../decide/fleet/report-news.ts";
import { planPass } from "../../decide/reconcile/plan-pass.ts";
import {
  NO_MEMORY,
  type PassMemory,
  type PassMint,
  type PassPlan,
  type PassSettings,
  type PassSnapshot,
  type ReplicaUse,
} from "../../decide/reconcile/snapshot.ts";
import { type Clock, type EpochMs, isoTime, type MonoMs } from "../../kernel/clock.ts";
import { hasErrorCode, messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import type { CatalogKeeper } from "../catalog/catalog-keeper.ts";
import type { Leadership, Term } from "../leader/leadership.ts";
import type { AgentLinkServer } from "../link/agent-link-server.ts";
import type { ControlStore } from "../store/control-store.ts";
import { StoreFault } from "../store/sql-driver.ts";
import type { ActionOutcome } from "../view/cluster-view.ts";
import { clusterWrite, TermDocs } from "./term-docs.ts";

/**
 * What one leader does for one term: passes, one after another, on a tick and when something has changed.
 *
 * Invariants:
 *   T1. One commit at a time: passes and what operators ask for go through one line.
 *   T2. A plan's commands are sent, and its memory is kept, only after its commit was told "ok". After any other answer the same is
 *       planned again; what the watch tells only once is kept for that.
 *   T3. An answer that leaves open what was stored costs a new reading before anything else is decided.
 *   T4. Right before each effect the claim is looked at again. Safety does not rest on it: the store and the agents check the term.
 *   T5. Whether the store is an old copy is written down before the next pass acts on the report that shows it, and stays until an
 *       operator has looked.
 *   T6. A command's `commit` is in the store before the command is sent.
 */
export interface LoopPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: Pick<ControlStore, "clusterId" | "load" | "commit" | "enrolledNodes">;
  readonly leadership: Pick<Leadership, "mayAct" | "fenced">;
  readonly keeper: Pick<CatalogKeeper, "snapshot">;
  readonly links: Pick<AgentLinkServer, "send" | "nodes" | "disconnect">;
  /** Models that gateways have requests waiting for. */
  readonly demanded: (now: MonoMs) => ReadonlySet<string>;
  /** Draining replicas on which every gateway is known to have no request left. */
  readonly idle: (now: MonoMs) => ReadonlySet<string>;
  /** What all gateways together know of the use of replicas. */
  readonly use: (now: MonoMs) => ReadonlyMap<string, ReplicaUse>;
  readonly mint: PassMint;
  readonly settings: PassSettings;
  readonly watch: WatchSettings;
  readonly onPass: (pass: FinishedPass) => void;
}

/** What is to be stored for what an operator asked for, or why nothing is. */
export type LoopAction =
  | { readonly writes: readonly StoreWrite[]; readonly events: readonly NewEvent[] }
  | { readonly refused: string };

/** What a pass saw and did. */
export interface FinishedPass {
  readonly snapshot: PassSnapshot;
  readonly plan: PassPlan;
  /** Documents or catalog are others than in the pass before. */
  readonly changed: boolean;
  readonly beganAt: EpochMs;
  /** Of the processor, without waiting for the store. */
  readonly tookMs: number;
}

const TICK_MS = 1_000;
/** What happens within a moment is looked at together. */
const GATHER_MS = 20;
const STORE_RETRY_MS = 1_000;
const CARRIED_MAX = 1_000;

export class TermLoop {
  readonly term: Term;
  readonly #ports: LoopPorts;
  readonly #watch: NodeWatch;
  readonly #news = new Map<string, string>();
  #docs: TermDocs | null = null;
  #memory: PassMemory = NO_MEMORY;
  #carried: readonly FleetEvent[] = [];
  #folded: FoldState = new Map();
  #catalogRevision = -1;
  /** The highest that agents told of. */
  #heardCommit = 0;
  #wakeAt: MonoMs | null = null;
  #tookMs = 0;
  #woken = false;
  #wakeUp: (() => void) | null = null;
  #line: Promise<unknown> = Promise.resolve();
  #toldStore = false;
  /** The last pass that was committed, or had nothing to commit. */
  last: FinishedPass | null = null;

  constructor(term: Term, ports: LoopPorts) {
    const { clock, store, watch } = ports;
    this.term = term;
    this.#ports = ports;
    const lead = { clusterId: store.clusterId, epoch: term.epoch, holder: term.holder };
    this.#watch = new NodeWatch(watch, lead, clock.mono());
  }

  /** The store is an old copy; null while that is not known. */
  get restored(): boolean | null {
    return this.#docs === null ? null : this.#docs.cluster.restoredAbove !== null;
  }

  /** Until the term ends. */
  async run(): Promise<void> {
    const { signal } = this.term;
    while (!signal.aborted) {
      await this.#inLine(() => this.#turn());
      await this.#wait();
    }
  }

  heard(report: NodeReport, at: MonoMs): void {
    this.#watch.heard(report, at);
    if (report.highestEpoch?.clusterId === this.#ports.store.clusterId)
      this.#heardCommit = Math.max(this.#heardCommit, report.highestCommit);
    const news = reportNews(report);
    if (this.#news.get(report.nodeId) === news) return;
    this.#news.set(report.nodeId, news);
    this.wake();
  }

  wake(): void {
    this.#woken = true;
    this.#wakeUp?.();
  }

  /** What an operator asks for, committed between two passes. `decide` tells undefined for a target that is not there. */
  act(decide: (docs: TermDocs) => LoopAction | undefined): Promise<ActionOutcome> {
    return this.#inLine(async () => {
      if (this.#docs === null) return { kind: "storeUnavailable" };
      const wanted = decide(this.#docs);
      if (wanted === undefined) return { kind: "unknownTarget" };
      if ("refused" in wanted) return { kind: "refused", why: wanted.refused };
      const outcome = await this.#commit(this.#docs, wanted.writes, wanted.events);
      this.wake();
      if (outcome === "ok") return { kind: "done" };
      return outcome === "unknown" ? { kind: "storeUnavailable" } : { kind: "notLeader" };
    });
  }

  #inLine<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#line.then(work);
    this.#line = turn.catch(() => {}); // Told to whoever waits for the turn.
    return turn;
  }

  async #turn(): Promise<void> {
    try {
      this.#docs ??= await this.#read();
      if (this.#docs !== null && (await this.#join(this.#docs)) && (await this.#judgeStore(this.#docs)))
        await this.#pass(this.#docs);
      this.#toldStore = false;
    } catch (error) {
      // A document that is not what was written keeps the leader from acting; it keeps nobody from looking.
      if (!(error instanceof StoreFault) && !hasErrorCode(error, "STORE_REFUSED")) throw error;
      if (!this.#toldStore) this.#ports.log.warn("loop.storeUnavailable", { why: messageOf(error) });
      this.#toldStore = true;
      this.#docs = null;
    }
  }

  /** Null while it could not be written down that the store is an old copy (T5). */
  async #read(): Promise<TermDocs | null> {
    const docs = new TermDocs(await this.#ports.store.load());
    const { restoredAbove } = docs.cluster;
    if (restoredAbove !== null) this.#ports.log.warn("loop.storeRestored", { epoch_of_copy: restoredAbove });
    const { raisedAbove } = this.term;
    if (raisedAbove === null || docs.cluster.restoredAbove !== null) return docs;
    const doc = { ...docs.cluster, restoredAbove: raisedAbove };
    return (await this.#commit(docs, [clusterWrite(doc)], [])) === "ok" ? docs : null;
  }

  /** Takes note that agents have obeyed what this store never held (T5). False: not now. */
  async #judgeStore(docs: TermDocs): Promise<boolean> {
    const { commit, restoredAbove } = docs.cluster;
    const heard = this.#heardCommit;
    if (heard <= commit) return true;
    const doc = { restoredAbove: restoredAbove ?? this.term.epoch, commit: heard };
    const why = `agents had obeyed commands of commit ${heard}, and the store's last one is ${commit}: it may be a restored backup, or have lost its last writes`;
    const events = restoredAbove === null ? [controlEvent("storeBehind", why)] : [];
    if ((await this.#commit(docs, [clusterWrite(doc)], events)) !== "ok") return false;
    if (restoredAbove === null) this.#ports.log.warn("loop.storeBehind", { commit, heard });
    return true;
  }

  /** Nodes that are connected and have no document yet get one, if they still may be here. False: not now. */
  async #join(docs: TermDocs): Promise<boolean> {
    const { links, store, clock } = this.#ports;
    const fresh = [...links.nodes].filter(([id]) => !docs.nodes.has(id));
    if (fresh.length === 0) return true;
    const enrolled = await store.enrolledNodes();
    const writes: StoreWrite[] = [];
    for (const [id, name] of fresh) {
      const doc: NodeDoc = {
        id,
        name,
        cordoned: false,
        bootId: null,
        labels: {},
        lastReport: null,
        enrolledAt: isoTime(clock.wall()),
      };
      if (enrolled.has(id)) writes.push({ kind: "node", id, doc });
      else links.disconnect(id, "the node was shut out");
    }
    return writes.length === 0 || (await this.#commit(docs, writes, [])) === "ok";
  }

  async #pass(docs: TermDocs): Promise<void> {
    const { clock, leadership, links, keeper, demanded, idle, use, mint, settings, onPass } = this.#ports;
    const now = { mono: clock.mono(), wall: clock.wall() };
    const { catalog } = keeper.snapshot;
    const judged = this.#watch.judge(docs.nodes.values(), now.mono);
    const fleet = { ...judged, events: [...this.#carried, ...judged.events].slice(-CARRIED_MAX) };
    const snapshot: PassSnapshot = {
      catalog,
      docs,
      fleet,
      demanded: demanded(now.mono),
      idle: idle(now.mono),
      use: use(now.mono),
      restored: docs.cluster.restoredAbove !== null,
      settings,
    };
    const plan = planPass(snapshot, this.#memory, now, mint);
    this.#tookMs = clock.mono() - now.mono;
    this.#carried = fleet.events;
    // Commands that are only repeated are fenced as well.
    const commit = docs.cluster.commit + 1;
    const mark = plan.commands.length === 0 ? [] : [clusterWrite({ ...docs.cluster, commit })];
    const writes = [...plan.writes, ...mark];
    const { events, state } = foldEvents(this.#folded, plan.events, now.mono);
    if (writes.length + events.length > 0 && (await this.#commit(docs, writes, events)) !== "ok") return;
    this.#folded = state;
    this.#carried = [];
    this.#memory = plan.memory;
    this.#wakeAt = plan.wakeAt;
    for (const { nodeId, verb } of plan.commands) if (leadership.mayAct()) links.send(nodeId, verb, commit);
    const changed = plan.writes.length > 0 || catalog.revision !== this.#catalogRevision;
    this.#catalogRevision = catalog.revision;
    this.last = { snapshot, plan, changed, beganAt: now.wall, tookMs: this.#tookMs };
    if (!this.term.signal.aborted) onPass(this.last);
  }

  /** Adopts what was stored (T2, T3). */
  async #commit(
    docs: TermDocs,
    writes: readonly StoreWrite[],
    events: readonly NewEvent[],
  ): Promise<"ok" | "notLeader" | "unknown"> {
    const { leadership, store } = this.#ports;
    if (!leadership.mayAct() || this.term.signal.aborted) return "notLeader";
    const outcome = await store.commit(this.term, writes, events);
    if (outcome === "ok") docs.apply(writes);
    else this.#docs = null;
    if (outcome === "notLeader") leadership.fenced(this.term.epoch);
    return outcome;
  }

  /** For the next tick, the time that the plan named, or news. At most half of the time goes into passes. */
  async #wait(): Promise<void> {
    const { clock } = this.#ports;
    const { signal } = this.term;
    if (this.#docs === null) {
      await clock.sleep(STORE_RETRY_MS, signal).catch(() => {});
      return;
    }
    if (!this.#woken) {
      const woken = new AbortController();
      this.#wakeUp = () => woken.abort();
      const dueMs = Math.min(TICK_MS, (this.#wakeAt ?? Infinity) - clock.mono());
      await clock.sleep(Math.max(0, dueMs), AbortSignal.any([signal, woken.signal])).catch(() => {});
      this.#wakeUp = null;
    }
    await clock.sleep(Math.max(GATHER_MS, this.#tookMs), signal).catch(() => {});
    this.#woken = false;
  }
}
