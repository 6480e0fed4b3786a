import type { Verb } from "../../contract/agent-link.ts";
import type { DocWrite, FleetEvent, MemoryDoc, ModelDoc, NodeDoc, ReplicaDoc } from "../../contract/fleet.ts";
import { asMono, formatIsoTime, type MonoMs } from "../../kernel/clock.ts";
import { newModelDoc } from "./model-failures.ts";
import type { PassMemory, PassMint, PassSnapshot, PassTime, Sighting } from "./snapshot.ts";

/** Key of a replica whose start was sent and not acknowledged. */
export const PLACING = "placing ";
const WENT_BACK = "went back";

/**
 * A pass in the making: the snapshot with this pass's changes laid over it.
 *
 * Invariants:
 *   D1. Later steps see what earlier ones changed; the snapshot itself stays as it was.
 *   D2. A document is written only if it ends the pass other than it began.
 *   D3. What the pass wants to know again in the next one it names by a key, in every pass; all else is forgotten.
 */
export class PassDraft {
  readonly snapshot: PassSnapshot;
  readonly now: PassTime;
  readonly mint: PassMint;
  readonly commands: { nodeId: string; verb: Verb }[] = [];
  readonly events: FleetEvent[] = [];
  readonly memory = new Map<string, Sighting>();
  readonly #before: PassMemory;
  readonly #changed = {
    node: new Map<string, NodeDoc | null>(),
    replica: new Map<string, ReplicaDoc | null>(),
    model: new Map<string, ModelDoc | null>(),
    memory: new Map<string, MemoryDoc | null>(),
  };
  /** The store went back behind what was committed, and what came of it may not be seen yet. */
  readonly isHeld: boolean;
  #wakeAt: number = Number.POSITIVE_INFINITY;

  constructor(snapshot: PassSnapshot, before: PassMemory, now: PassTime, mint: PassMint) {
    this.snapshot = snapshot;
    this.#before = before;
    this.now = now;
    this.mint = mint;
    this.isHeld = this.#hold();
  }

  get wakeAt(): MonoMs | null {
    return Number.isFinite(this.#wakeAt) ? asMono(this.#wakeAt) : null;
  }

  /** Whether anything may be stopped in this pass at all. */
  get mayStop(): boolean {
    const { fleet, restored } = this.snapshot;
    return !fleet.settling && !fleet.braked && !restored && !this.isHeld;
  }

  get today(): string {
    return formatIsoTime(this.now.wall);
  }

  replica(id: string): ReplicaDoc | undefined {
    return this.#read("replica", this.snapshot.docs.replicas, id);
  }

  model(name: string): ModelDoc {
    return (
      this.#read("model", this.snapshot.docs.models, name) ?? newModelDoc(name, this.snapshot.catalog.models.get(name))
    );
  }

  memoryOf(id: string): MemoryDoc | undefined {
    return this.#read("memory", this.snapshot.docs.memories, id);
  }

  /** All replicas as they are now. */
  *replicas(): Iterable<ReplicaDoc> {
    const { replica: changed } = this.#changed;
    for (const doc of this.snapshot.docs.replicas.values()) {
      const its = changed.size === 0 ? undefined : changed.get(doc.id);
      if (its === undefined) yield doc;
      else if (its !== null) yield its;
    }
    for (const [id, doc] of changed) if (doc !== null && !this.snapshot.docs.replicas.has(id)) yield doc;
  }

  /** All models of which something is known, as they are now. */
  *models(): Iterable<ModelDoc> {
    const { model: changed } = this.#changed;
    for (const doc of this.snapshot.docs.models.values()) {
      const its = changed.get(doc.name);
      if (its !== null) yield its ?? doc;
    }
    for (const [name, doc] of changed) if (doc !== null && !this.snapshot.docs.models.has(name)) yield doc;
  }

  writeNode(doc: NodeDoc): void {
    this.#changed.node.set(doc.id, doc);
  }
  writeReplica(doc: ReplicaDoc): void {
    this.#changed.replica.set(doc.id, doc);
  }
  deleteReplica(id: string): void {
    this.#changed.replica.set(id, null);
  }
  writeModel(doc: ModelDoc): void {
    this.#changed.model.set(doc.name, doc);
  }
  deleteModel(name: string): void {
    this.#changed.model.set(name, null);
  }
  writeMemory(id: string, doc: MemoryDoc): void {
    this.#changed.memory.set(id, doc);
  }
  deleteMemory(id: string): void {
    this.#changed.memory.set(id, null);
  }

  /** As people call it; the id of one that is gone. */
  nodeName(nodeId: string): string {
    return this.snapshot.docs.nodes.get(nodeId)?.name ?? nodeId;
  }

  event(
    kind: FleetEvent["kind"],
    about: Partial<Pick<FleetEvent, "model" | "replicaId" | "nodeId">>,
    why: string,
  ): void {
    this.events.push({ kind, model: null, replicaId: null, nodeId: null, ...about, why });
  }

  /** When what the key names was first seen; now, if this is the first time. */
  since(key: string, seq = 0): Sighting {
    const sighting = this.#before.get(key) ?? { at: this.now.mono, seq };
    this.memory.set(key, sighting);
    return sighting;
  }

  /** For what is told once as long as it lasts. */
  isNews(key: string): boolean {
    this.since(key);
    return !this.#before.has(key);
  }

  /** Whether it was seen for long enough: in an earlier pass, and in another report if it is a report that shows it. */
  confirmed(key: string, seq = 0): boolean {
    const first = this.since(key, seq);
    const dueAt = first.at + this.snapshot.settings.confirmMs;
    if (this.now.mono < dueAt) this.wake(dueAt);
    return this.now.mono >= dueAt && (seq === 0 || seq !== first.seq);
  }

  /** Sends the command unless it was sent a moment ago. */
  send(nodeId: string, verb: Exclude<Verb, { kind: "logs" | "collect" }>, shard = 0): void {
    const key = `send ${verb.kind} ${verb.replicaId} ${verb.generation} ${shard} ${nodeId}`;
    const sent = this.#before.get(key);
    const { resendMs } = this.snapshot.settings;
    if (sent !== undefined && this.now.mono - sent.at < resendMs) {
      this.memory.set(key, sent);
      this.wake(sent.at + resendMs);
      return;
    }
    this.memory.set(key, { at: this.now.mono, seq: 0 });
    this.wake(this.now.mono + resendMs);
    this.commands.push({ nodeId, verb });
  }

  /**
   * A replica that was placed in this term and is no longer in the store was lost with the store's last commits, as a failover
   * does it. Its start is on its way all the same, so nothing is placed or stopped until reports must show it.
   */
  #hold(): boolean {
    const { docs, settings } = this.snapshot;
    let lost = this.#before.has(WENT_BACK);
    for (const key of this.#before.keys())
      if (key.startsWith(PLACING) && !docs.replicas.has(key.slice(PLACING.length))) lost = true;
    if (!lost) return false;
    const { at } = this.#before.get(WENT_BACK) ?? { at: this.now.mono };
    const endsAt = at + settings.commandLifeMs;
    if (this.now.mono >= endsAt) return false;
    if (this.isNews(WENT_BACK))
      this.event("storeWentBack", {}, "the store has lost commits; what runs is looked at first");
    this.wake(endsAt);
    return true;
  }

  wake(at: number): void {
    this.#wakeAt = Math.min(this.#wakeAt, at);
  }

  writes(): readonly DocWrite[] {
    const { docs } = this.snapshot;
    const writes: DocWrite[] = [];
    for (const [id, doc] of this.#changed.node)
      if (differs(docs.nodes.get(id), doc)) writes.push({ kind: "node", id, doc });
    for (const [id, doc] of this.#changed.replica)
      if (differs(docs.replicas.get(id), doc)) writes.push({ kind: "replica", id, doc });
    for (const [id, doc] of this.#changed.model)
      if (differs(docs.models.get(id), doc)) writes.push({ kind: "model", id, doc });
    for (const [id, doc] of this.#changed.memory)
      if (differs(docs.memories.get(id), doc)) writes.push({ kind: "memory", id, doc });
    return writes;
  }

  #read<Doc>(kind: "replica" | "model" | "memory", stored: ReadonlyMap<string, Doc>, id: string): Doc | undefined {
    const changed = this.#changed[kind].get(id) as Doc | null | undefined;
    return changed === undefined ? stored.get(id) : (changed ?? undefined);
  }
}

/** What an event of a replica is about: it, and its head's node unless another one is named. */
export const aboutReplica = (
  { id, model, shards }: ReplicaDoc,
  nodeId: string | null = shards[0]?.nodeId ?? null,
): Pick<FleetEvent, "model" | "replicaId" | "nodeId"> => ({ model, replicaId: id, nodeId });

/** Documents are JSON; the order of their members is that of their making, so an equal text is an equal document. */
function differs(stored: object | undefined, doc: object | null): boolean {
  if (stored === undefined || doc === null) return stored !== undefined || doc !== null;
  return stored !== doc && JSON.stringify(stored) !== JSON.stringify(doc);
}
