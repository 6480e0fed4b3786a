import type { CommandEnvelope } from "../../contract/agent-link.ts";
import type { Catalog } from "../../contract/catalog.ts";
import { NodeWatch, WATCH_DEFAULTS } from "../../decide/fleet/node-watch.ts";
import { planPass } from "../../decide/reconcile/plan-pass.ts";
import {
  NO_MEMORY,
  NO_USE,
  type PassMemory,
  type PassMint,
  type PassPlan,
  type PassSettings,
  type PassSnapshot,
} from "../../decide/reconcile/snapshot.ts";
import type { MonoMs } from "../../kernel/clock.ts";
import { CLUSTER } from "./sim-agent.ts";
import type { SimClock } from "./sim-clock.ts";
import type { SimLink, ToControl } from "./sim-link.ts";
import type { Lease, SimStore } from "./sim-store.ts";

const PASS_MS = 2_000;
const RENEW_MS = 2_000;
/** How long a leader acts without a confirmation. */
const BLIND_MS = 8_000;
const COMMAND_VALID_MS = 15_000;

interface Term {
  readonly lease: Lease;
  readonly watch: NodeWatch;
  confirmedAt: MonoMs;
  memory: PassMemory;
}

export interface SimWorld {
  readonly clock: SimClock;
  readonly store: SimStore;
  readonly mint: PassMint;
  readonly settings: PassSettings;
  catalog: () => Catalog;
  /** Whether the store is a copy that was put back, until an operator confirms. */
  restored: () => boolean;
  readonly demanded: ReadonlySet<string>;
  readonly onPlan: (plan: PassPlan) => void;
}

/**
 * One control plane process: a lease, a watch over the nodes and a pass every 2 s. It does not look at its lease again between a
 * commit and the commands that follow: safety must not rest on that look. Frozen, it does nothing; thawed, it first does all it
 * was about to do.
 */
export class SimControl {
  readonly name: string;
  readonly links: ReadonlyMap<string, SimLink>;
  isRunning = true;
  terms = 0;
  #process = 1;
  #frozen: (() => void)[] | null = null;
  #term: Term | null = null;
  #floor = 0;
  #committing = false;
  #sequence = 0;
  readonly #world: SimWorld;

  constructor(name: string, links: ReadonlyMap<string, SimLink>, world: SimWorld) {
    this.name = name;
    this.links = links;
    this.#world = world;
    for (const link of links.values()) link.onReport = (message) => this.#act(() => this.#onReport(link, message));
    this.#every(RENEW_MS, () => this.#renew());
    this.#every(PASS_MS, () => this.#pass());
  }

  get isLeading(): boolean {
    return this.isRunning && this.#term !== null;
  }

  get holder(): string {
    return `${this.name}-${this.#process}`;
  }

  kill(): void {
    this.isRunning = false;
    this.#frozen = null;
    this.#term = null;
    this.#committing = false;
    for (const link of this.links.values()) link.close();
  }

  restart(): void {
    if (this.isRunning) return;
    this.isRunning = true;
    this.#process += 1;
    this.#floor = 0;
  }

  freeze(): void {
    if (this.isRunning) this.#frozen ??= [];
  }

  thaw(): void {
    const waiting = this.#frozen ?? [];
    this.#frozen = null;
    for (const run of waiting) run();
  }

  snapshot(watch: NodeWatch): PassSnapshot {
    const { store, clock, settings, demanded, catalog, restored } = this.#world;
    return {
      catalog: catalog(),
      docs: store.docs,
      fleet: watch.judge(store.docs.nodes.values(), clock.mono()),
      demanded,
      idle: new Set(),
      use: NO_USE,
      restored: restored(),
      settings,
    };
  }

