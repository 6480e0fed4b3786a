import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { dispatch } from "../../src/cli/dispatch.ts";
import { ctlVerify } from "../../src/cli/ctl-verify.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import { freePort } from "../../src/testing/servers/server-process.ts";
import { OwnRedis } from "../../src/testing/servers/redis-server.ts";
import { anEngine } from "./support/an-engine.ts";
import { CLIENT_KEY, OPERATOR_KEY } from "./support/program.ts";
import { aTask, startCall } from "./support/calls.ts";
import { onlyUpstream } from "./support/health.ts";
import { SupervisedGateway } from "./support/supervised-gateway.ts";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./support/test-gateway.ts";

// The acceptance sequence against real gateways: it passes where all is well, and each of its steps fails where it should.

const startEngine = (): Promise<SimEngine> => anEngine({ decodeTps: 50 });
const upstream = (engine: Pick<SimEngine, "url">, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  id: "u",
  models: ["m"],
  engine: "vllm",
  slots: 16,
  batch_max: 8,
  endpoints: [{ url: engine.url }],
  ...more,
});

interface Verified {
  readonly code: number;
  readonly out: string;
  /** Of a step: "passed", "failed" or "notRun", and its words. */
  step(name: string): string;
}

async function verify(url: string, key: string, args: readonly string[]): Promise<Verified> {
  const { io, output } = captureIo({ YARDMASTER_KEY: key });
  const code = await dispatch(
    ["ctl", "verify", "--json", "--tokens", "16", "--url", url, ...args],
    [ctlVerify],
    "0",
    io,
  );
  const { out } = output();
  const { steps } = JSON.parse(out) as {
    steps: readonly { step: string; outcome: { kind: string; figure?: string; why?: string } }[];
  };
  return {
    code,
    out,
    step: (name) => {
      const outcome = steps.find(({ step }) => step === name)?.outcome;
      return `${outcome?.kind}: ${outcome?.figure ?? outcome?.why}`;
    },
  };
}

async function withGateway(
  options: (engine: SimEngine) => TestGatewayOptions,
  use: (gateway: TestGateway, engine: SimEngine, run: (...args: string[]) => Promise<Verified>) => Promise<void>,
): Promise<void> {
  await using engine = await startEngine();
  const gateway = await startTestGateway(options(engine));
  try {
    await use(gateway, engine, (...args) => verify(gateway.url, gateway.keys.admin, args));
  } finally {
    await gateway.stop();
  }
}

test("against a good gateway alone, what can be run passes with its figures, and what can't is not run and never passed [20.V1]", async () => {
  await withGateway(
    (engine) => ({ upstreams: [upstream(engine)] }),
    async (_gateway, engine, run) => {
      const verified = await run();
      assert.equal(verified.code, 0, verified.out);
      assert.match(verified.step("health"), /^passed: version .*, coordination local \(local\), 1 of 1 upstreams/);
      assert.match(verified.step("a call"), /^passed: m answered in \d+ ms, after 0 ms/);
      assert.match(
        verified.step("batch backlog"),
        /^passed: 24 batch calls: 8 at once of 8 allowed, 16 waiting; 4 interactive calls: waited 0 ms/,
      );
      assert.match(verified.step("slots"), /^passed: 1 slots held while a call ran, 0 \d+ ms after it/);
      assert.match(verified.step("a job"), /^passed: job_\S+ completed in \d+ ms, attempts 1/);
      for (const step of ["restart", "redis paused", "redis back", "switch"])
        assert.match(verified.step(step), /^notRun: /, step);
      assert.equal((await run("--all")).code, 1);
      // What it says of the backlog is what the engine saw.
      assert.equal(engine.ledger().inSlotPeak, 12);
    },
  );
});

test("health fails where no upstream can take work, and what needs one is not run [20.V1]", async () => {
  await withGateway(
    () => ({ upstreams: [upstream({ url: "http://127.0.0.1:9" }, { endpoints: [] })] }),
    async (_gateway, _engine, run) => {
      const verified = await run();
      assert.equal(verified.code, 1);
      assert.match(verified.step("health"), /^failed: .*503 UPSTREAM_UNAVAILABLE/);
      assert.match(verified.step("a call"), /^notRun: /);
    },
  );
});

test("a model that is named and that the gateway has not is a failure, and no reason to run nothing and be content [20.V1]", async () => {
  await withGateway(
    (engine) => ({ upstreams: [upstream(engine)] }),
    async (_gateway, _engine, run) => {
      const verified = await run("--model", "qwen");
      assert.equal(verified.code, 1, verified.out);
      assert.match(verified.step("health"), /^failed: version .*; no upstream of kind openai has the model qwen$/);
      assert.match(verified.step("a call"), /^notRun: /);
    },
  );
});

