import { z } from "zod";
import { gpuReport, GPUS_MAX } from "./agent-link.ts";
import { answerEnd, answerHead, answerText, ask, askOff, boardReport, boardWatch } from "./feed-board.ts";
import { readFrame, type ReadFrame } from "./frames.ts";

/**
 * What a control plane tells gateways of models and their running replicas, and what gateways tell it of demand and use:
 * WebSocket text frames, one JSON message with a `type` in each. The gateway dials out to `FEED_PATH` of every control plane it is
 * configured with, with `Authorization: Bearer`, and says `hello`; the control plane answers `welcome`, and then `state` or, where it
 * does not lead, `standby`. Unknown types and unknown fields are ignored; another protocol version in the path is refused.
 *
 * Rules that both sides rely on:
 *   F1. A mark says whose word a state is. A gateway takes states of the highest epoch that it knows alone, and of one holder of it.
 *   F2. Versions grow within one epoch. A `change` fits only the version in `from`; with any other a gateway asks for `resync`.
 *   F3. A gateway goes on with what it has while nobody tells it anything: a connection that ends, and `standby`, are no news.
 *   F4. A replica whose node is silent stays in the state; it leaves when it is lost, stopping, stopped or failed. One that drains
 *       stays with `draining`: calls that run end there, and no new one goes there.
 *   F5. `used` names every replica on which the gateway runs calls and every one that it would send calls to. Under the mark in
 *       `have`, a replica that is not named has no call here.
 *   F6. `readings` are of now and no part of the state: they have no versions, are kept by nobody, and one that was not taken is
 *       not asked for again. A gateway takes those under the mark's epoch and holder that its state is of.
 */
export const FEED_PATH = "/gateway/v1";
/** A larger frame ends the connection. */
export const FEED_FRAME_BYTES_MAX = 32 * 1024 * 1024;
/** What a gateway may send at once. */
export const FEED_REPORT_BYTES_MAX = 4 * 1024 * 1024;
/** The whole state is sent again after this, whatever is known there. */
export const FEED_WHOLE_EVERY_MS = 60_000;

const MODELS_MAX = 20_000;
const ENDPOINTS_MAX = 20_000;
const READINGS_MAX = 4_096;

const id = z.string().min(1).max(128);
const text = (max: number): z.ZodString => z.string().max(max);
const modelName = text(256).min(1);
const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const duration = z.number().min(0);

const feedMark = z.object({
  clusterId: id,
  epoch: count.min(1),
  /** Random for each process that leads. */
  holder: id,
  version: count,
});
export type FeedMark = z.output<typeof feedMark>;

/** As gateways name engines: those of a catalog that they have no word for are `generic`. */
export const FEED_ENGINES = ["vllm", "sglang", "llama.cpp", "tei", "generic"] as const;
const feedEngine = z.enum(FEED_ENGINES);
export type FeedEngine = z.output<typeof feedEngine>;

const feedModel = z.object({
  name: modelName,
  aliases: z.array(modelName).max(64),
  /** Of its first profile. */
  engine: feedEngine,
  slotsPerReplica: count.min(1),
  /** Whether a request may wait for a start. */
  startable: z.boolean(),
  /** Why it has no ready replica, in words; null where it has one, or none is wanted. */
  why: text(2_048).nullable(),
  settled: z.enum(["ready", "starting", "stopped", "unplaced", "parked"]),
  /** Grows with each start that failed, and falls to 0 when they are history. */
  failedStarts: count,
});
export type FeedModel = z.output<typeof feedModel>;

const feedEndpoint = z.object({
  replicaId: id,
  generation: count,
  model: modelName,
  /** `http://HOST:PORT` */
  url: text(512).min(1),
  engine: feedEngine,
  /** What the engine is asked with; never in a log, metric or page. */
  engineKey: text(256).min(8),
  slots: count.min(1),
  /** `NODE/UUID`, of every shard. */
  gpus: z.array(text(320)).max(4_096),
  /** Name of the head's node. */
  node: text(128),
  draining: z.boolean(),
});
export type FeedEndpoint = z.output<typeof feedEndpoint>;