  /** What the leader would do now: with its own memory, or as a new leader that has heard the same reports. */
  plan(memory: "own" | "new"): PassPlan | null {
    const { clock, mint } = this.#world;
    if (this.#term === null) return null;
    const snapshot = this.snapshot(this.#term.watch);
    return planPass(
      snapshot,
      memory === "own" ? this.#term.memory : NO_MEMORY,
      { mono: clock.mono(), wall: clock.wall() },
      mint,
    );
  }

  /** Everything the process does goes through here, so that it can be frozen and killed. */
  #act(run: () => void): void {
    if (!this.isRunning) return;
    if (this.#frozen === null) run();
    else this.#frozen.push(run);
  }

  #every(ms: number, run: () => void): void {
    this.#world.clock.after(ms, () => {
      this.#act(run);
      this.#every(ms, run);
    });
  }

  /** A statement of the store and its answer; null: no answer came. */
  #ask<Answer>(statement: () => Answer, then: (answer: Answer | null) => void): void {
    const { clock, store } = this.#world;
    const process = this.#process;
    const back = (answer: Answer | null): void =>
      clock.after(store.latencyMs, () => {
        if (process === this.#process) this.#act(() => then(answer));
      });
    clock.after(store.latencyMs, () => {
      const answer = store.down ? null : statement();
      back(store.silent ? null : answer);
    });
  }

  #onReport(link: SimLink, { report }: ToControl): void {
    link.tell({ type: "pong" });
    const { highestEpoch } = report;
    if (highestEpoch !== null && highestEpoch.holder !== this.holder && highestEpoch.epoch > this.#floor)
      this.#floor = highestEpoch.epoch;
    if (this.#term === null) return;
    if (this.#floor >= this.#term.lease.epoch) {
      this.#term = null;
      return;
    }
    this.#term.watch.heard(report, this.#world.clock.mono());
    const { epoch, holder } = this.#term.lease;
    // Said with every report: a link may be a new one.
    link.tell({ type: "lead", epoch, holder });
  }

  #renew(): void {
    const { clock, store } = this.#world;
    const askedAt = clock.mono();
    const { holder } = this;
    if (this.#term !== null && askedAt - this.#term.confirmedAt > BLIND_MS) this.#term = null;
    this.#ask(
      () => store.takeLease(holder, this.#floor),
      (lease) => {
        // Neither an unreachable store nor a late answer says anything.
        if (store.down || store.silent || clock.mono() - askedAt > BLIND_MS) return;
        if (lease === null) this.#term = null;
        else if (this.#term?.lease.epoch === lease.epoch) this.#term.confirmedAt = askedAt;
        else {
          this.terms += 1;
          this.#term = {
            lease,
            watch: new NodeWatch(WATCH_DEFAULTS, { clusterId: CLUSTER, ...lease }, clock.mono()),
            confirmedAt: askedAt,
            memory: NO_MEMORY,
          };
        }
      },
    );
  }

  #pass(): void {
    const term = this.#term;
    if (term === null || this.#committing || this.#world.store.down) return;
    const plan = this.plan("own");
    if (plan === null) return;
    this.#world.onPlan(plan);
    this.#committing = true;
    this.#ask(
      () => this.#world.store.write(term.lease, plan.writes),
      (answer) => {
        this.#committing = false;
        if (answer === "notLeader" && this.#term === term) this.#term = null;
        if (answer !== "ok") return;
        term.memory = plan.memory;
        for (const { nodeId, verb } of plan.commands) this.#send(nodeId, { ...this.#envelope(term.lease), verb });
      },
    );
  }

  #envelope({ epoch, holder }: Lease): Omit<CommandEnvelope, "verb"> {
    const seq = ++this.#sequence;
    return {
      clusterId: CLUSTER,
      epoch,
      holder,
      seq,
      commit: 0,
      commitProof: "",
      commandId: `${holder}-${seq}`,
      validForMs: COMMAND_VALID_MS,
    };
  }

  #send(nodeId: string, command: CommandEnvelope): void {
    this.links.get(nodeId)?.tell({ type: "command", command });
  }
}
