import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { convertText } from "../config/convert-file.ts";
import { parseCatalogText } from "../config/load-catalog.ts";
import { parseConfigText } from "../config/load-config.ts";
import type { Env } from "../contract/resolve-config.ts";
import { captureIo } from "../testing/capture-io.ts";
import { cliCommands } from "./commands.ts";
import { dispatch } from "./dispatch.ts";

const FIXTURES = join(import.meta.dirname, "../../test/docs/fixtures");
const LITELLM = join(FIXTURES, "litellm.yaml");
const LLAMA_SWAP = join(FIXTURES, "llama-swap.yaml");

const run = async (
  argv: readonly string[],
  env: Env = {},
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> => {
  const { io, output } = captureIo(env);
  const code = await dispatch(["config", "convert", ...argv], cliCommands, "0", io);
  return { code, ...output() };
};

interface Told {
  readonly config: string;
  readonly catalog: string | null;
  readonly warnings: readonly { readonly path: string; readonly kind: string; readonly message: string }[];
  readonly variables: readonly string[];
}

/** `key: value` of each scalar of a file, with the path as the warnings have it. */
function leavesOf(value: unknown, path = ""): string[] {
  if (typeof value !== "object" || value === null) return [path];
  return Object.entries(value).flatMap(([key, inner]) =>
    leavesOf(inner, Array.isArray(value) ? `${path}[${key}]` : path === "" ? key : `${path}.${key}`),
  );
}

test("a LiteLLM proxy's file becomes a configuration that is valid: servers of one name are its endpoints, keys come from the environment, and what has no counterpart is told with its key", async () => {
  const { code, out, err } = await run([LITELLM, "--from", "litellm", "-o", "json"]);
  assert.deepEqual([code, err], [0, ""]);
  const told = JSON.parse(out) as Told;
  assert.ok(!out.includes("CANARY"), "a key in plain text came through");
  const env = { RACK_KEY: "k", REDIS_HOST: "127.0.0.1", REDIS_PASSWORD: "p", HOUSE_LLAMA_URL: "http://127.0.0.1:9" };
  const checked = parseConfigText(told.config, "yardmaster.yaml", env);
  assert.ok(checked.kind === "valid", JSON.stringify(checked));
  const byName = new Map(
    checked.config.upstreams.flatMap((upstream) => upstream.models.map((name) => [name, upstream] as const)),
  );
  const chat = byName.get("chat");
  assert.deepEqual(
    chat?.endpoints.map(({ url, slots }) => [url, slots]),
    [
      ["http://10.0.0.11:8001", 16],
      ["http://10.0.0.12:8001", 16],
    ],
  );
  assert.equal(byName.get("Qwen/Qwen3.8-35B-A3B"), chat);
  assert.equal(byName.get("gpt-4"), byName.get("gpt-4o"));
  assert.equal(byName.get("fast"), byName.get("small"));
  assert.deepEqual([checked.file.coordination, checked.file.max_body_bytes], ["redis", 134_217_728]);
  assert.deepEqual(told.variables, [
    "HOUSE_LLAMA_API_KEY",
    "HOUSE_LLAMA_URL",
    "OPENAI_API_KEY",
    "RACK_KEY",
    "REDIS_HOST",
    "REDIS_PASSWORD",
  ]);
  for (const path of [
    "model_list[0].litellm_params.rpm",
    "model_list[0].litellm_params.extra_headers",
    "model_list[0].model_info.supports_function_calling",
    "model_list[2]",
    "model_list[8]",
    "model_list[9]",
    "model_list[10]",
    "router_settings.fallbacks",
    "router_settings.model_group_alias.nobody",
    "router_settings.enable_pre_call_checks",
    "general_settings.master_key",
    "general_settings.a_key_of_tomorrow",
    "environment_variables",
  ])
    assert.ok(
      told.warnings.some((warning) => warning.path === path),
      `nothing is said of ${path}`,
    );
});

test("llama-swap's file becomes a configuration and a catalog that are valid: models start on demand, macros are written out, and what has no counterpart is told with its key", async () => {
  const env = { MODELS_HOME: "/srv/more-models", LLAMA_API_KEY: "CANARY-of-the-environment" };
  const { code, out } = await run([LLAMA_SWAP, "--from", "llama-swap", "--gpu", "rtx4090:24", "-o", "json"], env);
  assert.equal(code, 0);
  assert.ok(!out.includes("CANARY"), "a key in plain text came through");
  const told = JSON.parse(out) as Told;
  const catalog = parseCatalogText(told.catalog ?? "", "catalog.yaml");
  assert.ok(catalog.kind === "valid", JSON.stringify(catalog));
  const checked = parseConfigText(told.config, "yardmaster.yaml", {}, { standIn: true });
  assert.ok(checked.kind === "valid", JSON.stringify(checked));
  const shown = catalog.data.models.map(({ name, replicas, slots_per_replica: slots, profiles }) => [
    name,
    replicas.min,
    slots,
    profiles[0]?.engine,
    profiles[0]?.source ?? null,
    profiles[0]?.gpu?.count ?? 0,
  ]);
  assert.deepEqual(shown, [
    ["qwen3-30b", 0, 8, "llama.cpp", "file:///srv/models/qwen3-30b-a3b-q4_k_m.gguf", 1],
    ["gemma-27b", 0, 1, "command", null, 1],
    ["embed-small", 1, 1, "llama.cpp", "file:///srv/models/bge-small.gguf", 0],
    ["coder", 0, 1, "command", null, 1],
    ["vision", 0, 1, "vllm", "file:///srv/models/qwen-vl", 2],
    ["from-env", 0, 1, "llama.cpp", "file:///srv/more-models/phi-4.gguf", 1],
    ["locked", 0, 1, "llama.cpp", "file:///srv/models/secret.gguf", 1],
    ["spoken", 0, 1, "command", null, 1],
  ]);
  assert.deepEqual(checked.file.agent?.commands, [
    "/opt/llama.cpp/llama-server",
    "/usr/bin/docker",
    "/usr/bin/whisper-server",
  ]);
  assert.deepEqual(checked.file.agent?.programs["llama.cpp"], ["/opt/llama.cpp/llama-server"]);
  assert.deepEqual(told.variables, ["LAB_API_KEY", "OPENROUTER_API_KEY"]);
  for (const path of [
    "models.gemma-27b.cmd",
    "models.gemma-27b.filters",
    "models.embed-small.unlisted",
    "models.embed-small.env[2]",
    "models.qwen3-30b.timeouts.keepalive",
    "models.coder.cmdStop",
    "models.locked.cmd",
    "groups",
    "apiKeys",
    "sendLoadingState",
    "peers.openrouter.filters",
    "matrix_of_tomorrow",
  ])
    assert.ok(
      told.warnings.some((warning) => warning.path === path),
      `nothing is said of ${path}`,
    );
});

test("whatever valid keys a file has, what comes out of it is valid", () => {
  const name = fc.constantFrom("a", "b", "chat", "Org/Model:4b", "\u00e9 \u2028", "${HOME}", "x".repeat(90));
  const url = fc.constantFrom(
    "http://h:1/v1",
    "http://h:2",
    "https://api.example.com/v1",
    "os.environ/BASE_URL",
    "no url",
    "http://u:p@h",
  );
  const params = fc.record(
    {
      model: fc
        .tuple(fc.constantFrom("hosted_vllm/", "openai/", "ollama/", "azure/", "huggingface/", ""), name)
        .map((parts) => parts.join("")),
      api_base: url,
      api_key: fc.constantFrom("os.environ/KEY", "none", "CANARY", 7),
      timeout: fc.oneof(fc.integer(), fc.constant("30")),
      num_retries: fc.integer(),
      max_parallel_requests: fc.oneof(fc.integer(), fc.double()),
      input_cost_per_token: fc.double(),
      output_cost_per_token: fc.double(),
    },
    { requiredKeys: ["model"] },
  );
  const file = fc.record(
    {
      model_list: fc.array(fc.record({ model_name: name, litellm_params: params }), { maxLength: 6 }),
      router_settings: fc.record(
        {
          model_group_alias: fc.dictionary(name, name),
          redis_host: fc.constantFrom("h", "os.environ/REDIS_HOST", "a b"),
          redis_password: fc.constant("CANARY"),
        },
        { requiredKeys: [] },
      ),
      litellm_settings: fc.record(
        { cache: fc.boolean(), cache_params: fc.record({ ttl: fc.integer(), host: fc.constant("h") }) },
        { requiredKeys: [] },
      ),
    },
    { requiredKeys: ["model_list"] },
  );
  fc.assert(
    fc.property(file, (value) => {
      const converted = convertText(JSON.stringify(value), { from: "litellm", env: {}, gpu: null });
      assert.ok(converted.kind === "converted", JSON.stringify(converted));
      assert.ok(!JSON.stringify(converted).includes("CANARY"));
      for (const { path, kind } of converted.warnings)
        assert.ok(
          kind === "check" ||
            kind === "assumed" ||
            path === "" ||
            leavesOf(value).some((leaf) => leaf.startsWith(path)),
          path,
        );
    }),
  );
});

test("whatever a command of llama-swap's is, what comes out of it is valid", () => {
  const word = fc.constantFrom(
    "llama-server",
    "vllm",
    "serve",
    "-m",
    "/a.gguf",
    "--port",
    "${PORT}",
    "-ngl",
    "99",
    "'q r'",
    "${x}",
    "--temp",
    "0.7",
    "{port}",
    "-e",
    "A_KEY=CANARY",
    "--tensor-parallel-size",
    "3",
    "--pipeline-parallel-size",
    "\u0007",
    "--model=${MODEL_ID}",
    "$${y}",
  );
  const model = fc.record(
    {
      cmd: fc.array(word, { maxLength: 12 }).map((words) => words.join(" ")),
      aliases: fc.array(fc.constantFrom("a", "b", "c d", "e/f")),
      ttl: fc.integer({ min: -1, max: 100 }),
      env: fc.array(fc.constantFrom("A=1", "CUDA_VISIBLE_DEVICES=0,1", "HF_TOKEN=CANARY", "VLLM_X=${x}", "bad")),
      concurrencyLimit: fc.integer({ min: 0, max: 1_000_000 }),
      checkEndpoint: fc.constantFrom("/health", "none", "/a b", "/${x}"),
    },
    { requiredKeys: ["cmd"] },
  );
  const file = fc.record({
    macros: fc.constant({ x: "value", y: "${x}" }),
    models: fc.dictionary(fc.constantFrom("a", "b", "e/f", "a b", "../c"), model, { minKeys: 1 }),
  });
  fc.assert(
    fc.property(file, (value) => {
      const converted = convertText(JSON.stringify(value), { from: "llama-swap", env: {}, gpu: null });
      assert.ok(converted.kind === "converted", JSON.stringify(converted));
      assert.ok(!JSON.stringify(converted).includes("CANARY"));
    }),
  );
});

test("files are written for their owner alone and never over others, and both texts can be printed", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-convert-"));
  try {
    const first = await run([LLAMA_SWAP, "--from", "llama-swap", "--write", folder]);
    assert.deepEqual([first.code, first.out], [0, ""]);
    assert.match(first.err, /^secret: peers\.lab\.apiKey: /m);
    assert.match(first.err, /^environment: LAB_API_KEY, OPENROUTER_API_KEY$/m);
    for (const name of ["yardmaster.yaml", "catalog.yaml"])
      assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600);
    await writeFile(join(folder, "yardmaster.yaml"), "mine");
    const again = await run([LLAMA_SWAP, "--from", "llama-swap", "--write", folder]);
    assert.equal(again.code, 1);
    assert.match(again.err, /yardmaster\.yaml: is there already/);
    assert.equal(await readFile(join(folder, "yardmaster.yaml"), "utf8"), "mine");
    const config = await run([LLAMA_SWAP, "--from", "llama-swap"]);
    const catalog = await run([LLAMA_SWAP, "--from", "llama-swap", "--catalog"]);
    assert.deepEqual(
      [Object.keys(parse(config.out)).includes("upstreams"), Object.keys(parse(catalog.out))],
      [true, ["models"]],
    );
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("what can't be converted is refused with exit code 2 and nothing on standard output", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-convert-"));
  try {
    const file = join(folder, "a.yaml");
    for (const text of ["", "a: [", "a: 1\na: 2", `${"[".repeat(20_000)}`, "model_list: 7", "&a [*a, *a]"]) {
      await writeFile(file, text);
      const { code, out, err } = await run([file, "--from", "litellm"]);
      assert.deepEqual([code, out], [2, ""], text.slice(0, 20));
      assert.match(err, /^yardmaster: /);
    }
    for (const argv of [
      [],
      [LITELLM],
      [LITELLM, "--from", "nginx"],
      [LITELLM, "--from", "litellm", "--gpu", "x"],
      [LITELLM, "--from", "litellm", "-o", "xml"],
    ]) {
      const { code, out } = await run(argv);
      assert.deepEqual([code, out], [2, ""], argv.join(" "));
    }
    assert.equal((await run([join(folder, "missing"), "--from", "litellm"])).code, 2);
  } finally {
    await rm(folder, { recursive: true });
  }
});
