import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../../src/testing/wait-for.ts";
import { anEngine } from "./support/an-engine.ts";
import { aTask, startCall } from "./support/calls.ts";
import type { HealthPage } from "./support/health.ts";
import { configText, programFolder, reach, runProgram, RunningProgram } from "./support/program.ts";

// What a newcomer sees: `up` in an empty folder, the line that it prints, and what it leaves behind.

const ROOT = join(import.meta.dirname, "../..");
/** Real engines have their usual ports; a newcomer's machine in these tests has none, unless one runs here by chance. */
const UP = ["up", "--listen", "127.0.0.1:0"];

function shell(
  line: string,
  cwd: string,
): Promise<{ readonly code: number | null; readonly out: string; readonly err: string }> {
  return new Promise((resolve) => {
    const child = execFile("/bin/sh", ["-c", line], { cwd, timeout: 60_000 }, (_error, out, err) =>
      resolve({ code: child.exitCode, out, err }),
    );
  });
}

/** Where the only replica runs, as its gateway shows it to an operator. */
async function engineOf({ port, dataDir }: { readonly port: number; readonly dataDir: string }): Promise<string> {
  const key = readFileSync(join(dataDir, "operator.key"), "utf8").trim();
  const answer = await fetch(`http://127.0.0.1:${port}/health`, { headers: { authorization: `Bearer ${key}` } });
  const page = (await answer.json()) as HealthPage;
  return page.upstreams[0]?.endpoints[0]?.url ?? assert.fail("no engine");
}

const curlLine = (out: string): string => /^curl .*$/m.exec(out)?.[0] ?? assert.fail(`no curl line in: ${out}`);

const ctl = (words: string): string => `"${join(ROOT, "bin/yardmaster")}" ctl ${words}`;

/** Whether something listens there. */
const isOpen = (url: string): Promise<boolean> =>
  fetch(`${url}/health`).then(
    (answer) => answer.text().then(() => true),
    () => false,
  );

