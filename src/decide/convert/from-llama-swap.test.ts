import assert from "node:assert/strict";
import { test } from "node:test";
import { commandWords } from "./command-words.ts";
import type { Converted } from "./conversion.ts";
import { convertLlamaSwap } from "./from-llama-swap.ts";

interface Profile {
  readonly engine: string;
  readonly [key: string]: unknown;
}
interface Model {
  readonly name: string;
  readonly profiles: readonly Profile[];
  readonly [key: string]: unknown;
}

const around = {
  gpu: { class: "rtx4090", memoryGb: 24 },
  env: (name: string): string | undefined => ({ HOME: "/home-of-somebody", MY_TOKEN: "CANARY" })[name],
};
const converted = (file: unknown, gpu: typeof around.gpu | null = around.gpu): Converted => {
  const outcome = convertLlamaSwap(file, { ...around, gpu });
  return outcome.kind === "converted" ? outcome : assert.fail(outcome.why);
};
const modelsOf = (outcome: Converted): readonly Model[] => (outcome.catalog?.["models"] ?? []) as readonly Model[];
const ofCommand = (
  cmd: string,
  more: Record<string, unknown> = {},
): { readonly outcome: Converted; readonly model: Model } => {
  const outcome = converted({ models: { m: { cmd, ...more } } });
  return { outcome, model: modelsOf(outcome)[0] ?? assert.fail("no model") };
};
const notesOf = (outcome: Converted): string[] => outcome.notes.map(({ path, kind }) => `${kind} ${path.join(".")}`);

const rows: { readonly name: string; readonly cmd: string; readonly expect: Partial<Profile> }[] = [
  {
    name: "llama-server is an engine of its kind, with a file by its path",
    cmd: "llama-server --port ${PORT} -m /models/a.gguf -ngl 99 -c 8192 --jinja",
    expect: {
      engine: "llama.cpp",
      source: "file:///models/a.gguf",
      args: { ngl: 99, c: 8192, jinja: true },
      gpu: { class: ["rtx4090"], count: 1, memory_gb: 24 },
    },
  },
  {
    name: "one without layers on the card runs on the CPU",
    cmd: "llama-server -m /models/a.gguf -ngl 0",
    expect: { engine: "llama.cpp", gpu: undefined },
  },
  {
    name: "a flag that no agent passes makes it a command",
    cmd: "/opt/llama-server --port ${PORT} -m /models/a.gguf --temp 0.7",
    expect: {
      engine: "command",
      command: ["/opt/llama-server", "--port", "{port}", "-m", "/models/a.gguf", "--temp", "0.7"],
    },
  },
  {
    name: "vLLM with two cards",
    cmd: "vllm serve Org/Model --tensor-parallel-size 2 --port ${PORT} --served-model-name x --max-num-seqs 32",
    expect: { engine: "vllm", source: "hf://Org/Model@main", gpu: { class: ["rtx4090"], count: 2, memory_gb: 24 } },
  },
  {
    name: "vLLM as a module, with two stages",
    cmd: "python3 -m vllm.entrypoints.openai.api_server --model /m --tensor-parallel-size 2 --pipeline-parallel-size 2",
    expect: {
      engine: "vllm",
      source: "file:///m",
      args: { "pipeline-parallel-size": 2, "tensor-parallel-size": 2 },
      gpu: { class: ["rtx4090"], count: 4, memory_gb: 24 },
    },
  },
  {
    name: "SGLang",
    cmd: "python3 -m sglang.launch_server --model-path /m --port ${PORT}",
    expect: { engine: "sglang", source: "file:///m" },
  },
  {
    name: "text-embeddings-inference",
    cmd: "text-embeddings-router --model-id BAAI/bge-m3 --port ${PORT} --pooling cls",
    expect: { engine: "tei", source: "hf://BAAI/bge-m3@main", args: { pooling: "cls" } },
  },
  {
    name: "any other program is a command, ready when its page answers",
    cmd: "docker run -p ${PORT}:80 'an image'",
    expect: {
      engine: "command",
      command: ["/usr/bin/docker", "run", "-p", "{port}:80", "an image"],
      args: { probe: "none" },
    },
  },
];
for (const { name, cmd, expect } of rows)
  test(`of llama-swap's file: ${name}`, () => {
    const [profile] = ofCommand(cmd).model.profiles;
    for (const [key, value] of Object.entries(expect)) assert.deepEqual(profile?.[key], value, key);
  });

