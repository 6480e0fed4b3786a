import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { RawClient } from "../../src/testing/raw-client.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, errorCodeOf, startCall, type CallAnswer } from "./support/calls.ts";
import {
  CLIENT_KEY,
  programFolder,
  reach,
  runProgram,
  type ProgramFolder,
  type RunningProgram,
} from "./support/program.ts";

// The gateway as a process of its own, told to stop by signals.

let engine: SimEngine;

before(async () => {
  engine = await anEngine({ slots: 256 });
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

async function withProgram(
  file: Record<string, unknown>,
  run: (program: RunningProgram, port: number, folder: ProgramFolder) => Promise<void>,
): Promise<void> {
  await using folder = await programFolder({
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 64, endpoints: [{ url: engine.url }] }],
    ...file,
  });
  await using program = runProgram(["gateway", "--config", folder.config, "--log-format", "json"]);
  await run(program, await program.ready(), folder);
}

const reached = (what: string, count: number): Promise<void> =>
  eventually(
    what,
    () => engine.ledger().firstByte,
    (seen) => seen === count,
    60_000,
  ).then(() => {});

/** Over a connection of its own: one that is kept may be closed by the stop at any moment. */
const page = (port: number, path: string): Promise<CallAnswer> =>
  startCall(reach(port), { method: "GET", path }).answer;

test("SIGTERM under load: running streams end whole, those that wait and those that come are told 503 DRAINING with Retry-After, readiness fails at once, and the process ends with 0 [10.X6 80.G2]", async () => {
  await withProgram(
    {
      drain_s: 60,
      upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 20, endpoints: [{ url: engine.url }] }],
    },
    async (program, port) => {
      const gateway = reach(port);
      const running = Array.from({ length: 20 }, () =>
        startCall(gateway, { body: aTask({ tokens: 40, delayBetweenMs: 100 }) }),
      );
      await reached("twenty streams", 20);
      const waiting = Array.from({ length: 5 }, () => startCall(gateway, { body: aTask() }));
      await eventually(
        "five wait",
        () => page(port, "/metrics"),
        ({ text }) => /^yardmaster_waiting\{upstream="u",class="interactive"\} 5$/m.test(text),
      );
      program.kill("SIGTERM");
      for (const one of waiting) {
        const answer = await one.answer;
        assert.deepEqual([answer.status, errorCodeOf(answer.text)], [503, "DRAINING"]);
        assert.ok(Number(answer.headers["retry-after"]) >= 1);
      }
      assert.equal((await page(port, "/readyz")).status, 503);
      assert.equal((await page(port, "/healthz")).text.trim(), "ok");
      for (let i = 0; i < 3; i += 1) {
        const late = await startCall(gateway, { body: aTask() }).answer;
        assert.deepEqual([late.status, errorCodeOf(late.text), late.headers["connection"]], [503, "DRAINING", "close"]);
        assert.ok(Number(late.headers["retry-after"]) >= 1);
      }
      assert.equal(running.filter((one) => one.text.includes("[DONE]")).length, 0, "the streams were still running");
      for (const one of running) {
        const answer = await one.answer;
        assert.deepEqual([answer.status, answer.whole, answer.text.endsWith("data: [DONE]\n\n")], [200, true, true]);
      }
      const ended = await program.end();
      assert.deepEqual([ended.code, ended.signal], [0, null]);
      assert.equal(engine.ledger().opened, 20);
      assert.equal(engine.ledger().finished, 20);
      assert.match(ended.err, /"op":"gateway.stopped"/);
    },
  );
});

