import assert from "node:assert/strict";
import { test } from "node:test";
import { asMono, type Clock, systemClock } from "../kernel/clock.ts";
import { YardmasterError } from "../kernel/errors.ts";
import { captureIo } from "../testing/capture-io.ts";
import type { CtlAnswer, CtlClient } from "./ctl-client.ts";
import { AWAY_MS_MAX, patientClient } from "./ctl-patient.ts";

// What a command that watches does while what it asks is away.

const done: CtlAnswer = { kind: "done", status: 200, body: {} };
const gone: CtlAnswer = { kind: "unreachable", message: "http://x: connect ECONNREFUSED" };
const refused = (status: number): CtlAnswer => ({ kind: "refused", status, code: "X", message: "no" });

/** Answers one after another, the last again and again. Nobody waits: pauses only move the clock. */
function scripted(answers: readonly CtlAnswer[], reopens: () => void = () => {}) {
  let [now, asked, reopened] = [0, 0, 0];
  const clock: Clock = {
    ...systemClock,
    mono: () => asMono(now),
    sleep: async (ms, signal) => {
      signal.throwIfAborted();
      now += ms;
    },
  };
  const stop = new AbortController();
  const { io, output } = captureIo({}, stop.signal);
  const client: CtlClient = {
    base: "http://x",
    request: async () => answers[Math.min(asked++, answers.length - 1)]!,
    reopen: async () => {
      reopened += 1;
      reopens();
      return client;
    },
  };
  const seen = { now: () => now, asked: () => asked, reopened: () => reopened, err: () => output().err };
  return { client, io: { ...io, clock }, stop, ...seen };
}

const rows: readonly {
  readonly name: string;
  readonly answers: readonly CtlAnswer[];
  readonly wasReached?: boolean;
  readonly ends: CtlAnswer;
  readonly afterMs: readonly [least: number, most: number];
}[] = [
  { name: "it answers", answers: [done], ends: done, afterMs: [0, 0] },
  { name: "it was never reached", answers: [gone], wasReached: false, ends: gone, afterMs: [0, 0] },
  { name: "it comes back", answers: [gone, gone, gone, done], ends: done, afterMs: [1_000, 2_000] },
  {
    name: "something before it says that it is away, then it starts",
    answers: [refused(502), refused(504), refused(503), done],
    ends: done,
    afterMs: [1_000, 2_000],
  },
  { name: "it never comes back", answers: [gone], ends: gone, afterMs: [AWAY_MS_MAX, AWAY_MS_MAX] },
  { name: "it refuses", answers: [refused(403)], ends: refused(403), afterMs: [0, 0] },
  { name: "it comes back and refuses", answers: [gone, refused(404)], ends: refused(404), afterMs: [500, 500] },
  { name: "its key is another one by now", answers: [gone, refused(401), done], ends: done, afterMs: [1_000, 1_000] },
  { name: "its key is no longer taken", answers: [refused(401)], ends: refused(401), afterMs: [15_000, 15_000] },
  {
    name: "it comes back, and its key is written late",
    answers: [gone, ...Array<CtlAnswer>(60).fill(refused(401)), done],
    ends: done,
    afterMs: [30_000, 31_000],
  },
];
for (const { name, answers, wasReached = true, ends, afterMs } of rows)
  test(`who watches reads again for a bounded time while the control plane is away, and says so: ${name} [40.V1]`, async () => {
    const world = scripted(answers);
    const answer = await patientClient(world.client, world.io, wasReached).request("GET", "/v1/x");
    assert.deepEqual(answer, ends);
    assert.ok(world.now() >= afterMs[0] && world.now() <= afterMs[1], `${world.now()} ms`);
    assert.equal(world.reopened(), world.asked() - 1, "address and key are read anew each time");
    const isAway = world.now() > 0;
    assert.equal(/trying again for (?:60|15) s/.test(world.err()), isAway);
    assert.equal(world.err().includes("it answers again, after"), isAway && ends.kind === "done");
    assert.ok(world.err().split("\n").length <= 3, "once, not at each try");
  });

test("what changes something is never sent again [40.V1]", async () => {
  for (const method of ["POST", "PUT", "DELETE"] as const) {
    const world = scripted([gone]);
    await patientClient(world.client, world.io, true).request(method, "/v1/x");
    assert.deepEqual([world.asked(), world.err()], [1, ""]);
  }
});

test("Ctrl-C ends the wait, and a key file that is just being written does not [40.V1]", async () => {
  const world = scripted([gone, done], () => {
    throw new YardmasterError("USAGE", "operator.key: holds no single key");
  });
  assert.deepEqual(await patientClient(world.client, world.io, true).request("GET", "/v1/x"), done);
  const other = scripted([gone]);
  other.stop.abort(new Error("Ctrl-C"));
  await assert.rejects(patientClient(other.client, other.io, true).request("GET", "/v1/x"), /Ctrl-C/);
});
