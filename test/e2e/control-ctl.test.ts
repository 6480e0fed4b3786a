import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { cliCommands } from "../../src/cli/commands.ts";
import { dispatch } from "../../src/cli/dispatch.ts";
import { statusView } from "../../src/contract/control-api.ts";
import { captureIo } from "../../src/testing/capture-io.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { programFolder, type ProgramFolder, runProgram, type RunningProgram } from "./support/program.ts";

// The role as a process, and the commands against it.

let folder: ProgramFolder;
let program: RunningProgram;
let url: string;
let dataDir: string;
before(async () => {
  folder = await programFolder();
  dataDir = join(folder.path, "data");
  program = runProgram(["control", "--listen", "127.0.0.1:0", "--data-dir", dataDir], { cwd: folder.path });
  url = `http://127.0.0.1:${await program.ready()}`;
});
after(async () => {
  await program[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

interface Told {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function ctl(args: readonly string[], env: Record<string, string> = {}): Promise<Told> {
  const { io, output } = captureIo({ YARDMASTER_URL: url, ...env });
  const withFolder = args.includes("--data-dir") || args.includes("check") ? [] : ["--data-dir", dataDir];
  const code = await dispatch(["ctl", ...args, ...withFolder], cliCommands, "0", io);
  return { code, ...output() };
}

async function catalogFile(...models: readonly string[]): Promise<string> {
  const path = join(folder.path, "catalog.yaml");
  const lines = models.map((name) => `  - {name: ${name}, profiles: [{engine: sim}]}\n`);
  await writeFile(path, `models:${models.length === 0 ? " []" : ""}\n${lines.join("")}`);
  return path;
}

test("on one machine `ctl` needs neither address nor key beside the data folder, and `status` tells what there is", async () => {
  const told = await eventually(
    "the lead",
    () => ctl(["status"]),
    ({ out }) => out.includes("this one"),
  );
  assert.equal(told.code, 0);
  assert.match(told.out, /^leader {4}127\.0\.0\.1:0#[0-9a-f]{12} \(epoch 1\), this one$/m);
  assert.match(told.out, /^store {5}sqlite$/m);
  const json = await ctl(["status", "-o", "json"]);
  assert.equal(statusView.parse(JSON.parse(json.out)).leader.role, "leading");
  assert.equal((await readFile(join(dataDir, "operator.key"))).length > 40, true);
});

test("a catalog is applied, compared, listed, brought back and printed [40.C1]", async () => {
  const path = await catalogFile("a", "b");
  const applied = await ctl(["catalog", "apply", path]);
  assert.deepEqual([applied.code, applied.out.split("\n", 1)[0]], [0, "applied as revision 1"]);
  assert.match((await ctl(["catalog", "apply", path])).out, /nothing changed/);
  const more = await catalogFile("a", "b", "c");
  const diff = await ctl(["catalog", "diff", more]);
  assert.deepEqual([diff.code, /^\+ +c$/m.test(diff.out)], [0, true]);
  assert.equal((await ctl(["catalog", "apply", more, "--if-revision", "1"])).code, 0);
  const late = await ctl(["catalog", "apply", await catalogFile("a", "b", "c", "d"), "--if-revision", "1"]);
  assert.deepEqual([late.code, /CATALOG_CHANGED/.test(late.err)], [1, true]);
  assert.match((await ctl(["catalog", "history"])).out, /^2 .* local-operator .* api/m);
  const shown = await ctl(["catalog", "show", "--revision", "1"]);
  assert.equal(
    shown.out,
    "models:\n  - {name: a, profiles: [{engine: sim}]}\n  - {name: b, profiles: [{engine: sim}]}\n",
  );
  const held = await ctl(["catalog", "rollback", "1"]);
  assert.equal(held.code, 1);
  const [, again = ""] = /to do it all the same: yardmaster ctl (.*)/.exec(held.err) ?? [];
  assert.equal((await ctl(again.split(" "))).code, 0);
  assert.match((await ctl(["catalog", "show"])).out, /name: b/);
});

test("mistakes of a catalog are told with file, line, key and the nearest word, with and without a control plane [40.C4]", async () => {
  const path = join(folder.path, "bad.yaml");
  await writeFile(
    path,
    "models:\n  - name: a\n    profiles:\n      - engine: vllm\n        gpus: {}\n        source: /w\n",
  );
  for (const command of ["check", "apply", "diff"]) {
    const told = await ctl(["catalog", command, path]);
    assert.equal(told.code, command === "check" ? 2 : 1, command);
    assert.ok(told.err.includes(`${path}:4:9: models[0].profiles[0].gpu: is missing`), told.err);
    assert.ok(told.err.includes("did you mean `gpu`?"));
  }
  assert.equal((await ctl(["catalog", "check", await catalogFile("a")])).code, 0);
});

test("lists say - for what is not known, and a placement is explained", async () => {
  await ctl(["catalog", "apply", await catalogFile("a", "b")]);
  for (const what of ["nodes", "gpus", "models", "replicas", "events", "leader"]) {
    const told = await ctl([what]);
    assert.equal(told.code, 0, told.err);
    assert.match(told.out, /^[A-Z]+ /);
  }
  await eventually(
    "what a pass found",
    async () => (await ctl(["models"])).out,
    (out) => /^a +waiting +0 +0 +1 +1 +1 +50 +there is no node$/m.test(out),
  );
  assert.equal((await ctl(["explain-placement", "a"])).out, "there is no node\n");
  const events = JSON.parse((await ctl(["events", "--kind", "catalogApplied", "-o", "json"])).out) as {
    events: { kind: string }[];
  };
  assert.ok(events.events.length > 0 && events.events.every(({ kind }) => kind === "catalogApplied"));
});

test("a gateway's credential is printed once, listed without it, and taken back [80.C38]", async () => {
  const told = await ctl(["gateways", "enrol", "gw-1"]);
  const [, credential = ""] = /^ {4}(ymg_\S+)$/m.exec(told.out) ?? [];
  assert.ok(credential.length > 40, told.out);
  assert.ok(!program.err.includes(credential));
  assert.match((await ctl(["gateways", "credentials"])).out, /^gw-1 +local-operator +20\d\d-/m);
  assert.match((await ctl(["gateways"])).out, /^GATEWAY +VERSION +SILENT +FEED +WAITING +IN FLIGHT$/m);
  for (const file of ["control.db", "control.db-wal"])
    if (existsSync(join(dataDir, file)))
      assert.ok(!(await readFile(join(dataDir, file), "latin1")).includes(credential));
  assert.equal((await ctl(["gateways", "revoke", "gw-1"])).code, 0);
  assert.deepEqual(
    [(await ctl(["gateways", "revoke", "gw-1"])).code, (await ctl(["gateways", "enrol", "no blank"])).code],
    [1, 1],
  );
});

test("what has no log and no old copy is refused with the reason", async () => {
  const logs = await ctl(["logs", "r-none"]);
  assert.deepEqual([logs.code, /SHARD_UNKNOWN/.test(logs.err)], [1, true]);
  const confirm = await ctl(["leader", "confirm-restored"]);
  assert.deepEqual([confirm.code, /nothing to confirm/.test(confirm.err)], [1, true]);
});

test("a token to enrol a node is printed once, and stands nowhere else [80.C39]", async () => {
  const told = await ctl(["nodes", "enrol", "rack-1"]);
  const [, token = ""] = /^ {4}(ymt_\S+)$/m.exec(told.out) ?? [];
  assert.ok(token.length > 40, told.out);
  assert.ok(!program.err.includes(token));
  for (const file of ["control.db", "control.db-wal"])
    if (existsSync(join(dataDir, file))) assert.ok(!(await readFile(join(dataDir, file), "latin1")).includes(token));
});

test("exit codes: 1 refused, 2 usage, 3 not reached, and nothing on standard output then [40.V1]", async () => {
  assert.equal((await ctl(["explain-placement", "none"])).code, 1);
  assert.equal((await ctl(["cordon", "none"])).code, 1);
  for (const args of [
    ["retry", "none"],
    ["drain", "none"],
    ["restart", "none"],
    ["rollout", "none"],
    ["rollout", "--outdated"],
    ["scale", "none", "1"],
    ["scale", "a", "5"],
    ["restart", "none", "--max-surge", "0"],
    ["restart", "none", "--watch", "-o", "json"],
  ]) {
    const { code, out, err } = await ctl(args);
    assert.deepEqual([code, out, /refused \(4\d\d [A-Z_]+\)/.test(err)], [1, "", true], args.join(" "));
  }
  for (const args of [
    ["cordon"],
    ["explain-placement", "x/../a"],
    ["retry", "x/.."],
    ["restart"],
    ["restart", "r1", "--max-surge", "x"],
    ["rollout"],
    ["rollout", "a", "--outdated"],
    ["scale", "a"],
    ["scale", "a", "-1"],
    ["scale", "a", "many"],
    ["status", "-o", "xml"],
    ["catalog", "apply", "no-such-file"],
    ["catalog", "rollback", "x"],
    ["nodez"],
  ])
    assert.equal((await ctl(args)).code, 2, args.join(" "));
  assert.equal((await ctl(["status"], { YARDMASTER_URL: "http://127.0.0.1:9" })).code, 3);
  assert.equal((await ctl(["status"], { YARDMASTER_KEY: "wrong" })).code, 1);
});

test("a stop hands the lead over, removes the local key and ends with 0 [40.L5]", async () => {
  program.kill("SIGTERM");
  const { code, err } = await program.end();
  assert.equal(code, 0, err);
  assert.ok(!existsSync(join(dataDir, "operator.key")));
  await using next = runProgram(["control", "--listen", "127.0.0.1:0", "--data-dir", dataDir], { cwd: folder.path });
  url = `http://127.0.0.1:${await next.ready()}`;
  const told = await eventually(
    "the lead",
    () => ctl(["leader"]),
    ({ out }) => out.includes("leading"),
  );
  assert.match(told.out, / 2 /);
});

test("a configuration with a mistake ends the start with 2 and names it", async () => {
  const path = join(folder.path, "wrong.yaml");
  await writeFile(path, "control: {lease: 10}\n");
  const { code, err } = await runProgram(["control", "--config", path]).end();
  assert.equal(code, 2);
  assert.match(err, /control\.lease: is not a known key/);
  await writeFile(path, "control: {listen: 0.0.0.0:0}\n");
  const open = await runProgram(["control", "--config", path]).end();
  assert.deepEqual([open.code, /control\.listen/.test(open.err)], [2, true]);
});
