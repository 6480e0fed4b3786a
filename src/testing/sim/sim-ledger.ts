/** What truly happened on the nodes, kept apart from everything that decides. Throws on what must never happen. */
export interface EngineProcess {
  readonly nodeId: string;
  readonly replicaId: string;
  readonly generation: number;
  readonly shard: number;
  readonly model: string;
  readonly gpuUuids: readonly string[];
  /** On each card. */
  readonly usesMib: number;
}

/** A replica that is to have the room of others, as the store says it now. */
export interface Heir {
  readonly replicaId: string;
  readonly gpuUuids: readonly string[];
  readonly usesMib: number;
  readonly waitsFor: readonly string[];
}

/** Room that a model keeps on one card, as the store says it now. */
export interface Kept {
  readonly model: string;
  readonly uuid: string;
  readonly usesMib: number;
  /** Replicas that it is about: what these use is not held beside it. */
  readonly of: readonly string[];
}

export class SimLedger {
  readonly running = new Set<EngineProcess>();
  readonly starts: EngineProcess[] = [];
  /** Engines that were stopped by command while they served. */
  stopsOfReady = 0;
  commands = 0;
  refused = 0;
  readonly #holders = new Map<string, string>();
  readonly #epochOf = new Map<string, number>();
  readonly #cardMib: ReadonlyMap<string, number>;

  readonly #held: () => { readonly heirs: readonly Heir[]; readonly kept: readonly Kept[] };

  constructor(
    cardMib: ReadonlyMap<string, number>,
    held: () => { readonly heirs: readonly Heir[]; readonly kept: readonly Kept[] },
  ) {
    this.#cardMib = cardMib;
    this.#held = held;
  }

  /** From here on the node owes obedience to no older epoch. */
  followed(nodeId: string, epoch: number): void {
    this.#epochOf.set(nodeId, Math.max(epoch, this.#epochOf.get(nodeId) ?? 0));
  }

  executed(nodeId: string, epoch: number, holder: string): void {
    this.commands += 1;
    const known = this.#holders.get(`${nodeId} ${epoch}`) ?? holder;
    if (known !== holder)
      throw new Error(`${nodeId} executed commands of ${known} and of ${holder} under epoch ${epoch}`);
    this.#holders.set(`${nodeId} ${epoch}`, holder);
    if (epoch < (this.#epochOf.get(nodeId) ?? 0))
      throw new Error(`${nodeId} executed a command of the old epoch ${epoch}`);
    this.#epochOf.set(nodeId, epoch);
  }

  started(engine: EngineProcess, sickForMs: number): void {
    if (sickForMs > 60_000)
      throw new Error(`${engine.replicaId} was started on a card that has been sick for ${sickForMs} ms`);
    for (const other of this.running)
      if (other.replicaId === engine.replicaId && other.shard === engine.shard)
        throw new Error(`two engines of ${engine.replicaId}, on ${other.nodeId} and ${engine.nodeId}`);
    this.running.add(engine);
    this.starts.push(engine);
    for (const uuid of engine.gpuUuids) {
      let used = 0;
      for (const other of this.running) if (other.gpuUuids.includes(uuid)) used += other.usesMib;
      const total = this.#cardMib.get(uuid) ?? 0;
      if (used > total) throw new Error(`${uuid} holds engines of ${used} MiB, it has ${total}`);
    }
    const { heirs, kept } = this.#held();
    for (const heir of heirs) this.#checkHeld(engine, heir);
    for (const room of kept) this.#checkKept(engine, room);
  }

  /** Room that is held for a replica is not given away, however long those that have it take to go. */
  #checkHeld(engine: EngineProcess, { replicaId, gpuUuids, usesMib, waitsFor }: Heir): void {
    if (engine.replicaId === replicaId)
      throw new Error(`${replicaId} was started before ${waitsFor.join(", ")} had gone`);
    for (const uuid of gpuUuids) {
      if (!engine.gpuUuids.includes(uuid)) continue;
      let used = usesMib;
      for (const other of this.running)
        if (other.gpuUuids.includes(uuid) && !waitsFor.includes(other.replicaId)) used += other.usesMib;
      if (used > (this.#cardMib.get(uuid) ?? 0))
        throw new Error(
          `${engine.replicaId} of ${engine.model} was started on ${uuid}, which is held for ${replicaId}`,
        );
    }
  }

  /** Nor is room that a model keeps while its replacements fail. */
  #checkKept(engine: EngineProcess, { model, uuid, usesMib, of }: Kept): void {
    if (engine.model === model || !engine.gpuUuids.includes(uuid)) return;
    let used = usesMib;
    for (const other of this.running)
      if (other.gpuUuids.includes(uuid) && !of.includes(other.replicaId)) used += other.usesMib;
    if (used > (this.#cardMib.get(uuid) ?? 0))
      throw new Error(`${engine.replicaId} of ${engine.model} was started on ${uuid}, which ${model} keeps`);
  }

  ended(engine: EngineProcess): void {
    this.running.delete(engine);
  }
}
