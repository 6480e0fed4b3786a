import { randomBytes } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { YardmasterError } from "../../kernel/errors.ts";
import { Secret } from "../../kernel/secret.ts";
import type { EpochMemory } from "../../decide/agent/command-gate.ts";
import { markGeneration, type GenerationMark, type Generations } from "../../decide/agent/generations.ts";
import type { KnownGpu } from "../../decide/agent/gpu-inventory.ts";
import { readIfThere, removeDurably } from "../../kernel/durable-file.ts";
import { makeFolder } from "../../kernel/make-folder.ts";
import { DiskReserve } from "./disk-reserve.ts";
import { shardRecord, type ShardRecord } from "./shard-record.ts";

/**
 * What an agent keeps over its own end: who it is, whom it obeys, and its engines. Files of one folder that only the owner can
 * read, each written whole.
 *
 * Invariants:
 *   S1. A change is on the disk before its promise resolves; whoever acts on it waits for that.
 *   S2. Writes to one file happen in the order of the calls.
 *   S3. A file that can't be read stops the agent: to go on without it would be to forget an epoch or an engine.
 *   S4. A full disk does not keep it from being written as long as the reserve lasts.
 */
const membership = z.object({
  clusterId: z.string(),
  nodeId: z.string(),
  credential: z.string(),
  /** SHA-256 of the one-time token that it was had for; such a token is not shown a second time. */
  tokenHash: z.string().nullable(),
});
const about = z.object({
  agentId: z.string(),
  controls: z.array(z.string()),
  bootId: z.string(),
  gpus: z.array(z.object({ uuid: z.string(), index: z.number(), name: z.string(), memoryMib: z.number().nullable() })),
  generations: z.array(z.tuple([z.string(), z.object({ generation: z.number(), over: z.boolean() })])),
});
const epoch = z.object({
  clusterId: z.string(),
  epoch: z.number(),
  holder: z.string(),
  seq: z.number(),
  commit: z.number().default(0),
  epochProof: z.string().default(""),
  commitProof: z.string().default(""),
});

export interface Membership {
  readonly clusterId: string;
  readonly nodeId: string;
  readonly credential: Secret;
  readonly tokenHash: string | null;
}

export class AgentState {
  readonly folder: string;
  #about: z.output<typeof about>;
  #membership: Membership | null;
  #epoch: EpochMemory | null;
  #generations: Generations;
  readonly #shards: Map<string, ShardRecord>;
  readonly #reserve: DiskReserve;
  /** The last write of each file. */
  readonly #writes = new Map<string, Promise<void>>();

  private constructor(
    folder: string,
    loaded: {
      about: z.output<typeof about>;
      membership: Membership | null;
      epoch: EpochMemory | null;
      shards: readonly ShardRecord[];
    },
  ) {
    this.folder = folder;
    this.#reserve = new DiskReserve(join(folder, "reserve"));
    this.#about = loaded.about;
    this.#membership = loaded.membership;
    this.#epoch = loaded.epoch;
    this.#generations = new Map(loaded.about.generations);
    this.#shards = new Map(loaded.shards.map((record) => [record.start.replicaId, record]));
  }

  /**
   * `bootId` names the machine's run: after another start of it no engine and no card of before is there any more. Throws
   * CONFIG_INVALID on a file that can't be read.
   */
  static async load(folder: string, bootId: string): Promise<AgentState> {
    await makeFolder(join(folder, "shards"));
    const fresh = { agentId: randomBytes(12).toString("hex"), controls: [], bootId, gpus: [], generations: [] };
    const found = (await readState(join(folder, "agent.json"), about)) ?? fresh;
    const sameBoot = found.bootId === bootId;
    const member = await readState(join(folder, "membership.json"), membership);
    const names = (await readdir(join(folder, "shards"))).filter((name) => name.endsWith(".json"));
    const records: ShardRecord[] = [];
    for (const name of names) {
      const path = join(folder, "shards", name);
      const record = await readState(path, shardRecord);
      if (record !== null && record.bootId === bootId) records.push(record);
      else await removeDurably(path);
    }
    const state = new AgentState(folder, {
      about: { ...found, bootId, gpus: sameBoot ? found.gpus : [] },
      membership: member === null ? null : { ...member, credential: new Secret(member.credential) },
      epoch: await readState(join(folder, "epoch.json"), epoch),
      shards: records,
    });
    await state.#saveAbout();
    await state.#reserve.fill();
    return state;
  }

