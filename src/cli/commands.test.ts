import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { parseConfigText } from "../config/load-config.ts";
import type { Env } from "../contract/resolve-config.ts";
import { hashKey } from "../contract/key-hash.ts";
import { captureIo } from "../testing/capture-io.ts";
import { cliCommands } from "./commands.ts";
import { dispatch } from "./dispatch.ts";
import { referencePages } from "./reference-docs.ts";

const run = async (
  argv: readonly string[],
  env: Env = {},
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> => {
  const { io, output } = captureIo(env);
  const code = await dispatch(argv, cliCommands, "0", io);
  return { code, ...output() };
};

async function aFile(text: string): Promise<string> {
  const path = join(await mkdtemp(join(tmpdir(), "yardmaster-cli-")), "yardmaster.yaml");
  await writeFile(path, text);
  return path;
}

const VALID = `upstreams:
  - {id: a, models: [m], slots: 16, key_env: ENGINE_KEY, endpoints: [{url: "http://h:1"}]}
redis_url: redis://u:CANARY-pw@h:6379/0
database_url: postgres://u:CANARY-pw@h/d?sslpassword=CANARY-pw
`;

test("config check exits 0 for a valid file and 2 for another, JSON alone on stdout where asked for", async () => {
  const good = await aFile(VALID);
  const bad = await aFile("upstream: []\n");
  const plain = await run(["config", "check", good]);
  assert.equal(plain.code, 0);
  assert.match(plain.out, /valid; upstreams: 1, keys: 0/);
  assert.match(plain.err, /warning: .*key_env/);
  const json = await run(["config", "check", "--config", good, "--json"]);
  assert.equal(JSON.parse(json.out).valid, true);
  const refused = await run(["config", "check", bad]);
  assert.deepEqual([refused.code, refused.out], [2, ""]);
  assert.match(refused.err, /yardmaster\.yaml:1:1: upstream: is not a known key\n    hint: did you mean `upstreams`\?/);
  const refusedJson = await run(["config", "check", bad, "--json"]);
  assert.equal(refusedJson.code, 2);
  assert.equal(JSON.parse(refusedJson.out).problems.length, 2);
  assert.equal((await run(["config", "check", join(bad, "missing")])).code, 2);
  assert.equal((await run(["config", "check", good, "--listen", "0.0.0.0:1"])).code, 2);
});

test("config check takes a file without upstreams for what it is: one for a control plane or an agent, and a mistake in any other", async () => {
  for (const text of ["control: {}\n", "agent: {name: a, control: [ws://127.0.0.1:8300]}\n"]) {
    const path = await aFile(text);
    const told = await run(["config", "check", path]);
    assert.equal(told.code, 0, told.err);
    assert.match(told.out, /valid for a control plane and an agent; for a gateway `upstreams` is missing/);
    assert.equal(JSON.parse((await run(["config", "check", path, "-o", "json"])).out).gateway, false);
  }
  for (const text of ["auth: {mode: keys}\n", "control: {}\ngateway: {control: [ws://127.0.0.1:8300]}\n"]) {
    const told = await run(["config", "check", await aFile(text)]);
    assert.equal(told.code, 2, text);
    assert.match(told.err, /upstreams: is missing/);
  }
  assert.equal((await run(["config", "check", await aFile("control: {listn: x}\n")])).code, 2);
});

test("config print shows every value in force and masks passwords [80.C45]", async () => {
  const path = await aFile(VALID);
  const printed = await run(["config", "print", path, "--data-dir", "elsewhere"], { ENGINE_KEY: "CANARY-engine" });
  assert.equal(printed.code, 0);
  assert.ok(!`${printed.out}${printed.err}`.includes("CANARY"));
  const shown = parse(printed.out);
  assert.equal(shown.data_dir, "elsewhere");
  assert.equal(shown.upstreams[0].batch_max, 12);
  assert.equal(shown.upstreams[0].timeouts.first_byte_s, 300);
  assert.equal(shown.http.request_timeout_s, 60);
  assert.equal(parseConfigText(printed.out.replaceAll("[redacted]", "x"), "printed", {}).kind, "valid");
});

test("config schema is a JSON Schema that knows every key and lets a variable stand for a value", async () => {
  const { code, out } = await run(["config", "schema"]);
  assert.equal(code, 0);
  const schema = JSON.parse(out);
  assert.equal(schema.additionalProperties, false);
  assert.deepEqual(schema.required, ["upstreams"]);
  const slots = schema.properties.upstreams.items.properties.slots;
  assert.deepEqual(
    slots.anyOf.map((option: { type: string }) => option.type),
    ["integer", "string"],
  );
  assert.match(slots.description, /in flight/);
});

test("key new prints the key once, and lines that the file takes as they are [60.K1 80.C38]", async () => {
  const made = await run([
    "key",
    "new",
    "--id",
    "team",
    "--role",
    "operator",
    "--classes",
    "batch,interactive",
    "--models",
    "qwen*,m",
    "--weight",
    "2",
    "--expires",
    "2030-01-01T00:00:00Z",
    "--allow-external",
  ]);
  assert.equal(made.code, 0);
  const [key] = made.out.match(/ym_[A-Za-z0-9_-]{43}/g) ?? assert.fail(made.out);
  assert.equal(made.out.split(key ?? "").length, 2);
  const lines = made.out.slice(made.out.indexOf("    - id:"));
  const loaded = parseConfigText(`auth:\n  keys:\n${lines}upstreams: []\n`, "y.yaml", {});
  assert.ok(loaded.kind === "valid");
  const [entry] = loaded.config.auth.keys;
  assert.equal(entry?.hash, hashKey(key ?? ""));
  assert.deepEqual(
    [entry?.id, entry?.role, entry?.classes, entry?.models, entry?.weight, entry?.allowExternal],
    ["team", "operator", ["batch", "interactive"], ["qwen*", "m"], 2, true],
  );
  const json = JSON.parse((await run(["key", "new", "--id", "team", "--json"])).out);
  assert.equal(json.entry.hash, `sha256:${hashKey(json.key)}`);
});

test("key new refuses what the file would refuse", async () => {
  for (const args of [
    [],
    ["--id", "a b"],
    ["--id", "a", "--role", "root"],
    ["--id", "a", "--classes", "fast"],
    ["--id", "a", "--weight", "0"],
    ["--id", "a", "--weight", "x"],
    ["--id", "a", "--expires", "soon"],
    ["--id", "a", "--models", ""],
    ["--id", "a", "b"],
  ]) {
    const { code, out } = await run(["key", "new", ...args]);
    assert.deepEqual([code, out], [2, ""], args.join(" "));
  }
});

test("the reference pages are those that the code makes, and leave no key without a meaning", async () => {
  for (const page of referencePages()) {
    const written = await readFile(join(import.meta.dirname, "../../docs/reference", page.file), "utf8");
    assert.ok(written === page.text, `docs/reference/${page.file} is out of date: run \`npm run docs\``);
  }
  assert.doesNotMatch(referencePages()[0]?.text ?? "", /\| +\|$/m);
});
