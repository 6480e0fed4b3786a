import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { VirtualClock } from "../../src/testing/virtual-clock.ts";
import { aTask, errorCodeOf, startCall, type LiveCall } from "./support/calls.ts";
import { onlyUpstream, waitingIn } from "./support/health.ts";
import { answerStream, startPagedEngine, type PagedEngine } from "./support/paged-engine.ts";
import { passTime, passTimeUntil } from "./support/virtual-time.ts";
import { upstreamOf, withVirtualWorld, type VirtualWorld } from "./support/virtual-world.ts";

// An engine dies while the others are full: what it had, and what is sent there before its breaker opens, waits for the others.

interface HeldEngine extends AsyncDisposable {
  readonly engine: PagedEngine;
  /** Who came, in order. */
  readonly names: readonly string[];
  /** Answers the call that has been there for longest. */
  release(): void;
}

async function heldEngine(): Promise<HeldEngine> {
  const names: string[] = [];
  const held: ServerResponse[] = [];
  const engine = await startPagedEngine({
    pages: {},
    onPost: (_req, res, body) => {
      names.push(String((JSON.parse(body) as { readonly user?: unknown }).user));
      held.push(res);
    },
  });
  const release = (): void => {
    const res = held.shift();
    if (res !== undefined) answerStream(res);
  };
  return { engine, names, release, [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose]() };
}

interface Scene extends VirtualWorld {
  readonly dies: HeldEngine;
  readonly stays: HeldEngine;
  ask(name: string, more?: Parameters<typeof startCall>[1]): LiveCall;
}

async function withTwoFull(more: Record<string, unknown>, run: (scene: Scene) => Promise<void>): Promise<void> {
  const clock = new VirtualClock();
  await using dies = await heldEngine();
  await using stays = await heldEngine();
  const urls = [dies.engine.url, stays.engine.url];
  const upstream = upstreamOf("generic", urls, { health: "passive", slots: 4, ...more });
  const endpoints = urls.map((url) => ({ url, slots: 2 }));
  await withVirtualWorld(clock, [{ ...upstream, endpoints }], async (world) => {
    const ask = (name: string, options = {}): LiveCall =>
      startCall(world.gateway, { body: aTask({}, { user: name }), ...options });
    await run({ ...world, dies, stays, ask });
    await passTimeUntil(
      clock,
      "every slot comes back",
      async () => {
        const { in_use, queue, endpoints: shown } = await onlyUpstream(world.gateway);
        const held = in_use.interactive + in_use.batch + queue.waiting.interactive + queue.waiting.batch;
        return held + shown.reduce((sum, { in_flight }) => sum + in_flight, 0) === 0;
      },
      5_000,
    );
  });
}

const running = async ({ clock, dies, stays, ask }: Scene, names: readonly string[]): Promise<LiveCall[]> => {
  const calls: LiveCall[] = [];
  for (const name of names) {
    calls.push(ask(name));
    const there = calls.length;
    await passTimeUntil(clock, `${name} runs`, () => dies.names.length + stays.names.length === there, 2_000);
  }
  return calls;
};

test("an engine that dies while the other is full costs no call that had no byte of an answer: each waits for the other, in the order in which they came, and is asked there once [10.R4 10.A2]", async () => {
  await withTwoFull({}, async (scene) => {
    const { clock, dies, stays, ask, gateway, answers } = scene;
    const calls = await running(scene, ["r1", "r2", "r3", "r4"]);
    const onDead = dies.names.slice();
    for (const name of ["w1", "w2", "w3"]) {
      calls.push(ask(name));
      await passTimeUntil(clock, `${name} waits`, async () => (await waitingIn(gateway)) === calls.length - 4, 2_000);
    }
    await dies.engine.close();
    await passTimeUntil(clock, "five wait", async () => (await waitingIn(gateway)) === 5, 5_000);
    assert.equal((await onlyUpstream(gateway)).in_use.interactive, 2, "who waits holds no slot");
    for (let served = 3; served <= 7; served += 1) {
      stays.release();
      await passTimeUntil(clock, "the next one goes", () => stays.names.length === served, 2_000);
    }
    assert.deepEqual(stays.names.slice(2), [...onDead, "w1", "w2", "w3"]);
    for (let left = 0; left < 2; left += 1) stays.release();
    for (const { status, whole } of await answers(calls)) assert.deepEqual([status, whole], [200, true]);
    const { records } = await gateway.audit();
    assert.deepEqual([records.length, new Set(records.map(({ outcome }) => outcome))], [7, new Set(["ok"])]);
  });
});

