import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readAgentFrame, readControlFrame, writeFrame, type AgentMessage, type ControlMessage } from "./agent-link.ts";

const COMMAND: ControlMessage = {
  type: "command",
  clusterId: "c",
  epoch: 3,
  holder: "h",
  seq: 7,
  commit: 3,
  commitProof: "p",
  commandId: "k",
  validForMs: 30_000,
  verb: { kind: "stop", replicaId: "r", generation: 1, graceMs: 10_000, why: "scaled down" },
};
const HELLO: AgentMessage = { type: "hello", nodeName: "a", nodeId: null, bootId: "b", agentVersion: "1" };

test("a message is read as it was written, and fields of a newer version are passed over", () => {
  assert.deepEqual(readControlFrame(writeFrame(COMMAND)), { kind: "message", message: COMMAND });
  assert.deepEqual(readAgentFrame(JSON.stringify({ ...HELLO, later: [1] })), { kind: "message", message: HELLO });
});

test("a type of a newer version is told apart from a broken message", () => {
  assert.deepEqual(readControlFrame('{"type":"praise"}'), { kind: "unknown", type: "praise" });
  for (const frame of ["", "[]", "null", '"hello"', '{"type":7}', '{"type":"welcome"}', "{"])
    assert.equal(readControlFrame(frame).kind, "invalid", frame);
});

test("commands are verbs of a closed list with checked arguments; another verb, or one that is made up, is refused [80.C40]", () => {
  for (const verb of [
    { kind: "exec", replicaId: "r", generation: 1, program: "/bin/sh" },
    { kind: "stop", replicaId: "r", generation: -1, graceMs: 1, why: "" },
    { kind: "stop", replicaId: ["r"], generation: 1, graceMs: 1, why: "" },
    { kind: "start", replicaId: "r", generation: 1, command: "rm -rf /" },
    { kind: "__proto__" },
  ])
    assert.equal(readControlFrame(JSON.stringify({ ...COMMAND, verb })).kind, "invalid");
});

test("no text from the other side makes reading fail, and a refusal shows no value of it", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (frame) => {
      readAgentFrame(frame);
      readControlFrame(frame);
    }),
  );
  const secret = { type: "welcome", credential: ["CANARY-credential"], clusterId: "c" };
  assert.doesNotMatch(JSON.stringify(readControlFrame(JSON.stringify(secret))), /CANARY/);
});
