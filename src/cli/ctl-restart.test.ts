import assert from "node:assert/strict";
import { test } from "node:test";
import type { EventAnswer, ReplicaAnswer } from "../contract/control-api.ts";
import { systemClock } from "../kernel/clock.ts";
import { captureIo } from "../testing/capture-io.ts";
import type { CtlClient } from "./ctl-client.ts";
import { follow } from "./ctl-restart.ts";

// What `--watch` says of a restart, by what it sees of it.

const replica = (id: string, part: Partial<ReplicaAnswer> = {}): ReplicaAnswer => ({
  id,
  model: "m",
  engine: "sim",
  state: "ready",
  generation: 1,
  nodes: ["a"],
  gpus: [],
  outdated: false,
  restart: "none",
  restart_why: null,
  replaces: null,
  idle_s: null,
  fetch: null,
  created: "2026-01-01T00:00:00.000Z",
  ready: null,
  why: null,
  ...part,
});
const done = (by: string, old: string): EventAnswer => ({
  seq: 1,
  at: "2026-01-01T00:00:00.000Z",
  kind: "restartDone",
  model: "m",
  replicaId: by,
  nodeId: null,
  why: `it has replaced ${old}`,
  by: null,
});

/** Follows the restart of r1 through these looks; nobody waits. */
async function followed(looks: readonly (readonly ReplicaAnswer[])[], events: readonly EventAnswer[] = []) {
  let at = 0;
  const { io, output } = captureIo({}, new AbortController().signal);
  const client: CtlClient = {
    base: "http://x",
    request: async (_method, path) => {
      if (path.includes("/events")) return { kind: "done", status: 200, body: { events } };
      return { kind: "done", status: 200, body: { replicas: looks[Math.min(at++, looks.length - 1)] } };
    },
    reopen: async () => client,
  };
  const code = await follow({ client, io: { ...io, clock: { ...systemClock, sleep: async () => {} } }, json: false }, [
    "r1",
  ]);
  return { code, last: output().out.trim().split("\n").at(-1) };
}

const asked = replica("r1", { restart: "queued" });
const rows: readonly {
  readonly name: string;
  readonly looks: readonly (readonly ReplicaAnswer[])[];
  readonly events?: readonly EventAnswer[];
  readonly expect: readonly [code: number, last: string];
}[] = [
  {
    name: "was seen from its beginning to its end",
    looks: [
      [asked],
      [replica("r1", { restart: "replacing" }), replica("r2", { replaces: "r1", state: "starting" })],
      [replica("r2")],
    ],
    expect: [0, "r1: replaced by r2"],
  },
  {
    name: "began and ended between two looks",
    looks: [[asked], [replica("r2")]],
    events: [done("r9", "r8"), done("r2", "r1")],
    expect: [0, "r1: replaced by r2"],
  },
  {
    name: "was over before the first look, and its replacement replaced too",
    looks: [[replica("r3")]],
    events: [done("r2", "r1"), done("r3", "r2")],
    expect: [0, "r1: replaced by r2"],
  },
  {
    name: "ended between two looks, and its replacement was replaced too",
    looks: [
      [replica("r1", { restart: "replacing" }), replica("r2", { replaces: "r1", state: "starting" })],
      [replica("r3")],
    ],
    events: [done("r2", "r1"), done("r3", "r2")],
    expect: [0, "r1: replaced by r2"],
  },
  {
    name: "is gone, and nothing replaced it",
    looks: [[asked], [replica("r5")]],
    events: [done("r5", "r4")],
    expect: [1, "r1: failed"],
  },
  {
    name: "has a replacement that failed",
    looks: [
      [replica("r1", { restart: "in place" }), replica("r2", { replaces: "r1", state: "placing" })],
      [replica("r2", { state: "failed", why: "no memory" })],
    ],
    events: [done("r2", "r1")],
    expect: [1, "r1: failed: no memory"],
  },
];
for (const { name, looks, events = [], expect } of rows)
  test(`a restart that is watched and ${name}: ${expect[0] === 0 ? "done" : "failed"}, and so says the exit code [40.S9 40.V1]`, async () => {
    const { code, last } = await followed(looks, events);
    assert.deepEqual([code, last], expect);
  });