test("models start on demand and stop as their time to live says; those that are loaded at the start are kept", () => {
  const cmd = "llama-server -m /a.gguf";
  const outcome = converted({
    globalTTL: 90,
    hooks: { on_startup: { preload: ["kept"] } },
    models: { own: { cmd, ttl: 5 }, global: { cmd }, never: { cmd, ttl: 0 }, kept: { cmd } },
  });
  assert.deepEqual(
    modelsOf(outcome).map(({ name, replicas, idle_stop_s: idle }) => [name, replicas, idle]),
    [
      ["own", { min: 0, max: 1 }, 5],
      ["global", { min: 0, max: 1 }, 90],
      ["never", { min: 0, max: 1 }, 30],
      ["kept", { min: 1, max: 1 }, undefined],
    ],
  );
  assert.ok(notesOf(outcome).includes("changed models.never.ttl"));
});

test("macros stand for what they say, inner ones over outer ones; a variable is asked for unless its name says that it is a secret", () => {
  const file = {
    macros: { bin: "llama-server --port ${PORT}", size: 4096, args: "-c ${size}" },
    models: {
      a: { cmd: "${bin} ${args} -m ${env.HOME}/${MODEL_ID}.gguf", macros: { size: 1024 } },
      b: { cmd: "${bin} -m ${env.MY_TOKEN}" },
      c: { cmd: "${bin} -m ${nowhere}" },
      d: { cmd: "${loop}", macros: { loop: "${loop}" } },
    },
  };
  const outcome = converted(file);
  const [profile] = modelsOf(outcome)[0]?.profiles ?? [];
  assert.deepEqual([profile?.["source"], profile?.["args"]], ["file:///home-of-somebody/a.gguf", { c: 1024 }]);
  assert.equal(modelsOf(outcome).length, 1);
  for (const id of ["b", "c", "d"]) assert.ok(notesOf(outcome).includes(`dropped models.${id}`), id);
  assert.ok(!JSON.stringify(outcome).includes("CANARY"));
});

test("keys and tokens that stand in commands, environments and peers are left out, and each is told", () => {
  const outcome = converted({
    apiKeys: ["CANARY-a"],
    models: {
      m: {
        cmd: "/bin/x --api-key CANARY-b --api-key=CANARY-c -e HF_TOKEN=CANARY-d --port ${PORT}",
        env: ["HF_TOKEN=CANARY-e", "VLLM_API_KEY=CANARY-f"],
      },
    },
    peers: { p: { proxy: "http://10.0.0.1", models: ["x"], apiKey: "CANARY-g" } },
  });
  assert.ok(!JSON.stringify(outcome).includes("CANARY"));
  assert.deepEqual(outcome.variables, ["P_API_KEY"]);
  assert.equal(outcome.notes.filter(({ kind }) => kind === "secret").length, 6);
});

test("without a word on the cards a class that nobody has stands there, and is told", () => {
  const outcome = converted({ models: { m: { cmd: "llama-server -m /a.gguf -ngl 99" } } }, null);
  assert.deepEqual(modelsOf(outcome)[0]?.profiles[0]?.["gpu"], { class: ["my-gpu"], count: 1, memory_gb: 24 });
  assert.ok(notesOf(outcome).includes("assumed models.m.cmd"));
});

test("an alias that another model has as its name or alias stays there", () => {
  const cmd = "llama-server -m /a.gguf";
  const outcome = converted({ models: { a: { cmd, aliases: ["b", "x"] }, b: { cmd, aliases: ["x", "y"] } } });
  assert.deepEqual(
    modelsOf(outcome).map(({ aliases }) => aliases),
    [["x"], ["y"]],
  );
});

test("a command line is read in words as llama-swap reads it", () => {
  const table: readonly (readonly [string, readonly string[] | null])[] = [
    ["a  b\tc\n d", ["a", "b", "c", "d"]],
    ["a 'b c' \"d 'e'\" f\\ g", ["a", "b c", "d 'e'", "f g"]],
    ["# a comment\na \\\n b", ["a", "b"]],
    ["a \"\" ''", ["a", "", ""]],
    ["a $HOME > b", ["a", "$HOME", ">", "b"]],
    ["a 'b", null],
  ];
  for (const [text, words] of table) assert.deepEqual(commandWords(text), words, text);
});

test("a file that is not llama-swap's is refused, and entries of a wrong kind are told", () => {
  for (const file of [null, [], {}, { models: [] }, { model_list: [] }])
    assert.equal(convertLlamaSwap(file, around).kind, "refused");
  const outcome = converted({ models: { a: null, b: 7, "c d": { cmd: "x" }, e: {} } });
  assert.equal(outcome.catalog, null);
  for (const id of ["a", "b", "c d", "e"])
    assert.ok(
      notesOf(outcome).some((note) => note.endsWith(`models.${id}`)),
      id,
    );
});
