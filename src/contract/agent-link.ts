import { z } from "zod";
import { REPLICA_ENGINES, type Profile } from "./catalog.ts";
import type { GpuReport, NodeReport, RemovedWeights, ShardFailure } from "./fleet.ts";
import { readFrame, type ReadFrame } from "./frames.ts";

/**
 * What an agent and a control plane say to each other: WebSocket text frames, one JSON message with a `type` in each. The agent
 * dials out to `LINK_PATH` with `Authorization: Bearer` (its one-time token before it is enrolled, its own credential after)
 * and says `hello`; the control plane answers `welcome`. Unknown types and unknown fields are ignored, so that an older side
 * can talk to a newer one; a protocol version in the path that is not known is refused when the connection is opened.
 *
 * Rules that both sides rely on:
 *   A1. An agent obeys only a control plane that said `lead` on this connection, and only commands of that lead.
 *   A2. The highest epoch is on the agent's disk before anything is done under it. A lower one is refused, and so is a second
 *       holder of the same number.
 *   A3. `seq` grows with each command of one epoch to one node. A command that comes again is answered as the first time
 *       and done once.
 *   A4. A command is void `validForMs` after it came, and when the link has not been proven alive for that long.
 *   A5. Results may be lost with the connection: reports, not results, tell what runs.
 */
export const LINK_PATH = "/agent/v1";
/** A larger frame ends the connection. */
export const LINK_FRAME_BYTES_MAX = 4 * 1024 * 1024;
export const PING_EVERY_MS = 10_000;
/** Without a word from the other side for this long, the connection is dead. */
export const LINK_DEAD_MS = 30_000;

/** Why one side closes the connection for good; ordinary ends use the codes of WebSocket itself. */
export const LINK_CLOSE = {
  /** The credential is not, or no longer, valid. */
  unauthorized: 4401,
  /** The message can't be read, or comes at the wrong time. */
  protocol: 4400,
  /** A newer connection of the same node took over. */
  replaced: 4409,
  /** Nothing heard for `LINK_DEAD_MS`. */
  silent: 4408,
} as const;

const id = z.string().min(1).max(128);
const text = (max: number): z.ZodString => z.string().max(max);
const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const epoch = z.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
const mib = z.number().min(0).nullable();
const words = z.record(text(256), text(1_024));
/** What a control plane says with a number, and by which any of its cluster knows again that it gave it out; "": nothing. */
const proof = text(128).default("");

/** Cards of one node. */
export const GPUS_MAX = 64;
export const gpuReport: z.ZodType<GpuReport> = z.object({
  uuid: id,
  index: count,
  name: text(256),
  class: text(64),
  memoryMib: mib,
  usedMib: mib,
  foreignMib: mib,
  utilization: z.number().nullable(),
  temperatureC: z.number().nullable(),
  health: z.enum(["ok", "sick", "unknown"]),
  healthWhy: text(1_024).nullable(),
});

/** Weights, and other things in a cache, that one report tells of. */
export const CACHE_ENTRIES_MAX = 2_000;

export const LOG_LINE_CHARS_MAX = 1_024;
export const LOG_LINES_MAX = 1_000;
export const shardFailure: z.ZodType<ShardFailure> = z.object({
  kind: z.enum(["exit", "signal", "stall", "oom", "gpuOom", "port", "noProgress", "fetch", "refused", "unhealthy"]),
  message: text(2_048),
  signal: text(16).nullable(),
  exitCode: z.number().int().nullable(),
  lastLines: z.array(text(LOG_LINE_CHARS_MAX)).max(100),
});

const shardReport = z.object({
  replicaId: id,
  generation: count,
  shard: count,
  model: text(256),
  profileHash: text(128),
  state: z.enum(["fetching", "starting", "ready", "draining", "stopping", "stopped", "failed"]),
  since: z.number().min(0),
  port: z.number().int().min(1).max(65_535).nullable(),
  pid: count.nullable(),
  gpuUuids: z.array(id).max(64),
  gpuUsedMib: z.record(id, z.number().min(0)).nullable(),
  hostUsedMib: mib,
  fetch: z.object({ bytes: count, totalBytes: count.nullable(), bytesPerS: mib, leftS: mib }).nullable().default(null),
  failure: shardFailure.nullable(),
  blockedBy: text(1_024).nullable(),
  adopted: z.boolean(),
});