test("up in an empty folder writes a first configuration and a first catalog, says that its engine is simulated, prints a line that gives an answer when it is pasted into a shell, is found by ctl, and ends with 0 and without its engine on Ctrl-C", async () => {
  await using folder = await programFolder();
  await using program = runProgram(UP, { cwd: folder.path });
  const port = await program.ready();
  await program.said(/Ctrl-C drains and stops/);
  assert.match(
    program.out.split("\n")[0] ?? "",
    /^yardmaster up ready listen=127\.0\.0\.1:\d+ board=\S+ version=\d+\.\d+\.\d+\S*$/,
  );
  assert.match(program.out, /SIMULATED/);
  assert.doesNotMatch(program.err, /WARN|ERROR/);
  assert.match(program.out, new RegExp(`config +${folder.config}.*written just now`));
  assert.match(program.out, new RegExp(`catalog +${join(folder.path, "catalog.yaml")}.*written just now`));
  for (const file of [folder.config, join(folder.path, "catalog.yaml")])
    assert.equal(statSync(file).mode & 0o777, 0o600);

  const answered = await shell(curlLine(program.out), folder.path);
  assert.equal(answered.code, 0, answered.err);
  assert.match(answered.out, /^data: \{/);
  assert.match(answered.out, /data: \[DONE\]\n\n$/);
  const models = await shell(
    curlLine(program.out)
      .replace("/v1/chat/completions", "/v1/models")
      .replace(/ -H "Content-Type.*$/, ""),
    folder.path,
  );
  assert.match(models.out, /"sim-model"/);

  const key = /Bearer (\S+?)"/.exec(program.out)?.[1] ?? "";
  assert.ok(key.length > 40);
  for (const kept of [folder.config, join(folder.path, "data/operator.key")])
    assert.ok(!readFileSync(kept, "utf8").includes(key), `${kept} holds the one-time key`);
  assert.equal(statSync(join(folder.path, "data/operator.key")).mode & 0o077, 0);
  const audit = await shell(ctl("audit query --json"), folder.path);
  assert.equal(audit.code, 0, audit.err);
  assert.match(audit.out, /"outcome":"ok"/);
  const replicas = await shell(ctl("replicas"), folder.path);
  assert.match(replicas.out, /sim-model +sim +ready/, replicas.err);
  const engine = await engineOf({ port, dataDir: join(folder.path, "data") });
  assert.equal(await isOpen(engine), true);

  const running = startCall(
    { ...reach(port), keys: { ...reach(port).keys, client: key } },
    { body: aTask({ tokens: 30, delayBetweenMs: 50 }, { model: "sim-model" }) },
  );
  await running.received("data:");
  program.kill("SIGINT");
  const last = await running.answer;
  assert.deepEqual([last.whole, last.text.endsWith("data: [DONE]\n\n")], [true, true]);
  const ended = await program.end();
  assert.deepEqual([ended.code, ended.signal], [0, null]);
  assert.doesNotMatch(ended.err, /WARN|ERROR/);
  assert.equal(await isOpen(engine), false);
  for (const left of ["operator.key", "addresses.json"])
    assert.equal(existsSync(join(folder.path, "data", left)), false);

  const written = readFileSync(folder.config, "utf8");
  writeFileSync(folder.config, `${written}# mine\n`);
  await using second = runProgram(UP, { cwd: folder.path });
  await second.ready();
  await second.said(/Ctrl-C drains and stops/);
  assert.equal(readFileSync(folder.config, "utf8"), `${written}# mine\n`);
  assert.doesNotMatch(second.out, /written just now/);
  // It is a start like the first, not one after a failure.
  assert.match((await shell(ctl("models"), folder.path)).out, /sim-model/);
  assert.doesNotMatch((await shell(ctl("status"), folder.path)).out, /failed/);
  const nextKey = /Bearer (\S+?)"/.exec(second.out)?.[1] ?? "";
  assert.notEqual(nextKey, key);
  const stale = await shell(curlLine(second.out).replace(nextKey, key), folder.path);
  assert.match(stale.out, /UNAUTHORIZED/);
  assert.match((await shell(curlLine(second.out), folder.path)).out, /\[DONE\]/);
  second.kill("SIGINT"); // It takes its engine along.
  assert.equal((await second.end()).code, 0);
});

test("the first configuration is valid as it is, and stays so when its example is put in force", async () => {
  await using folder = await programFolder();
  await using program = runProgram(UP, { cwd: folder.path });
  await program.ready();
  program.kill("SIGINT");
  await program.end();
  const check = `"${join(ROOT, "bin/yardmaster")}" config check yardmaster.yaml`;
  assert.equal((await shell(check, folder.path)).code, 0);
  const text = readFileSync(folder.config, "utf8");
  const example = text.replace(/\nupstreams: \[\]\n/, "\n").replaceAll(/^# (upstreams:|  .*)$/gm, "$1");
  writeFileSync(folder.config, example);
  const checked = await shell(check, folder.path);
  assert.equal(checked.code, 0, checked.err);
  assert.match(readFileSync(folder.config, "utf8"), /^ +- id: my-vllm$/m);
});

test("with upstreams in the file the demonstration engine serves nothing, and the printed line asks for a model of the file", async () => {
  await using engine = await anEngine({ models: ["my-model"], slots: 4 });
  await using folder = await programFolder({
    upstreams: [{ id: "mine", models: ["my-model"], engine: "vllm", slots: 4, endpoints: [{ url: engine.url }] }],
  });
  await using program = runProgram(UP, { cwd: folder.path });
  const port = await program.ready();
  await program.said(/Ctrl-C drains and stops/);
  assert.doesNotMatch(program.out, /SIMULATED/);
  assert.match(program.out, /engine +mine \(1 endpoints?\)/);
  assert.match((await shell(curlLine(program.out), folder.path)).out, /\[DONE\]/);
  assert.equal(engine.ledger().finished, 1);
  const other = await startCall(reach(port), { body: aTask({}, { model: "sim-model" }) }).answer;
  assert.equal(other.status, 404);
  program.kill("SIGINT"); // It takes its engines along.
  assert.equal((await program.end()).code, 0);
});

test("while up runs, an upstream that is written into the file and a model that is written into the catalog are served without a restart, beside what was there", async () => {
  await using engine = await anEngine({ models: ["my-model"], slots: 4 });
  await using folder = await programFolder({ upstreams: [] });
  await using program = runProgram(UP, { cwd: folder.path });
  const port = await program.ready();
  assert.equal((await startCall(reach(port), { body: aTask({}, { model: "sim-model" }) }).answer).status, 200);
  writeFileSync(
    folder.config,
    configText(folder.path, {
      upstreams: [{ id: "mine", models: ["my-model"], engine: "vllm", slots: 4, endpoints: [{ url: engine.url }] }],
    }),
  );
  await eventually(
    "the new model",
    async () => (await startCall(reach(port), { body: aTask({}, { model: "my-model" }) }).answer).status,
    (status) => status === 200,
    30_000,
  );
  const catalog = join(folder.path, "catalog.yaml");
  const text = readFileSync(catalog, "utf8");
  writeFileSync(
    catalog,
    text.replace(/^( {2}- name: )sim-model$/m, "$1other-model\n    profiles: [{engine: sim}]\n$1sim-model"),
  );
  for (const model of ["other-model", "sim-model"])
    await eventually(
      model,
      async () => (await startCall(reach(port), { body: aTask({}, { model }) }).answer).status,
      (status) => status === 200,
      30_000,
    );
  program.kill("SIGINT"); // It takes its engines along.
  assert.equal((await program.end()).code, 0);
});

test("a port that is taken, a configuration that is not there and one that is wrong end the start with one clear message and the right code", async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  const { port } = taken.address() as AddressInfo;
  try {
    for (const role of ["up", "gateway"]) {
      await using folder = await programFolder({
        upstreams:
          role === "up" ? [] : [{ id: "u", models: ["m"], slots: 1, endpoints: [{ url: "http://127.0.0.1:9" }] }],
      });
      await using program = runProgram([role, "--listen", `127.0.0.1:${port}`], { cwd: folder.path });
      const ended = await program.end();
      assert.equal(ended.code, 1);
      assert.equal(ended.out, "");
      assert.equal(ended.err.trimEnd().split("\n").length, 1, ended.err);
      assert.match(
        ended.err,
        new RegExp(`EADDRINUSE.*127\\.0\\.0\\.1:${port}|127\\.0\\.0\\.1:${port}.*(in use|EADDRINUSE)`),
      );
      assert.doesNotMatch(ended.err, /at .*\.ts:\d+/);
    }
    await using empty = await programFolder();
    await using missing = runProgram(["gateway", "--config", "none.yaml"], { cwd: empty.path });
    const gone = await missing.end();
    assert.deepEqual([gone.code, gone.out], [2, ""]);
    assert.match(gone.err, /none\.yaml.*there is no such file/);
    writeFileSync(empty.config, "upstream:\n  - id: u\n");
    for (const role of ["up", "gateway"]) {
      await using program = runProgram([role, "--listen", "127.0.0.1:0"], { cwd: empty.path });
      const wrong = await program.end();
      assert.deepEqual([wrong.code, wrong.out], [2, ""]);
      assert.match(
        wrong.err,
        /^yardmaster\.yaml:1:1: upstream: is not a known key\n +hint: did you mean `upstreams`\?$/m,
      );
    }
  } finally {
    taken.close();
  }
});

test("npm start is the same first run", async () => {
  await using folder = await programFolder();
  await using program = new RunningProgram(
    "npm",
    [
      "start",
      "--prefix",
      ROOT,
      "--",
      "--listen",
      "127.0.0.1:0",
      "--config",
      join(folder.path, "mine.yaml"),
      "--data-dir",
      join(folder.path, "data"),
    ],
    { cwd: folder.path, detached: true },
  );
  writeFileSync(join(folder.path, "mine.yaml"), "upstreams: []\n");
  await program.ready();
  await program.said(/Ctrl-C drains and stops/);
  assert.match((await shell(curlLine(program.out), folder.path)).out, /\[DONE\]/);
  program.killGroup("SIGINT");
  await program.end();
});
