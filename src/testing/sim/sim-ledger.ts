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

  constructor(cardMib: ReadonlyMap<string, number>) {
    this.#cardMib = cardMib;
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
  }

  ended(engine: EngineProcess): void {
    this.running.delete(engine);
  }
}