test("a gateway that is not there fails health, and nothing else is run [20.V1]", async () => {
  const verified = await verify(`http://127.0.0.1:${await freePort()}`, "k", []);
  assert.equal(verified.code, 1);
  assert.match(verified.step("health"), /^failed: .*ECONNREFUSED/);
  assert.match(verified.step("switch"), /^notRun: the gateway's state could not be read/);
});

const broken: readonly (readonly [step: string, nth: number, says: RegExp])[] = [
  ["a call", 1, /^failed: answered 500/],
  ["batch backlog", 20, /^failed: 1 batch calls failed \(500\) — 24 batch calls: 8 at once of 8 allowed, 16 waiting/],
  // One call, 24 of batch and 4 of people come before it.
  ["slots", 30, /^failed: answered 500/],
  ["a job", 31, /^failed: .*failed \(/],
];
for (const [step, nth, says] of broken) {
  test(`${step} fails where the engine fails it [20.V1]`, async () => {
    await withGateway(
      (engine) => ({ upstreams: [upstream(engine)], file: { jobs: { max_attempts: 1 } } }),
      async (_gateway, engine, run) => {
        engine.script({ match: { nth }, do: { status: 500, body: { error: { message: "broken on purpose" } } } });
        const verified = await run();
        assert.equal(verified.code, 1);
        assert.match(verified.step(step), says);
        for (const other of broken)
          if (other[0] !== step && !(step === "a call" && other[0] === "batch backlog"))
            assert.match(verified.step(other[0]), /^passed: /, `${other[0]} beside ${step}`);
      },
    );
  });
}

test("the backlog fails where others use the upstream, and a key without the class says so [20.V1]", async () => {
  await withGateway(
    (engine) => ({
      upstreams: [upstream(engine)],
      keys: [{ id: "people-only", key: "CANARY-people-0123456789abcdef", role: "operator", classes: ["interactive"] }],
    }),
    async (gateway, _engine, run) => {
      const other = startCall(gateway, { body: aTask({ hangAfterTokens: 1 }) });
      await other.received("data:");
      assert.match((await run()).step("batch backlog"), /^failed: others use the upstream u/);
      other.leave();
      await eventually(
        "the slot to be free",
        () => onlyUpstream(gateway),
        (seen) => seen.in_use.interactive === 0,
      );
      const verified = await verify(gateway.url, "CANARY-people-0123456789abcdef", []);
      assert.match(verified.step("batch backlog"), /^failed: .*24 batch calls failed \(403 CLASS_FORBIDDEN\)/);
    },
  );
});

test("with a Redis, a restart and a switch at hand every step passes: the job outlives the restart, calls the pause, and the record the other mode [20.V1 20.M1]", async () => {
  await using engine = await startEngine();
  await using redis = await OwnRedis.start();
  const clientKey = join(await mkdtemp(join(tmpdir(), "yardmaster-verify-")), "client.key");
  await writeFile(clientKey, CLIENT_KEY);
  await using gateway = await SupervisedGateway.start({
    coordination: "redis",
    redis_url: redis.url,
    upstreams: [upstream(engine)],
  });
  const verified = await verify(gateway.url, OPERATOR_KEY, [
    ...["--all", "--client-key-file", clientKey],
    ...["--restart-command", gateway.restartCommand],
    ...["--switch-command", gateway.switchCommand],
    ...["--redis-pid", String(redis.pid)],
  ]);
  assert.equal(verified.code, 0, verified.out);
  assert.match(verified.step("slots"), /^passed: [1-9]\d* leases held while a call ran, 0 \d+ ms after it/);
  assert.match(verified.step("restart"), /^passed: job_\S+ completed/);
  assert.match(verified.step("redis paused"), /^passed: 8 of 8 calls succeeded.*noticed/);
  assert.match(verified.step("redis back"), /^passed: shared again/);
  assert.match(
    verified.step("switch"),
    /^passed: redis to local .* JOB_IN_OTHER_STORE under local, completed again under redis/,
  );
});

test("each step with the Redis fails where it should: another process paused, a Redis that is never let go on, commands that do nothing [20.V1 20.M1]", async () => {
  await using redis = await OwnRedis.start();
  const bystander = spawn("sleep", ["600"]);
  try {
    await withGateway(
      (engine) => ({ upstreams: [upstream(engine)], file: { coordination: "redis", redis_url: redis.url } }),
      async (_gateway, _engine, run) => {
        const wrong = await run(
          ...["--redis-pid", String(bystander.pid)],
          ...["--restart-command", "true", "--switch-command", "true"],
        );
        assert.equal(wrong.code, 1);
        assert.match(wrong.step("redis paused"), /^failed: 8 of 8 calls succeeded.*still says that all is shared/);
        assert.match(wrong.step("restart"), /^failed: the gateway was not restarted/);
        assert.match(wrong.step("switch"), /^failed: the mode stayed redis/);
        const stuck = await run("--pause-command", `kill -STOP ${redis.pid}`, "--resume-command", "true");
        assert.match(stuck.step("redis paused"), /^passed: /);
        assert.match(stuck.step("redis back"), /^failed: not shared again/);
        redis.resume();
      },
    );
  } finally {
    bystander.kill("SIGKILL");
  }
});

test("wrong options are refused before anything is asked [20.V1]", async () => {
  const refused = async (...args: string[]): Promise<number> =>
    dispatch(["ctl", "verify", "--url", "http://127.0.0.1:9", ...args], [ctlVerify], "0", captureIo().io);
  assert.equal(await refused("--tokens", "0"), 2);
  assert.equal(await refused("--redis-pid", "1"), 2);
  assert.equal(await refused("--pause-command", "x"), 2);
  assert.equal(await refused("--redis-pid", "99", "--pause-command", "x", "--resume-command", "y"), 2);
});