  /** Marks this agent's engines; stays as long as the folder. */
  get agentId(): string {
    return this.#about.agentId;
  }
  get membership(): Membership | null {
    return this.#membership;
  }
  get epoch(): EpochMemory | null {
    return this.#epoch;
  }
  get generations(): Generations {
    return this.#generations;
  }
  /** Control planes that others told of. */
  get controls(): readonly string[] {
    return this.#about.controls;
  }
  get knownGpus(): readonly KnownGpu[] {
    return this.#about.gpus;
  }
  get shards(): readonly ShardRecord[] {
    return [...this.#shards.values()];
  }

  async keepMembership(next: Membership): Promise<void> {
    const text = JSON.stringify({ ...next, credential: next.credential.reveal() });
    this.#membership = next;
    await this.#write("membership.json", text);
  }

  async keepEpoch(next: EpochMemory): Promise<void> {
    await this.#write("epoch.json", JSON.stringify(next));
    // Only now: what is reported of it, and obeyed under it, must outlive this process.
    this.#epoch = next;
  }

  async keepControls(controls: readonly string[]): Promise<void> {
    this.#about = { ...this.#about, controls: [...controls] };
    await this.#saveAbout();
  }

  async keepGpus(gpus: readonly KnownGpu[]): Promise<void> {
    this.#about = { ...this.#about, gpus: [...gpus] };
    await this.#saveAbout();
  }

  async markGeneration(replicaId: string, mark: GenerationMark): Promise<void> {
    const next = markGeneration(this.#generations, replicaId, mark);
    if (next === this.#generations) return;
    this.#generations = next;
    await this.#saveAbout();
  }

  async keepShard(record: ShardRecord): Promise<void> {
    this.#shards.set(record.start.replicaId, record);
    await this.#write(join("shards", `${record.fileName}.json`), JSON.stringify(record));
  }

  async dropShard(record: ShardRecord): Promise<void> {
    if (this.#shards.get(record.start.replicaId)?.fileName === record.fileName)
      this.#shards.delete(record.start.replicaId);
    await this.#inOrder(join("shards", `${record.fileName}.json`), removeDurably);
  }

  /** Resolves when all that was told is on the disk. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#writes.values());
  }

  #saveAbout(): Promise<void> {
    return this.#write("agent.json", JSON.stringify({ ...this.#about, generations: [...this.#generations] }));
  }

  #write(name: string, text: string): Promise<void> {
    return this.#inOrder(name, (path) => this.#reserve.write(path, text));
  }

  #inOrder(name: string, act: (path: string) => Promise<void>): Promise<void> {
    const before = this.#writes.get(name) ?? Promise.resolve();
    const path = join(this.folder, name);
    const next = before.then(
      () => act(path),
      () => act(path), // The one before has told its own caller.
    );
    this.#writes.set(name, next);
    void next
      .catch(() => {})
      .finally(() => {
        if (this.#writes.get(name) === next) this.#writes.delete(name);
      });
    return next;
  }
}

/** What the node kept of its enrolment; null when it has never been enrolled. Throws CONFIG_INVALID on a file that can't be read. */
export async function membershipOf(folder: string): Promise<Pick<Membership, "clusterId" | "nodeId"> | null> {
  return readState(join(folder, "membership.json"), membership);
}

async function readState<T>(path: string, schema: z.ZodType<T>): Promise<T | null> {
  const text = await readIfThere(path);
  if (text === null) return null;
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    // The cause may quote a credential.
    throw new YardmasterError(
      "CONFIG_INVALID",
      `${path} can't be read; restore it, or move it away to start without it`,
    );
  }
}