const nodeReport: z.ZodType<NodeReport> = z.object({
  nodeId: text(128),
  name: id,
  bootId: id,
  agentVersion: text(64),
  address: text(256),
  labels: words,
  fabric: text(256).nullable(),
  cores: z.number().min(0),
  memoryMib: z.number().min(0),
  memoryFreeMib: mib,
  diskFreeMib: mib,
  weights: z
    .array(z.object({ name: text(256), bytes: count, inUse: z.boolean().default(true) }))
    .max(CACHE_ENTRIES_MAX),
  leftovers: z
    .array(
      z.object({
        name: text(256),
        bytes: count.nullable(),
        kind: z.enum(["partial", "foreign"]),
        damaged: z.boolean().optional(),
      }),
    )
    .max(CACHE_ENTRIES_MAX)
    .default([]),
  engines: z.array(z.enum(REPLICA_ENGINES)).max(16),
  commands: z.array(text(4_096)).max(1_000),
  gpus: z.array(gpuReport).max(GPUS_MAX),
  gpuDiscovery: z.enum(["nvidia-smi", "amd-smi", "none", "failed"]),
  gpuDiscoveryWhy: text(1_024).nullable(),
  shards: z.array(shardReport).max(1_024),
  highestEpoch: z.object({ clusterId: id, epoch, holder: id }).nullable(),
  highestCommit: count.default(0),
  proofs: z.object({ epoch: proof, commit: proof }).prefault({}),
});

const hello = z.object({
  type: z.literal("hello"),
  nodeName: id,
  /** Null until the node is enrolled. */
  nodeId: id.nullable(),
  bootId: id,
  agentVersion: text(64),
});
const report = z.object({ type: z.literal("report"), seq: count, report: nodeReport });
const result = z.object({
  type: z.literal("result"),
  commandId: id,
  /** `accepted`: begun, the reports tell how it goes on. `done`: nothing is left to do. */
  outcome: z.enum(["accepted", "done", "refused", "failed"]),
  /** A code of docs/reference/errors.md; null for `accepted` and `done`. */
  code: text(64).nullable(),
  why: text(2_048).nullable(),
});
const logs = z.object({
  type: z.literal("logs"),
  requestId: id,
  lines: z.array(text(LOG_LINE_CHARS_MAX)).max(LOG_LINES_MAX),
});
const removedWeights: z.ZodType<RemovedWeights> = z.object({
  name: text(256),
  outcome: z.enum(["removed", "kept", "refused", "failed"]),
  freedBytes: count,
  why: text(1_024).nullable(),
});
const collected = z.object({
  type: z.literal("collected"),
  requestId: id,
  results: z.array(removedWeights).max(CACHE_ENTRIES_MAX),
});
const ping = z.object({ type: z.literal("ping"), n: count });
const pong = z.object({ type: z.literal("pong"), n: count });

const agentMessage = z.discriminatedUnion("type", [hello, report, result, logs, collected, ping, pong]);
export type AgentMessage = z.output<typeof agentMessage>;

const profile: z.ZodType<Profile> = z.object({
  hash: id,
  engine: z.enum(REPLICA_ENGINES),
  source: text(4_096).nullable(),
  sha256: text(64).nullable(),
  weightsName: text(256).nullable(),
  gpu: z.object({ classes: z.array(text(64)).max(64), count: count.min(1), memoryMib: z.number().min(0) }).nullable(),
  cpu: z.object({ cores: z.number().min(0), memoryMib: z.number().min(0) }).nullable(),
  diskMib: z.number().min(0),
  args: z.record(text(128), z.union([text(4_096), z.number(), z.boolean(), z.null()])),
  env: z.record(text(128), text(4_096)),
  command: z.array(text(4_096)).max(256).nullable(),
  allowPickle: z.exactOptional(z.literal(true)),
});

