import { createHmac, randomBytes } from "node:crypto";
import type { NodeReport } from "../../contract/fleet.ts";
import type { ControlSettings } from "../../contract/resolve-control.ts";
import { type FleetStatus, NodeWatch, type WatchSettings } from "../../decide/fleet/node-watch.ts";
import type { LeaderTerm } from "../../decide/leader/lease-claim.ts";
import { PASS_DEFAULTS, type PassMint, type PassSettings } from "../../decide/reconcile/snapshot.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import type { Secret } from "../../kernel/secret.ts";
import type { Leadership } from "../leader/leadership.ts";
import type { AgentLinkServer } from "../link/agent-link-server.ts";
import type { ActionOutcome } from "../view/cluster-view.ts";
import type { TermDocs } from "./term-docs.ts";
import { type FinishedPass, type LoopAction, type LoopPorts, TermLoop } from "./term-loop.ts";

export const passSettings = (settings: ControlSettings): PassSettings => ({
  ...PASS_DEFAULTS,
  parkAfter: settings.parkAfter,
  drainGraceMs: settings.drainGraceMs,
  minRunMs: settings.minRunMs,
  startStallMs: settings.startStallMs,
  stopGraceMs: settings.stopGraceMs,
});

export const watchSettings = (settings: ControlSettings): WatchSettings => ({
  unreachableAfterMs: settings.unreachableAfterMs,
  lostAfterMs: settings.lostAfterMs,
  settleMs: settings.settleMs,
});

/** Ids are random; keys follow from the cluster's secret, so that an engine whose document was lost can still be adopted. */
export const passMint = (clusterSecret: Secret): PassMint => ({
  replicaId: () => `r-${randomBytes(6).toString("hex")}`,
  engineKey: (replicaId, generation) =>
    createHmac("sha256", clusterSecret.reveal()).update(`${replicaId}:${generation}`).digest("base64url"),
});

export interface ReconcilePorts extends Omit<LoopPorts, "leadership" | "links"> {
  readonly leadership: Leadership;
  readonly links: AgentLinkServer;
  /** A term has begun, or this control plane no longer leads. */
  readonly onLead: (term: LeaderTerm | null) => void;
}

interface Heard {
  readonly report: NodeReport;
  readonly at: MonoMs;
}

/** Runs a `TermLoop` while this control plane leads, and remembers what agents say whether it leads or not. */
export class ReconcileLoop {
  readonly #ports: ReconcilePorts;
  readonly #heard = new Map<string, Heard>();
  readonly #startedAt: MonoMs;
  #running: TermLoop | null = null;
  #ended: Promise<unknown> = Promise.resolve();

  constructor(ports: ReconcilePorts) {
    this.#ports = ports;
    this.#startedAt = ports.clock.mono();
    ports.leadership.onChange(() => this.#follow());
    this.#follow();
  }

  /** The last pass of the running term, with what was committed since; null on a standby, and before the first. */
  get seen(): FinishedPass | null {
    const last = this.#running?.last ?? null;
    const restored = this.#running?.restored ?? null;
    return last === null || restored === null ? last : { ...last, snapshot: { ...last.snapshot, restored } };
  }

  get leads(): boolean {
    return this.#running !== null;
  }

  heard(report: NodeReport, at: MonoMs): void {
    const { store, leadership } = this.#ports;
    this.#heard.set(report.nodeId, { report, at });
    const { highestEpoch } = report;
    if (highestEpoch !== null && highestEpoch.clusterId === store.clusterId) leadership.reported(highestEpoch);
    this.#running?.heard(report, at);
  }

  wake(): void {
    this.#running?.wake();
  }

  /** See `TermLoop.act`; "notLeader" on a standby. */
  async act(decide: (docs: TermDocs) => LoopAction | undefined): Promise<ActionOutcome> {
    return this.#running?.act(decide) ?? { kind: "notLeader" };
  }

  /** The fleet as somebody sees it who hears every agent and does not lead: by silence, for the leader that the store names. */
  observe(docs: Parameters<NodeWatch["judge"]>[0]): FleetStatus {
    const { store, leadership, watch, clock } = this.#ports;
    const { leader } = leadership.view();
    const lead = { clusterId: store.clusterId, epoch: leader?.epoch ?? 0, holder: leader?.holder ?? "" };
    const watching = new NodeWatch(watch, lead, this.#startedAt);
    for (const { report, at } of this.#heard.values()) watching.heard(report, at);
    return watching.judge(docs, clock.mono());
  }

  forget(nodeId: string): void {
    this.#heard.delete(nodeId);
  }

  /** Resolves when the last term's work has ended. */
  async settled(): Promise<void> {
    await this.#ended;
  }

  #follow(): void {
    const { leadership, links, store, onLead } = this.#ports;
    const { term } = leadership;
    if (term === (this.#running?.term ?? null)) return;
    if (term === null) {
      this.#running = null;
      links.lead(null);
      onLead(null);
      return;
    }
    links.lead({ clusterId: store.clusterId, epoch: term.epoch, holder: term.holder });
    onLead(term);
    const running = new TermLoop(term, this.#ports);
    this.#running = running;
    const { promise, resolve } = Promise.withResolvers<void>();
    // What a pass throws that is no fault of the store is a broken invariant: it ends the process.
    void running.run().then(resolve);
    this.#ended = Promise.all([this.#ended, promise]);
  }
}