const hello = z.object({
  type: z.literal("hello"),
  /** Random for each process. */
  gatewayId: id,
  name: text(128),
  version: text(64),
  /** What it has; null: nothing. */
  have: feedMark.nullable(),
  /** It knows what `feed-board.ts` says. */
  board: z.boolean().optional(),
});
const report = z.object({
  type: z.literal("report"),
  seq: count,
  upForMs: duration,
  /** What the gateway goes by at this moment; null: nothing yet. */
  have: feedMark.nullable(),
  /** By catalog name: models that requests wait for without a ready replica. */
  demand: z.record(modelName, z.object({ waiting: count, oldestWaitMs: duration })),
  /** By replica. `idleMs` is null while it has not been asked since this gateway started: unknown, never 0. */
  used: z.record(id, z.object({ inFlight: count, idleMs: duration.nullable() })),
  /** Of the store of jobs that it has; gateways may share one. Absent or null: it has none, or does not know. */
  jobs: z.object({ store: id, queued: count, running: count }).nullish(),
});
export type GatewayReport = Omit<z.output<typeof report>, "type">;
const resync = z.object({ type: z.literal("resync") });
const ping = z.object({ type: z.literal("ping"), n: count });
const pong = z.object({ type: z.literal("pong"), n: count });

const gatewayMessage = z.discriminatedUnion("type", [
  hello,
  report,
  resync,
  boardReport,
  answerHead,
  answerText,
  answerEnd,
  ping,
  pong,
]);
export type GatewayMessage = z.output<typeof gatewayMessage>;

const welcome = z.object({
  type: z.literal("welcome"),
  clusterId: id,
  controlId: id,
  /** How often the gateway is to report. */
  reportMs: z.number().positive(),
});
const state = z.object({
  type: z.literal("state"),
  mark: feedMark,
  models: z.array(feedModel).max(MODELS_MAX),
  endpoints: z.array(feedEndpoint).max(ENDPOINTS_MAX),
});
const change = z.object({
  type: z.literal("change"),
  mark: feedMark,
  /** The version that it is to be laid over. */
  from: count,
  /** Those that are new or different. */
  models: z.array(feedModel).max(MODELS_MAX),
  endpoints: z.array(feedEndpoint).max(ENDPOINTS_MAX),
  modelsGone: z.array(modelName).max(MODELS_MAX),
  endpointsGone: z.array(id).max(ENDPOINTS_MAX),
});
const feedReading = z.object({
  /** Its name. */
  node: text(128).min(1),
  /** All its cards, as its agent told of them. */
  gpus: z.array(gpuReport).max(GPUS_MAX),
  /** For how long the control plane has had it when it is sent. */
  ageMs: duration,
});
export type FeedReading = z.output<typeof feedReading>;
/** What agents read of their cards. */
const readings = z.object({
  type: z.literal("readings"),
  mark: feedMark,
  nodes: z.array(feedReading).max(READINGS_MAX),
});
/** This control plane does not lead: what it knows is not the truth now. */
const standby = z.object({ type: z.literal("standby") });

const feedMessage = z.discriminatedUnion("type", [
  welcome,
  state,
  change,
  readings,
  standby,
  boardWatch,
  ask,
  askOff,
  ping,
  pong,
]);
export type FeedMessage = z.output<typeof feedMessage>;
export type FeedChange = Omit<z.output<typeof change>, "type" | "mark" | "from">;

const GATEWAY_TYPES: ReadonlySet<string> = new Set(gatewayMessage.options.map((option) => option.shape.type.value));
const FEED_TYPES: ReadonlySet<string> = new Set(feedMessage.options.map((option) => option.shape.type.value));

/** What came from a gateway. */
export const readGatewayFrame = (frame: string): ReadFrame<GatewayMessage> =>
  readFrame(frame, GATEWAY_TYPES, gatewayMessage);
/** What came from a control plane. */
export const readFeedFrame = (frame: string): ReadFrame<FeedMessage> => readFrame(frame, FEED_TYPES, feedMessage);

export const writeFeedFrame = (message: GatewayMessage | FeedMessage): string => JSON.stringify(message);
