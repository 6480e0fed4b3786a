import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { systemClock } from "../../src/kernel/clock.ts";
import type { SimEngine } from "../../src/sim-engine/sim-engine.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, errorCodeOf, startCall, type CallAnswer, type LiveCall } from "./support/calls.ts";
import {
  CLIENT_KEY,
  configText,
  OPERATOR_KEY,
  programFolder,
  reach,
  runProgram,
  type ProgramFolder,
  type RunningProgram,
} from "./support/program.ts";

// The configuration file of a gateway that runs as a process of its own, changed in every way in which files are changed.

let engine: SimEngine;

before(async () => {
  engine = await anEngine({ models: ["m", "n"] });
});
beforeEach(() => engine.resetLedger());
after(() => engine.close());

interface Served {
  readonly folder: ProgramFolder;
  readonly program: RunningProgram;
  readonly port: number;
  text(slots: number, more?: Record<string, unknown>): string;
  health(): Promise<ReturnType<typeof JSON.parse>>;
  call(options?: Parameters<typeof startCall>[1]): LiveCall;
}

const fileOf = (slots: number, more: Record<string, unknown> = {}): Record<string, unknown> => ({
  upstreams: [{ id: "u", models: ["m"], engine: "vllm", slots, endpoints: [{ url: engine.url }] }],
  ...more,
});

async function withServed(
  run: (served: Served) => Promise<void>,
  prepare: (folder: ProgramFolder) => Promise<void> = (folder) => folder.write(fileOf(4)),
): Promise<void> {
  await using folder = await programFolder();
  await prepare(folder);
  await using program = runProgram(["gateway", "--config", folder.config, "--log-format", "json"]);
  const port = await program.ready();
  await run({
    folder,
    program,
    port,
    text: (slots, more) => configText(folder.path, fileOf(slots, more)),
    health: async () =>
      (await fetch(`http://127.0.0.1:${port}/health`, { headers: { authorization: `Bearer ${OPERATOR_KEY}` } })).json(),
    call: (options) => startCall(reach(port), options),
  });
}

const slotsAre = (served: Served, slots: number): Promise<unknown> =>
  eventually(
    `slots ${slots}`,
    async () => (await served.health()).upstreams[0]?.slots,
    (seen) => seen === slots,
    30_000,
  );
const endsWhole = ({ status, whole, text }: CallAnswer): boolean =>
  status === 200 && whole && text.endsWith("data: [DONE]\n\n");
const running = async (served: Served, count: number, tokens = 60): Promise<LiveCall[]> => {
  const calls = Array.from({ length: count }, () => served.call({ body: aTask({ tokens, delayBetweenMs: 50 }) }));
  for (const one of calls) await one.received("data:");
  return calls;
};

test("a file that is written ten times in a second, once invalid and once empty, by writing in place and by renames, ends in the last valid text, and no running stream is touched [10.R6]", async () => {
  await withServed(async (served) => {
    const { folder } = served;
    const streams = await running(served, 3);
    for (let i = 1; i <= 10; i += 1) {
      const text = i === 4 ? "upstreams: [{id: u, slotss: 3}]\n" : i === 7 ? "" : served.text(i === 10 ? 9 : 20 + i);
      if (i % 2 === 0) await writeFile(folder.config, text);
      else {
        await writeFile(`${folder.config}.new`, text);
        await rename(`${folder.config}.new`, folder.config);
      }
      await systemClock.sleep(80, new AbortController().signal);
    }
    await slotsAre(served, 9);
    const { config, upstreams } = await served.health();
    assert.equal(config.ok, true);
    assert.equal(upstreams.length, 1);
    assert.deepEqual([upstreams[0].endpoints.length, upstreams[0].endpoints[0].in_flight], [1, 3]);
    for (const one of streams) assert.ok(endsWhole(await one.answer));
    assert.equal(engine.ledger().finished, 3);
  });
});

