import assert from "node:assert/strict";
import { test } from "node:test";
import { UNKNOWN_USAGE } from "../http/token-usage.ts";
import type { StreamVerdict } from "../sse/stream-watcher.ts";
import { judgeStream, judgeWhole, type StreamEnding, type WholeEnding } from "./judge-ending.ts";

const aVerdict = (seen: Partial<StreamVerdict> = {}): StreamVerdict => ({
  finishSeen: false,
  finishReason: undefined,
  errorSeen: false,
  errorMessage: undefined,
  errorStatus: undefined,
  doneSeen: false,
  overflow: false,
  atBoundary: true,
  usage: UNKNOWN_USAGE,
  contentSeen: true,
  lastSequenceNumber: undefined,
  ...seen,
});

const FINISHED = { finishSeen: true, finishReason: "stop" };

const streams: {
  name: string;
  seen: Partial<StreamVerdict>;
  broken: boolean;
  needsFinish: boolean;
  expect: StreamEnding;
}[] = [
  {
    name: "a finish reason and a clean end is a good answer [10.X5b]",
    seen: FINISHED,
    broken: false,
    needsFinish: true,
    expect: { send: "end", good: true },
  },
  {
    name: "[DONE] without a finish goes on as it came and is a failure [10.X5b]",
    seen: { doneSeen: true },
    broken: false,
    needsFinish: true,
    expect: { send: "end", good: false },
  },
  {
    name: "an error event followed by [DONE] goes on as it came and is a failure [10.X5b]",
    seen: { errorSeen: true, doneSeen: true },
    broken: false,
    needsFinish: true,
    expect: { send: "end", good: false },
  },
  {
    name: "a clean end without a finish is told as a break [10.X5]",
    seen: {},
    broken: false,
    needsFinish: true,
    expect: { send: "errorEvent", good: false },
  },
  {
    name: "a break after the finish is still a break [10.X5]",
    seen: FINISHED,
    broken: true,
    needsFinish: true,
    expect: { send: "errorEvent", good: false },
  },
  {
    name: "a break behind the engine's own error event gets no second one",
    seen: { errorSeen: true },
    broken: true,
    needsFinish: true,
    expect: { send: "cut", good: false },
  },
  {
    name: "a route whose streams name no finish ends well by a clean end",
    seen: {},
    broken: false,
    needsFinish: false,
    expect: { send: "end", good: true },
  },
  {
    name: "an engine that names an abort as its reason has not finished",
    seen: { finishSeen: true, finishReason: "abort", doneSeen: true },
    broken: false,
    needsFinish: true,
    expect: { send: "end", good: false },
  },
];
for (const row of streams)
  test(row.name, () => assert.deepEqual(judgeStream(aVerdict(row.seen), row.broken, row.needsFinish), row.expect));

const COMPLETE = { usage: UNKNOWN_USAGE, looksComplete: true, isError: false, errorStatus: undefined };
const wholes: { name: string; ending: WholeEnding; expect: WholeEnding["kind"] }[] = [
  { name: "a whole JSON answer is sent", ending: judgeWhole(COMPLETE, false, true, false), expect: "send" },
  {
    name: "half a JSON answer is garbage [80.A10]",
    ending: judgeWhole({ ...COMPLETE, looksComplete: false }, false, true, false),
    expect: "garbage",
  },
  {
    name: "an answer without a stream can't follow comments",
    ending: judgeWhole(COMPLETE, true, true, false),
    expect: "notAStream",
  },
  {
    name: "an answer that can't be put into the route's form is garbage",
    ending: judgeWhole(COMPLETE, false, false, false),
    expect: "garbage",
  },
  { name: "a body that is not JSON is not judged", ending: judgeWhole(null, false, true, false), expect: "send" },
  {
    name: "an error with a good status is sent where nobody else goes on",
    ending: judgeWhole({ ...COMPLETE, isError: true }, false, true, false),
    expect: "send",
  },
  {
    name: "an error with a good status is no answer where somebody else goes on [80.O5]",
    ending: judgeWhole({ ...COMPLETE, isError: true, errorStatus: 429 }, false, true, true),
    expect: "garbage",
  },
  {
    name: "an error that blames the request is told, whoever could go on [80.O5]",
    ending: judgeWhole({ ...COMPLETE, isError: true, errorStatus: 400 }, false, true, true),
    expect: "send",
  },
];
for (const row of wholes) test(row.name, () => assert.equal(row.ending.kind, row.expect));
