import assert from "node:assert/strict";
import { chmod, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { NO_LIMITS } from "../contract/gateway-config.ts";
import { formatProblems } from "./config-problem.ts";
import type { ConfigProblem } from "./config-problem.ts";
import { CONFIG_BYTES_MAX, loadConfigFile, parseConfigText } from "./load-config.ts";
import type { LoadedConfig } from "./load-config.ts";
import type { ConfigOverrides, Env, GatewayConfig } from "../contract/resolve-config.ts";

const HASH = `sha256:${"ab".repeat(32)}`;
const OTHER_HASH = `sha256:${"cd".repeat(32)}`;

const COMPLETE = `listen: 0.0.0.0:8200
coordination: local
redis_url: redis://127.0.0.1:6379/0
database_url: sqlite:data/yardmaster.db
auth:
  mode: keys
  allow_insecure: false
  keys:
    - id: team-chat
      hash: "${HASH}"
      role: client
      classes: [interactive, batch]
      models: ["qwen*"]
      weight: 2
      limits: {requests_per_minute: 600, tokens_per_minute: 200000, max_in_flight: 64}
      allow_external: false
upstreams:
  - id: qwen-35b
    models: [qwen3.8-35b, "gpt-4o"]
    kind: openai
    engine: vllm
    slots: 48
    batch_max: 36
    queue: {max: 2000, timeout_s: {interactive: 30, system: 30, batch: 900}}
    timeouts: {connect_s: 2, first_byte_s: 300, idle_s: 120, total_s: 3600}
    retry: {attempts: 2, budget_percent: 20}
    routing: {policy: least_loaded, prefix_affinity: true, session_header: x-session-id}
    external: false
    endpoints:
      - {url: "http://10.0.0.11:8001", slots: 16, gpus: ["node-a/0"]}
      - {url: "http://10.0.0.12:8001", slots: 16, gpus: ["GPU-5d3c"]}
  - id: from-catalog
    model: llama-70b
`;

const parse = (text: string, env: Env = {}, overrides: ConfigOverrides = {}): LoadedConfig =>
  parseConfigText(text, "y.yaml", env, overrides);

function valid(text: string, env: Env = {}, overrides: ConfigOverrides = {}): GatewayConfig {
  const loaded = parse(text, env, overrides);
  if (loaded.kind === "invalid") assert.fail(formatProblems(loaded.problems));
  return loaded.config;
}

function invalid(text: string, env: Env = {}, overrides: ConfigOverrides = {}): readonly ConfigProblem[] {
  const loaded = parse(text, env, overrides);
  assert.equal(loaded.kind, "invalid");
  return loaded.kind === "invalid" ? loaded.problems : [];
}

const warnings = (text: string, env: Env = {}): readonly string[] => {
  const loaded = parse(text, env);
  return loaded.kind === "valid" ? loaded.warnings : assert.fail(formatProblems(loaded.problems));
};

const upstream = (lines: string): string =>
  `upstreams:\n  - id: a\n    models: [m]\n    slots: 4\n    endpoints: [{url: "http://h:1"}]\n${lines}`;

test("a complete file is read, with what it leaves out filled in", () => {
  const config = valid(COMPLETE);
  assert.deepEqual(config.listen, { host: "0.0.0.0", port: 8200 });
  assert.equal(config.upstreams[0]?.limits.batchMax, 36);
  assert.equal(config.upstreams[0]?.timeouts.writeStallMs, 30_000);
  assert.deepEqual(config.upstreams[1]?.models, ["llama-70b"]);
  assert.equal(config.auth.keys[0]?.hash, "ab".repeat(32));
  assert.equal(config.metricsPublic, false);
});

/** Each row: a file, and the mistakes that it holds as `line path`. */
const mistakes: readonly {
  readonly name: string;
  readonly text: string;
  readonly expect: readonly string[];
  readonly hint?: RegExp;
}[] = [
  {
    name: "a misspelt auth is no absent auth",
    text: "authh: {mode: keys}\nupstreams: []",
    expect: ["1 authh"],
    hint: /`auth`/,
  },
  {
    name: "`upstream` is not `upstreams`",
    text: "upstream: []",
    expect: ["1 upstream", "1 upstreams"],
    hint: /`upstreams`/,
  },
  {
    name: "keys that belong below another one",
    text: "auth:\nmode: keys\nupstreams: []",
    expect: ["1 auth", "2 mode"],
    hint: /auth\.mode/,
  },
  { name: "a list item in the wrong column", text: "upstreams:\n  - id: a\n   - id: b", expect: ["3 "] },
  {
    name: "a number in quotes",
    text: upstream('    batch_max: "4"'),
    expect: ["6 upstreams[0].batch_max"],
    hint: /quotes/,
  },
  { name: "no slots at all", text: upstream("    batch_max: 0"), expect: ["6 upstreams[0].batch_max"] },
  { name: "slots below zero", text: upstream("").replace("slots: 4", "slots: -1"), expect: ["4 upstreams[0].slots"] },
  {
    name: "slots that are half",
    text: upstream("").replace("slots: 4", "slots: 1.5"),
    expect: ["4 upstreams[0].slots"],
  },
  {
    name: "a timeout without its unit",
    text: upstream("    timeout: 30"),
    expect: ["6 upstreams[0].timeout"],
    hint: /`timeouts`/,
  },
  {
    name: "a unit behind a number",
    text: upstream("    timeouts: {idle_s: 30s}"),
    expect: ["6 upstreams[0].timeouts.idle_s"],
    hint: /unit/,
  },
  { name: "a key twice", text: "auth: {mode: keys}\nauth: {mode: none}\nupstreams: []", expect: ["2 auth"] },
  {
    name: "a key twice, deep down",
    text: upstream("    external: true\n    external: false"),
    expect: ["7 upstreams[0].external"],
  },
  { name: "yes is a text", text: upstream("    external: yes"), expect: ["6 upstreams[0].external"], hint: /true/ },
  {
    name: "off is a text",
    text: "auth: {allow_insecure: off}\nupstreams: []",
    expect: ["1 auth.allow_insecure"],
    hint: /true/,
  },
  { name: "a leading zero", text: upstream("    batch_max: 010"), expect: ["6 upstreams[0].batch_max"], hint: /zero/ },
  { name: "an empty file", text: "", expect: ["1 "] },
  { name: "a file of comments", text: "# nothing\n", expect: ["1 "] },
  { name: "an empty mapping is not absent", text: "auth:\nupstreams: []", expect: ["1 auth"] },
  { name: "no upstreams", text: "listen: 127.0.0.1:1", expect: ["1 upstreams"], hint: /\[\]/ },
  { name: "a list at the top", text: "- a", expect: ["1 "] },
  { name: "tabs", text: "auth:\n\tmode: keys\nupstreams: []", expect: ["2 "], hint: /spaces/ },
  { name: "two documents", text: "upstreams: []\n---\nupstreams: []", expect: ["2 "] },
  { name: "another YAML version", text: "%YAML 1.1\n---\nupstreams: []", expect: ["1 "] },
  { name: "a custom tag", text: "listen: !env HOST\nupstreams: []", expect: ["1 "] },
  {
    name: "a merge key",
    text: "auth: &a {mode: keys}\nhttp: {<<: *a}\nupstreams: []",
    expect: ["2 http.<<"],
    hint: /merge/,
  },
  {
    name: "an unquoted reference inside a flow list",
    text: upstream("").replace("[m]", "[${M}]"),
    expect: ["3 "],
    hint: /quotes/,
  },
  { name: "an unset variable", text: "listen: ${HOST}\nupstreams: []", expect: ["1 listen"] },
  { name: "__proto__", text: "__proto__: {auth: 1}\nupstreams: []", expect: ["1 __proto__"] },
  {
    name: "a class that does not exist",
    text: keyFile("classes: [interactiv]"),
    expect: ["5 auth.keys[0].classes[0]"],
    hint: /`interactive`/,
  },
  { name: "a role that does not exist", text: keyFile("role: amin"), expect: ["5 auth.keys[0].role"], hint: /`admin`/ },
  {
    name: "limits in the wrong word",
    text: keyFile("limits: {requests_per_min: 60}"),
    expect: ["5 auth.keys[0].limits.requests_per_min"],
    hint: /`requests_per_minute`/,
  },
  { name: "an expiry without a zone", text: keyFile("expires: 2027-01-31"), expect: ["5 auth.keys[0].expires"] },
  { name: "a port alone", text: "listen: 8200\nupstreams: []", expect: ["1 listen"] },
  { name: "an address without a host", text: 'listen: ":8200"\nupstreams: []', expect: ["1 listen"] },
  { name: "batch_max above slots", text: upstream("    batch_max: 5"), expect: ["6 upstreams[0].batch_max"] },
  { name: "an upstream without slots", text: "upstreams: [{id: a, models: [m]}]", expect: ["1 upstreams[0].slots"] },
  {
    name: "an openai upstream that nothing leads to",
    text: "upstreams: [{id: a, slots: 1}]",
    expect: ["1 upstreams[0].models"],
  },
  {
    name: "the same endpoint twice in two spellings",
    text: upstream("").replace('{url: "http://h:1"}', '{url: "http://h:80/"}, {url: "http://H"}'),
    expect: ["5 upstreams[0].endpoints[1].url"],
  },
  {
    name: "one id for two upstreams",
    text: `${upstream("")}  - {id: a, models: [n], slots: 1}`,
    expect: ["6 upstreams[1].id"],
  },
  {
    name: "one model name for two upstreams",
    text: `${upstream("")}  - {id: b, models: [m], slots: 1}`,
    expect: ["6 upstreams[1].models[0]"],
  },
  {
    name: "redis without an address",
    text: "coordination: redis\nupstreams: []",
    expect: ["1 redis_url"],
  },
  {
    name: "bodies that could never be held",
    text: "max_body_bytes: 100\nmax_buffered_bytes: 50\nupstreams: []",
    expect: ["1 max_body_bytes"],
  },
];

function keyFile(line: string): string {
  return `auth:\n  keys:\n    - id: k\n      hash: "${HASH}"\n      ${line}\nupstreams: []\n`;
}

for (const row of mistakes) {
  test(`is refused with its place: ${row.name}`, () => {
    const problems = invalid(row.text);
    assert.deepEqual(
      problems.map((problem) => `${problem.line} ${problem.path}`).toSorted(),
      row.expect.toSorted(),
      formatProblems(problems),
    );
    if (row.hint !== undefined) assert.match(problems.map((problem) => problem.hint ?? "").join("\n"), row.hint);
  });
}

test("two keys with one id or one hash are refused, naming the first one's line", () => {
  const text = `auth:\n  keys:\n    - {id: k, hash: "${HASH}"}\n    - {id: k, hash: "${OTHER_HASH}"}\n    - {id: l, hash: "${HASH}"}\nupstreams: []\n`;
  const problems = invalid(text);
  assert.deepEqual(
    problems.map((problem) => problem.path),
    ["auth.keys[1].id", "auth.keys[2].hash"],
  );
  for (const problem of problems) assert.match(problem.message, /line 3/);
});

test("the README's file is valid as it stands, and with the lines of a key where it says", async () => {
  const readme = await readFile(join(import.meta.dirname, "../../README.md"), "utf8");
  const block = /```yaml\n(listen:.*?)```/s.exec(readme)?.[1] ?? "";
  assert.deepEqual([valid(block).upstreams.length, warnings(block)], [1, []]);
  const keys = `  keys:\n    - id: team-chat\n      hash: ${HASH}\n      classes:\n        - interactive\n`;
  assert.equal(valid(block.replace(/(mode: keys.*\n)/, `$1${keys}`)).auth.keys[0]?.id, "team-chat");
});

test("all mistakes are reported at once, in the order of the file", () => {
  const problems = invalid(
    "listn: x\nauth: {mode: kes}\nmax_body_bytes: many\nupstreams:\n  - {id: a, slots: 0, endpoints: [{url: ftp://x}]}\n",
  );
  assert.deepEqual(
    problems.map((problem) => problem.path),
    [
      "listn",
      "auth.mode",
      "max_body_bytes",
      "upstreams[0].models",
      "upstreams[0].slots",
      "upstreams[0].endpoints[0].url",
    ],
  );
});

test("a byte order mark is no mistake, and a file beyond the limit is one", () => {
  valid("\uFEFFupstreams: []");
  invalid(`upstreams: []\n#${"x".repeat(CONFIG_BYTES_MAX)}`);
});

test("an alias may stand for a value, and a bomb of aliases is refused", () => {
  const config = valid(`${upstream("    queue: &q {max: 7}")}\n  - {id: b, models: [n], slots: 1, queue: *q}\n`);
  assert.equal(config.upstreams[1]?.limits.queueMax, 7);
  const levels = Array.from(
    { length: 9 },
    (_, level) => `a${level + 1}: &a${level + 1} [${Array.from({ length: 9 }, () => `*a${level}`).join(", ")}]`,
  );
  invalid(`a0: &a0 [x]\n${levels.join("\n")}\nupstreams: []`);
  invalid("auth: &a {keys: *a}\nupstreams: []");
});

test("deep nesting and a very wide mapping are refused in bounded time", () => {
  invalid(`upstreams: ${"[".repeat(50_000)}`);
  invalid(Array.from({ length: 10_000 }, (_, index) => `k${index}: 1`).join("\n"));
});

test("without a key, only loopback is served [80.C48]", () => {
  for (const listen of [
    "0.0.0.0:1",
    "[::]:1",
    "10.0.0.1:1",
    "gpu-box:1",
    "127.0.0.1.example.com:1",
    "0:1",
    "127.1:1",
  ]) {
    const text = `listen: "${listen}"\nupstreams: []\n`;
    assert.deepEqual(
      invalid(text).map((problem) => problem.path),
      ["auth.keys"],
      listen,
    );
    assert.deepEqual(
      invalid(`${text}auth: {mode: none}`).map((problem) => problem.path),
      ["auth.mode"],
      listen,
    );
    assert.deepEqual(
      invalid("upstreams: []", {}, { listen }).map((problem) => problem.path),
      ["auth.keys"],
      `--listen ${listen}`,
    );
    assert.match(warnings(`${text}auth: {mode: none, allow_insecure: true}`).join(), /without a key/);
  }
  for (const listen of ["127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "localhost:1"])
    assert.equal(valid(`listen: "${listen}"\nauth: {mode: none}\nupstreams: []`).auth.mode, "none");
  assert.deepEqual(valid("upstreams: []").listen, { host: "127.0.0.1", port: 8200 });
  assert.equal(valid("upstreams: []").auth.mode, "keys");
});

test("environment variables fill values in, with their type where they stand alone and unquoted", () => {
  const text = upstream(
    '    batch_max: ${N}\n    queue: {max: 5}\n    key_env: "${NAME:-ENGINE}_KEY"\n    external: ${EXT:-true}',
  ).replace("[m]", () => '["${MODEL}", "$${MODEL}", "${N}"]');
  const config = valid(text, { N: "3", MODEL: "a: b # c", ENGINE_KEY: "engine-secret" });
  assert.equal(config.upstreams[0]?.limits.batchMax, 3);
  assert.equal(config.upstreams[0]?.external, true);
  assert.deepEqual(config.upstreams[0]?.models, ["a: b # c", "${MODEL}", "3"]);
  assert.equal(config.upstreams[0]?.engineKey?.reveal(), "engine-secret");
});

test("a variable can't add keys or lists, and an empty one does not switch a setting back to its default", () => {
  invalid("auth: ${AUTH}\nupstreams: []", { AUTH: "{mode: none}" });
  invalid("auth: ${AUTH}\nupstreams: []", { AUTH: "" });
  invalid("auth: {mode: ${MODE}}\nupstreams: []".replace("${MODE}", '"${MODE}"'), { MODE: "" });
  invalid('auth: {mode: "${MODE}"}\nupstreams: []', {});
  invalid("upstreams: ${toString}", {});
});

test("no problem, warning or printed form holds a secret [80.C45]", () => {
  const canary = "CANARY-9f8e7d";
  const env = { SECRET: canary, ENGINE_KEY: canary };
  const texts = [
    `auth: {keys: [{id: k, hash: "${canary}"}]}\nredis_url: "http://u:${canary}@h"\ndatabase_url: "x:${canary}"\nupstreams: []`,
    `auth: {keys: [ym_${canary}, {id: k, role: ymg_${canary}}]}\nupstreams: []`,
    upstream(`    key_env: sk-${canary}`),
    upstream("").replace("http://h:1", `http://u:${canary}@h:1`),
    upstream("    health: ${SECRET}\n    external: ${SECRET}\n    batch_max: ${SECRET}\n    engine: x-${SECRET}"),
    `redis_url: "${canary}\nupstreams: []`,
    `hash: ${canary}: ${canary}\n`,
    `redis_url: *${canary}\nupstreams: []`,
    `redis_url: "\\x${canary}"\nupstreams: []`,
    `- "${canary}" ${canary}`,
    `gpu_health: {dcgm_url: "//u:${canary}@h"}\ncoordination: r://:${canary}@h\nlisten: "h?k=${canary}"\nclient_server: sk-${canary}`,
  ];
  for (const text of texts) assert.ok(!JSON.stringify(invalid(text, env)).includes(canary), text);
  const loaded = parse(
    `${upstream("    key_env: ENGINE_KEY")}\nredis_url: redis://:${canary}@h\ndatabase_url: "postgres://u:${canary}@h/d"`,
    env,
  );
  assert.equal(loaded.kind, "valid");
  if (loaded.kind === "valid") assert.ok(!JSON.stringify([loaded.config, loaded.warnings]).includes(canary));
});

test("what may surprise is a warning: no endpoints, an unset engine key, a limit that is never reached", () => {
  assert.match(warnings("upstreams: [{id: a, models: [m], slots: 1}]").join("\n"), /endpoints: is empty/);
  assert.match(
    warnings(upstream("    key_env: NOT_SET")).join("\n"),
    /^y\.yaml:6:14: upstreams\[0\]\.key_env: .*not set/,
  );
  assert.match(
    warnings(upstream("    timeouts: {first_byte_s: 60, total_s: 30}")).join("\n"),
    /first_byte_s: is longer/,
  );
  assert.match(warnings(upstream("").replace("http://h:1", "http://h:1/v1")).join("\n"), /\/v1/);
  assert.deepEqual(warnings(upstream("")), []);
});

test("a password in a file that others can read is warned of, one in the environment is not [80.D32]", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-config-"));
  const path = join(folder, "yardmaster.yaml");
  const of = async (text: string, mode: number): Promise<readonly string[]> => {
    await writeFile(path, text);
    await chmod(path, mode);
    const loaded = await loadConfigFile(path, { REDIS: "redis://:pw@h" });
    return loaded.kind === "valid"
      ? loaded.warnings.filter((warning) => warning.includes("chmod"))
      : assert.fail(formatProblems(loaded.problems));
  };
  assert.equal((await of("upstreams: []\nredis_url: redis://:pw@h\n", 0o644)).length, 1);
  assert.equal((await of("upstreams: []\nredis_url: redis://:pw@h\n", 0o600)).length, 0);
  assert.equal((await of("upstreams: []\nredis_url: ${REDIS}\n", 0o644)).length, 0);
  assert.equal((await of("upstreams: []\nredis_url: redis://h\n", 0o644)).length, 0);
});

test("a file that is missing, a folder, too large or not UTF-8 is a mistake, not a crash", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-config-"));
  const path = join(folder, "yardmaster.yaml");
  assert.equal((await loadConfigFile(path, {})).kind, "invalid");
  assert.equal((await loadConfigFile(folder, {})).kind, "invalid");
  await writeFile(path, Buffer.from([0xff, 0xfe, 0x75, 0x00]));
  assert.equal((await loadConfigFile(path, {})).kind, "invalid");
  await writeFile(path, "x".repeat(5_000_000));
  assert.equal((await loadConfigFile(path, {})).kind, "invalid");
});

test("whatever is done to the text, reading it never throws, and every problem has a place in it", () => {
  const edit = fc.record({
    at: fc.nat(COMPLETE.length),
    remove: fc.nat(12),
    insert: fc.oneof(
      fc.constantFrom("", ":", "\n", "  ", "\t", "- ", "&a ", "*a", "${X}", "{", "]", '"', "#", "---\n", "null"),
      fc.string({ maxLength: 4 }),
    ),
  });
  fc.assert(
    fc.property(fc.array(edit, { minLength: 1, maxLength: 4 }), (edits) => {
      let text = COMPLETE;
      for (const { at, remove, insert } of edits) text = text.slice(0, at) + insert + text.slice(at + remove);
      const loaded = parse(text, { X: "1" });
      if (loaded.kind === "valid") return;
      const lines = text.split("\n").length;
      assert.ok(loaded.problems.length > 0);
      for (const problem of loaded.problems)
        assert.ok(problem.line >= 1 && problem.line <= lines && problem.column >= 1);
    }),
    { numRuns: 120 },
  );
});

test("a misspelt key name is always refused, so no setting falls back to a weaker one by a typing mistake", () => {
  const names = [...COMPLETE.matchAll(/[a-z_]+(?=:[ \n])/g)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
  }));
  const typo = fc.record({
    name: fc.constantFrom(...names),
    offset: fc.nat(20),
    kind: fc.constantFrom("remove", "insert", "replace", "swap"),
    letter: fc.constantFrom(..."abcdefghijklmnopqrstuvwxyz_"),
  });
  fc.assert(
    fc.property(typo, ({ name, offset, kind, letter }) => {
      const at = name.start + (offset % (name.end - name.start));
      const before = COMPLETE.slice(name.start, name.end);
      const local = at - name.start;
      const after =
        kind === "remove"
          ? before.slice(0, local) + before.slice(local + 1)
          : kind === "insert"
            ? before.slice(0, local) + letter + before.slice(local)
            : kind === "replace"
              ? before.slice(0, local) + letter + before.slice(local + 1)
              : before.slice(0, local) + (before[local + 1] ?? "") + (before[local] ?? "") + before.slice(local + 2);
      if (after === before) return;
      assert.equal(parse(COMPLETE.slice(0, name.start) + after + COMPLETE.slice(name.end)).kind, "invalid", after);
    }),
    { numRuns: 120 },
  );
});

test("moving a line to another column never opens the gateway", () => {
  const lines = COMPLETE.split("\n");
  fc.assert(
    fc.property(fc.nat(lines.length - 1), fc.integer({ min: -6, max: 6 }), (index, shift) => {
      const moved = lines.with(
        index,
        shift < 0
          ? (lines[index] ?? "").replace(new RegExp(`^ {0,${-shift}}`), "")
          : " ".repeat(shift) + (lines[index] ?? ""),
      );
      const loaded = parse(moved.join("\n"));
      if (loaded.kind === "invalid") return;
      const { auth } = loaded.config;
      assert.equal(auth.mode, "keys");
      assert.equal(auth.allowInsecure, false);
      assert.deepEqual(
        auth.keys.map(({ id, role, models, allowExternal, limits }) => ({ id, role, models, allowExternal, limits })),
        [
          {
            id: "team-chat",
            role: "client",
            models: ["qwen*"],
            allowExternal: false,
            limits: { ...NO_LIMITS, requestsPerMinute: 600, tokensPerMinute: 200_000, inFlightMax: 64 },
          },
        ],
      );
    }),
    { numRuns: 120 },
  );
});
