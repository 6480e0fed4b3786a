import type { DocWrite } from "../../contract/fleet.ts";
import type { StoredDocs } from "../../decide/reconcile/snapshot.ts";
import type { SimClock } from "./sim-clock.ts";

export interface Lease {
  readonly holder: string;
  readonly epoch: number;
  readonly endsAt: number;
}

interface Contents extends StoredDocs {
  readonly lease: Lease | null;
}

/**
 * The control store: documents and a lease row, each statement atomic, the lease checked in the transaction of the write. It
 * can be out of reach, slow, lose its last commit as a failover does, and be put back to an old copy.
 */
export class SimStore {
  down = false;
  /** Statements are carried out and their answers are lost. */
  silent = false;
  latencyMs = 5;
  #now: Contents = { nodes: new Map(), replicas: new Map(), models: new Map(), memories: new Map(), lease: null };
  #before: Contents = this.#now;
  readonly #clock: SimClock;
  readonly #leaseMs: number;

  constructor(clock: SimClock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
  }

  get docs(): StoredDocs {
    return this.#now;
  }

  get lease(): Lease | null {
    return this.#now.lease;
  }

  /** Takes or renews in one statement. A new term's epoch is above `floor`. */
  takeLease(holder: string, floor: number): Lease | null {
    const now = this.#clock.mono();
    const { lease } = this.#now;
    const own = lease !== null && lease.holder === holder && lease.endsAt > now && lease.epoch > floor;
    if (lease !== null && lease.holder !== holder && lease.endsAt > now) return null;
    const epoch = own ? lease.epoch : Math.max(lease?.epoch ?? 0, floor) + 1;
    const next = { holder, epoch, endsAt: now + this.#leaseMs };
    // A renewal is no commit worth losing: only what came before it can be lost with it.
    if (own) this.#now = { ...this.#now, lease: next };
    else this.#commit({ ...this.#now, lease: next });
    return next;
  }

  write(lease: { readonly holder: string; readonly epoch: number }, writes: readonly DocWrite[]): "ok" | "notLeader" {
    const current = this.#now.lease;
    if (current === null || current.epoch !== lease.epoch || current.holder !== lease.holder) return "notLeader";
    if (writes.length > 0) this.put(writes);
    return "ok";
  }

  /** What an operator or an enrolment writes. */
  put(writes: readonly DocWrite[]): void {
    const { lease } = this.#now;
    const nodes = new Map(this.#now.nodes);
    const replicas = new Map(this.#now.replicas);
    const models = new Map(this.#now.models);
    const memories = new Map(this.#now.memories);
    const docs = { node: nodes, replica: replicas, model: models, memory: memories };
    for (const { kind, id, doc } of writes) {
      if (doc === null) docs[kind].delete(id);
      else (docs[kind] as Map<string, object>).set(id, doc);
    }
    this.#commit({ nodes, replicas, models, memories, lease });
  }

  /** The failover that loses the last commit, lease changes included. */
  loseLastCommit(): void {
    this.#now = this.#before;
  }

  backup(): () => void {
    const copy = this.#now;
    return () => {
      this.#now = copy;
      this.#before = copy;
    };
  }

  #commit(next: Contents): void {
    this.#before = this.#now;
    this.#now = next;
  }
}