export const startVerb = z.object({
  kind: z.literal("start"),
  replicaId: id,
  generation: count,
  shard: z.object({
    index: count,
    of: count.min(1),
    /** Where the first shard listens for the others; null for a replica of one shard. */
    headAddress: text(256).nullable(),
    rendezvousPort: z.number().int().min(1).max(65_535).nullable(),
  }),
  model: z.object({ name: text(256).min(1), aliases: z.array(text(256).min(1)).max(64), slots: count.min(1) }),
  profile,
  gpuUuids: z.array(id).max(64),
  /** What the placement counts on, on each card: measured before, or the profile's figure. */
  gpuMemoryMib: z.number().min(0),
  /** What gateways send to this engine; never shown anywhere. */
  engineKey: text(256).min(8),
  startStallMs: z.number().positive(),
  stopGraceMs: z.number().min(0),
});
const verb = z.discriminatedUnion("kind", [
  startVerb,
  z.object({
    kind: z.literal("stop"),
    replicaId: id,
    generation: count,
    graceMs: z.number().min(0),
    why: text(1_024),
  }),
  /** The control plane has taken note of a shard that has ended. */
  z.object({ kind: z.literal("forget"), replicaId: id, generation: count }),
  z.object({ kind: z.literal("logs"), requestId: id, replicaId: id, lines: count.max(LOG_LINES_MAX) }),
  /** To remove weights from the node's cache, each after the node's own look at it. */
  z.object({ kind: z.literal("collect"), requestId: id, names: z.array(text(256)).max(CACHE_ENTRIES_MAX) }),
]);
export type Verb = z.output<typeof verb>;
export type StartVerb = Extract<Verb, { kind: "start" }>;

const envelope = {
  clusterId: id,
  epoch,
  /** Random for each process that leads: two holders of one number can be told apart. */
  holder: id,
};
const command = z.object({
  type: z.literal("command"),
  ...envelope,
  seq: count,
  /** The store's commit that it stands on; see `ClusterDoc`. */
  commit: count.default(0),
  commitProof: proof,
  commandId: id,
  validForMs: z.number().positive(),
  verb,
});
export type CommandEnvelope = Omit<z.output<typeof command>, "type">;

const welcome = z.object({
  type: z.literal("welcome"),
  clusterId: id,
  controlId: id,
  nodeId: id,
  /** The node's own, after it was enrolled and each time it is renewed; the old one holds until the new one was used. */
  credential: text(512).min(16).nullable(),
  heartbeatMs: z.number().positive(),
  /** Where all control planes of the cluster can be dialled. */
  controls: z.array(text(512)).max(16),
});
const lead = z.object({ type: z.literal("lead"), ...envelope, proof });
/** A term of one leader. */
export type Lead = Omit<z.output<typeof lead>, "type" | "proof">;
/** The same as it is said. */
export type SaidLead = Omit<z.output<typeof lead>, "type">;
/** Whether both are of one term of one leader: a number can be given out twice. */
export const isSameLead = (a: Lead, b: Lead): boolean =>
  a.clusterId === b.clusterId && a.epoch === b.epoch && a.holder === b.holder;

const controlMessage = z.discriminatedUnion("type", [welcome, lead, command, ping, pong]);
export type ControlMessage = z.output<typeof controlMessage>;

const AGENT_TYPES: ReadonlySet<string> = new Set(agentMessage.options.map((option) => option.shape.type.value));
const CONTROL_TYPES: ReadonlySet<string> = new Set(controlMessage.options.map((option) => option.shape.type.value));

/** What came from an agent. */
export const readAgentFrame = (frame: string): ReadFrame<AgentMessage> => readFrame(frame, AGENT_TYPES, agentMessage);
/** What came from a control plane. */
export const readControlFrame = (frame: string): ReadFrame<ControlMessage> =>
  readFrame(frame, CONTROL_TYPES, controlMessage);

export const writeFrame = (message: AgentMessage | ControlMessage): string => JSON.stringify(message);