test("people go before a batch call that lost its engine and waits again [10.A2 10.R4]", async () => {
  await withTwoFull({ batch_max: 4 }, async (scene) => {
    const { clock, dies, stays, ask, gateway, answers } = scene;
    const calls = [ask("b", { class: "batch" })];
    await passTimeUntil(clock, "it runs", () => dies.names.length + stays.names.length === 1, 2_000);
    const [lost, full] = dies.names.length === 1 ? [dies, stays] : [stays, dies];
    while (full.names.length < 2 || lost.names.length < 2) {
      const there = full.names.length + lost.names.length;
      calls.push(ask("r"));
      await passTimeUntil(clock, "it runs", () => full.names.length + lost.names.length > there, 2_000);
    }
    await lost.engine.close();
    await passTimeUntil(clock, "both wait", async () => (await waitingIn(gateway)) === 2, 5_000);
    calls.push(ask("p"));
    await passTimeUntil(clock, "a person waits too", async () => (await waitingIn(gateway)) === 3, 2_000);
    for (let served = 3; served <= 5; served += 1) {
      full.release();
      await passTimeUntil(clock, "the next one goes", () => full.names.length === served, 2_000);
    }
    assert.deepEqual(full.names.slice(2), ["r", "p", "b"]);
    for (let left = 0; left < 2; left += 1) full.release();
    for (const { status } of await answers(calls)) assert.equal(status, 200);
  });
});

test("a call that waits again leaves with its client, at its own deadline and at its class's limit; the end of the last engine is told at once [10.A4 10.A5 10.R4]", async () => {
  const queue = { max: 3, timeout_s: { interactive: 20 } };
  await withTwoFull({ queue }, async (scene) => {
    const { clock, dies, stays, ask, gateway, answers } = scene;
    const runs = await running(scene, ["r1", "r2", "r3", "r4"]);
    const lost = runs.filter((_, index) => dies.names.includes(`r${index + 1}`));
    const hasty = ask("hasty", { headers: { "x-request-timeout-ms": "9000" } });
    await passTimeUntil(clock, "it waits", async () => (await waitingIn(gateway)) === 1, 2_000);
    await dies.engine.close();
    await passTimeUntil(clock, "three wait", async () => (await waitingIn(gateway)) === 3, 5_000);
    const from = clock.mono();
    lost[0]?.leave();
    await passTimeUntil(clock, "it is out", async () => (await waitingIn(gateway)) === 2, 1_000);
    const [late] = await answers([hasty]);
    assert.deepEqual([late?.status, errorCodeOf(late?.text ?? "")], [503, "QUEUE_TIMEOUT"]);
    assert.ok(clock.mono() - from < 10_500, `${clock.mono() - from} ms`);
    const [tired] = await answers(lost.slice(1));
    assert.deepEqual([tired?.status, errorCodeOf(tired?.text ?? "")], [503, "QUEUE_TIMEOUT"]);
    assert.ok(clock.mono() - from < 21_500, `${clock.mono() - from} ms`);
    assert.equal(stays.names.length, 2, "none of them reached an engine");
    await stays.engine.close();
    const ends = await answers(runs.filter((one) => !lost.includes(one)));
    for (const { status, text } of ends) assert.deepEqual([status, errorCodeOf(text)], [502, "UPSTREAM_ERROR"]);
    await passTime(clock, 1_000);
  });
});
