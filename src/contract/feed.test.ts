import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { aGpu } from "../testing/fleet-builders.ts";
import {
  FEED_ENGINES,
  FEED_FRAME_BYTES_MAX,
  FEED_PATH,
  FEED_REPORT_BYTES_MAX,
  FEED_WHOLE_EVERY_MS,
  readFeedFrame,
  readGatewayFrame,
  writeFeedFrame,
  type FeedEndpoint,
  type FeedMark,
  type FeedMessage,
  type FeedModel,
  type GatewayMessage,
} from "./feed.ts";

const MARK: FeedMark = { clusterId: "c", epoch: 3, holder: "h", version: 7 };
const MODEL: FeedModel = {
  name: "m",
  aliases: ["n"],
  engine: "vllm",
  slotsPerReplica: 16,
  startable: true,
  why: null,
  settled: "ready",
  failedStarts: 0,
};
const ENDPOINT: FeedEndpoint = {
  replicaId: "r1",
  generation: 1,
  model: "m",
  url: "http://127.0.0.1:18000",
  engine: "vllm",
  engineKey: "CANARY-engine-key",
  slots: 16,
  gpus: ["node-a/GPU-1"],
  node: "node-a",
  draining: false,
};
const FROM_CONTROL: readonly FeedMessage[] = [
  { type: "welcome", clusterId: "c", controlId: "x", reportMs: 1_000 },
  { type: "state", mark: MARK, models: [MODEL], endpoints: [ENDPOINT] },
  {
    type: "change",
    mark: MARK,
    from: 6,
    models: [MODEL],
    endpoints: [ENDPOINT],
    modelsGone: ["o"],
    endpointsGone: ["r0"],
  },
  { type: "readings", mark: MARK, nodes: [{ node: "node-a", gpus: [aGpu("GPU-1", { health: "sick" })], ageMs: 12.5 }] },
  { type: "standby" },
  { type: "ping", n: 1 },
];
const FROM_GATEWAY: readonly GatewayMessage[] = [
  { type: "hello", gatewayId: "g", name: "gw", version: "1", have: null },
  {
    type: "report",
    seq: 1,
    upForMs: 10,
    have: MARK,
    demand: { m: { waiting: 2, oldestWaitMs: 40 } },
    used: { r1: { inFlight: 0, idleMs: null } },
  },
  { type: "resync" },
  { type: "pong", n: 1 },
];

test("a message is read as it was written, and fields of a newer version are passed over", () => {
  for (const message of FROM_CONTROL)
    assert.deepEqual(readFeedFrame(writeFeedFrame(message)), { kind: "message", message });
  for (const message of FROM_GATEWAY)
    assert.deepEqual(readGatewayFrame(JSON.stringify({ ...message, later: [1] })), { kind: "message", message });
});

test("a type of a newer version is told apart from a broken message", () => {
  assert.deepEqual(readFeedFrame('{"type":"praise"}'), { kind: "unknown", type: "praise" });
  for (const frame of ["", "[]", "null", '"state"', '{"type":7}', '{"type":"state"}', "{"])
    assert.equal(readFeedFrame(frame).kind, "invalid", frame);
  const negative = {
    type: "report",
    seq: 1,
    upForMs: 1,
    have: null,
    demand: {},
    used: { r: { inFlight: -1, idleMs: 0 } },
  };
  assert.equal(readGatewayFrame(JSON.stringify(negative)).kind, "invalid");
});

test("no text from the other side makes reading fail, and a refusal shows no value of it", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (frame) => {
      readGatewayFrame(frame);
      readFeedFrame(frame);
    }),
  );
  const broken = { type: "state", mark: MARK, models: [], endpoints: [{ ...ENDPOINT, slots: "many" }] };
  assert.doesNotMatch(JSON.stringify(readFeedFrame(JSON.stringify(broken))), /CANARY/);
});

test("a whole state of the largest fleet that is measured fits a frame, and a report on it fits its own", () => {
  const models = Array.from({ length: 2_000 }, (_, at) => ({ ...MODEL, name: `model-${at}`, why: "x".repeat(200) }));
  const endpoints = Array.from({ length: 5_000 }, (_, at) => ({
    ...ENDPOINT,
    replicaId: `replica-${at}`,
    engine: FEED_ENGINES[at % FEED_ENGINES.length] ?? "generic",
    gpus: Array.from({ length: 8 }, (_unused, card) => `node-${at}/GPU-00000000-0000-0000-0000-00000000000${card}`),
  }));
  const whole = writeFeedFrame({ type: "state", mark: MARK, models, endpoints });
  assert.equal(readFeedFrame(whole).kind, "message");
  assert.ok(whole.length * 4 < FEED_FRAME_BYTES_MAX, `${whole.length}`);
  const used = Object.fromEntries(endpoints.map(({ replicaId }) => [replicaId, { inFlight: 16, idleMs: 123_456 }]));
  const report = writeFeedFrame({ type: "report", seq: 1, upForMs: 1, have: MARK, demand: {}, used });
  assert.ok(report.length * 4 < FEED_REPORT_BYTES_MAX, `${report.length}`);
  assert.match(FEED_PATH, /v1$/);
  assert.ok(FEED_WHOLE_EVERY_MS > 0);
});