test("an invalid, an empty and a missing file keep the old configuration, say so in /health, log and metrics, and the next valid one is taken [10.R6]", async () => {
  await withServed(async (served) => {
    const { folder, program, port } = served;
    const refusal = async (pattern: RegExp): Promise<void> => {
      const { config, upstreams } = await eventually(
        "the refusal",
        served.health,
        ({ config: seen }) => seen.ok === false && pattern.test(seen.message),
        30_000,
      );
      assert.equal(config.ok, false);
      assert.equal(upstreams[0].slots, 4);
      assert.ok(endsWhole(await served.call({ body: aTask() }).answer));
    };
    await writeFile(folder.config, served.text(8).replace("slots: 8", "slots: -1"));
    await refusal(/slots/);
    await writeFile(folder.config, "");
    await refusal(/empty/);
    await rm(folder.config);
    await refusal(/no such file/);
    await program.said(/(config\.refused[\s\S]*){3}/, "err");
    const page = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    assert.match(page, /^yardmaster_config_reloads_total\{result="refused"\} 3$/m);
    await writeFile(folder.config, served.text(8));
    await slotsAre(served, 8);
    assert.equal((await served.health()).config.ok, true);
    await writeFile(folder.config, `${served.text(5)}listen: 127.0.0.1:1\n`);
    const twice = await eventually(
      "a key that stands there twice is refused",
      served.health,
      ({ config }) => config.ok === false,
      30_000,
    );
    assert.equal(twice.upstreams[0].slots, 8);
  });
});

test("a file behind a symbolic link whose folder is swapped, as orchestrators mount it, is seen [10.R6]", async () => {
  await withServed(
    async (served) => {
      const { folder } = served;
      const streams = await running(served, 2);
      await mkdir(join(folder.path, "v2"));
      await writeFile(join(folder.path, "v2/yardmaster.yaml"), served.text(7));
      await symlink("v2", join(folder.path, "data.new"));
      await rename(join(folder.path, "data.new"), join(folder.path, "..data"));
      await slotsAre(served, 7);
      for (const one of streams) assert.ok(endsWhole(await one.answer));
    },
    async (folder) => {
      await mkdir(join(folder.path, "v1"));
      await writeFile(join(folder.path, "v1/yardmaster.yaml"), configText(folder.path, fileOf(4)));
      await symlink("v1", join(folder.path, "..data"));
      await symlink("..data/yardmaster.yaml", folder.config);
    },
  );
});

test("SIGHUP re-reads the file and ends nothing; what only a start can change is named and waits for it", async () => {
  await withServed(async (served) => {
    const streams = await running(served, 2);
    await writeFile(served.folder.config, served.text(6, { listen: "127.0.0.1:1", audit: { max: 5 } }));
    served.program.kill("SIGHUP");
    await slotsAre(served, 6);
    served.program.kill("SIGHUP");
    await served.program.said(/config\.needs_restart.*listen/, "err");
    await served.program.said(/config\.needs_restart.*audit\.max/, "err");
    for (const one of streams) assert.ok(endsWhole(await one.answer));
    assert.ok(endsWhole(await served.call({ body: aTask() }).answer));
    served.program.kill("SIGTERM");
    assert.equal((await served.program.end()).code, 0);
  });
});

test("a key that leaves the file is refused at once, also on a connection that stays open, while its running stream ends normally [60.K1]", async () => {
  await withServed(async (served) => {
    const { folder, port } = served;
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const onSameConnection = (): Promise<{ status: number; reused: boolean }> =>
      new Promise((resolve, reject) => {
        const req = request(
          { port, path: "/v1/models", agent, headers: { authorization: `Bearer ${CLIENT_KEY}` } },
          (res) => {
            res.resume();
            res.on("end", () => resolve({ status: res.statusCode ?? 0, reused: req.reusedSocket }));
          },
        );
        req.on("error", reject);
        req.end();
      });
    assert.equal((await onSameConnection()).status, 200);
    const [stream] = await running(served, 1);
    const other = "another-key-0123456789abcdef0123456789abcdef";
    const hash = `sha256:${createHash("sha256").update(other).digest("hex")}`;
    await writeFile(
      folder.config,
      served.text(4, {
        auth: {
          keys: [
            { id: "other", hash },
            {
              id: "operator",
              role: "admin",
              hash: `sha256:${createHash("sha256").update(OPERATOR_KEY).digest("hex")}`,
            },
          ],
        },
      }),
    );
    await eventually(
      "the new key",
      async () =>
        (await fetch(`http://127.0.0.1:${port}/v1/models`, { headers: { authorization: `Bearer ${other}` } })).status,
      (status) => status === 200,
      30_000,
    );
    assert.deepEqual(await onSameConnection(), { status: 401, reused: true });
    const refused = await served.call({ body: aTask() }).answer;
    assert.deepEqual([refused.status, errorCodeOf(refused.text)], [401, "UNAUTHORIZED"]);
    assert.ok(stream !== undefined && endsWhole(await stream.answer));
    assert.equal(engine.ledger().opened, 1);
    agent.destroy();
  });
});
