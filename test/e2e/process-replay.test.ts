import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { RawServer, type RawCall } from "../../src/testing/raw-server.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { call, startCall, type CallOptions } from "./support/calls.ts";
import { programFolder, reach, runProgram } from "./support/program.ts";
import { chatBody, numbered } from "./support/replay-world.ts";

// What idempotency keys are worth when gateways are killed, with the program as its users run it.

let engine: RawServer;
let answer: (call: RawCall, count: number) => void;
before(async () => {
  engine = await RawServer.listen({ onCall: (got) => answer(got, engine.calls.length) });
});
after(() => engine[Symbol.asyncDispose]());

const file = (more: Record<string, unknown> = {}): Record<string, unknown> => ({
  ...more,
  upstreams: [
    { id: "u", models: ["m"], health: "passive", slots: 8, endpoints: [{ url: `http://127.0.0.1:${engine.port}` }] },
  ],
});
const keyed = (key: string): CallOptions => ({ body: chatBody(), headers: { "idempotency-key": key } });

test("a gateway that was killed and started again gives the answers of before [20.I1]", async () => {
  answer = numbered;
  await using folder = await programFolder(file());
  await using first = runProgram(["gateway", "--config", folder.config]);
  const port = await first.ready();
  const original = await call(reach(port), keyed("kept"));
  assert.equal(original.status, 200);
  await eventually(
    "the answer to be kept",
    async () => (await fetch(`http://127.0.0.1:${port}/metrics`)).text(),
    (page) => /^yardmaster_replies\{purpose="idempotency"\} 1$/m.test(page),
  );
  const asked = engine.calls.length;
  first.kill("SIGKILL");
  await first.end();
  await using second = runProgram(["gateway", "--config", folder.config]);
  const again = await call(reach(await second.ready()), keyed("kept"));
  assert.equal(again.headers["idempotent-replayed"], "true");
  assert.equal(again.text, original.text);
  assert.equal(engine.calls.length, asked);
});

test("who waits for a gateway that is killed is tried once its lease has passed, and by one gateway alone [20.I1 80.I9]", async () => {
  await using server = await OwnRedis.start();
  const shared = file({
    coordination: "redis",
    redis_url: server.url,
    coordination_timeout_ms: 2_000,
    idempotency: { wait_s: 60 },
  });
  await using folder = await programFolder(shared);
  await using other = await programFolder(shared);
  await using doomed = runProgram(["gateway", "--config", folder.config]);
  await using survivor = runProgram(["gateway", "--config", other.config]);
  const [one, two] = [reach(await doomed.ready()), reach(await survivor.ready())];
  const begun = Promise.withResolvers<void>();
  answer = () => begun.resolve(); // Answers never.
  const before = engine.calls.length;
  startCall(one, keyed("orphan"));
  await begun.promise;
  const waiting = Array.from({ length: 5 }, () => startCall(two, keyed("orphan")));
  await Promise.all(waiting.map((call_) => call_.sent()));
  answer = numbered;
  doomed.kill("SIGKILL");
  const answers = await Promise.all(waiting.map((waits) => waits.answer));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
  assert.equal(engine.calls.length - before, 2);
  for (const { tookMs } of answers) assert.ok(tookMs < 25_000, `${tookMs} ms`);
});