test("what still runs at the end of drain_s gets an error event in its stream and a broken connection, never a clean end, and the process ends with 0 right after [10.X6 80.G2]", async () => {
  await withProgram({ drain_s: 1 }, async (program, port) => {
    const gateway = reach(port);
    const endless = Array.from({ length: 5 }, () =>
      startCall(gateway, { body: aTask({ tokens: 100_000, delayBetweenMs: 50 }) }),
    );
    await reached("five streams", 5);
    const whole = startCall(gateway, { body: aTask({ hangNoHead: true }, { stream: false }) });
    await eventually(
      "the sixth",
      () => engine.ledger().opened,
      (opened) => opened === 6,
    );
    const from = systemClock.mono();
    program.kill("SIGTERM");
    const ended = await program.end();
    const took = systemClock.mono() - from;
    assert.deepEqual([ended.code, ended.signal], [0, null]);
    assert.ok(took >= 1_000 && took < 10_000, `${took} ms`);
    for (const one of endless) {
      const answer = await one.answer;
      assert.equal(answer.whole, false);
      const events = answer.text.trimEnd().split("\n\n");
      assert.equal(errorCodeOf(events.at(-1) ?? ""), "DRAINING");
      assert.doesNotMatch(answer.text, /\[DONE\]/);
    }
    const refused = await whole.answer;
    assert.deepEqual([refused.status, errorCodeOf(refused.text)], [503, "DRAINING"]);
    assert.ok(await engine.waitFor((ledger) => ledger.aborted === 6 && ledger.concurrentNow === 0, 60_000));
  });
});

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  test(`a second ${signal} ends at once what the first would have waited for [10.X6]`, async () => {
    await withProgram({ drain_s: 3_600 }, async (program, port) => {
      const one = startCall(reach(port), { body: aTask({ tokens: 100_000, delayBetweenMs: 50 }) });
      await reached("the stream", 1);
      program.kill(signal);
      await program.said(/gateway\.draining/, "err");
      program.kill(signal);
      const ended = await program.end();
      assert.equal(ended.signal, null);
      const answer = await one.answer;
      assert.equal(answer.whole, false);
      assert.doesNotMatch(answer.text, /\[DONE\]/);
    });
  });
}

test("an idle gateway ends at once on SIGTERM though clients keep connections open, and a request whose body is still coming is answered 503 and reaches no engine [10.X6]", async () => {
  await withProgram({ drain_s: 60 }, async (program, port) => {
    using idle = await RawClient.connect(port);
    await idle.write("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    await idle.readUntil("ok\n");
    using sending = await RawClient.connect(port, { patienceMs: 60_000 });
    const body = JSON.stringify({ ...aTask() });
    await sending.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${CLIENT_KEY}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 10)}`,
    );
    await eventually(
      "its connection is taken",
      () => page(port, "/healthz"),
      ({ status }) => status === 200,
    );
    program.kill("SIGTERM");
    await program.said(/gateway\.draining/, "err");
    await idle.readToEnd();
    await sending.write(body.slice(10));
    await sending.readToEnd();
    assert.match(sending.text, /^HTTP\/1\.1 503 [\s\S]*DRAINING/);
    assert.match(sending.text, /retry-after: /i);
    assert.match(sending.text, /connection: close/i);
    assert.equal((await program.end()).code, 0);
    assert.equal(engine.ledger().opened, 0);
  });
});

test("fifty streams through a gateway that is killed end without [DONE], the engine sees every connection close, and a gateway started again on the same port serves at once [80.G1]", async () => {
  await using folder = await programFolder({
    upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots: 50, endpoints: [{ url: engine.url }] }],
  });
  await using first = runProgram(["gateway", "--config", folder.config]);
  const port = await first.ready();
  const streams = Array.from({ length: 50 }, () =>
    startCall(reach(port), { body: aTask({ tokens: 10_000, delayBetweenMs: 200 }) }),
  );
  await reached("fifty streams", 50);
  await Promise.all(streams.map((one) => one.until("its first event", (text) => text.includes("data:"))));
  first.kill("SIGKILL");
  assert.equal((await first.end()).signal, "SIGKILL");
  for (const one of streams) {
    const answer = await one.answer;
    assert.deepEqual([answer.status, answer.whole, answer.text.includes("[DONE]")], [200, false, false]);
  }
  assert.ok(await engine.waitFor((ledger) => ledger.aborted === 50 && ledger.concurrentNow === 0, 60_000));
  await using second = runProgram(["gateway", "--config", folder.config, "--listen", `127.0.0.1:${port}`]);
  assert.equal(await second.ready(), port);
  const again = await Promise.all(Array.from({ length: 50 }, () => startCall(reach(port), { body: aTask() }).answer));
  assert.deepEqual(
    again.map(({ status, queueMs }) => [status, queueMs]),
    again.map(() => [200, 0]),
  );
});

test("a second gateway does not start on the data folder of one that runs, and does once that was killed [80.G19]", async () => {
  await withProgram({}, async (first, _port, folder) => {
    const again = (): RunningProgram => runProgram(["gateway", "--config", folder.config, "--log-format", "json"]);
    {
      await using second = again();
      const { code, err } = await second.end();
      assert.equal(code, 1);
      assert.match(err, /another gateway uses the data folder/);
    }
    first.kill("SIGKILL");
    await first.end();
    await using third = again();
    await third.ready();
  });
});
