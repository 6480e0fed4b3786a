import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { stringify } from "yaml";
import { formatProblems } from "./config-problem.ts";
import type { ConfigProblem } from "./config-problem.ts";
import { CATALOG_BYTES_MAX, loadCatalogFile, parseCatalogText } from "./load-catalog.ts";

const COMPLETE = `models:
  - name: qwen3.8-35b
    aliases: [qwen]
    priority: 50
    replicas: {min: 1, max: 4}
    idle_stop_s: 1800
    autoscale: {target_in_flight_per_slot: 0.7, up_after_s: 30, down_after_s: 600}
    slots_per_replica: 16
    profiles:
      - engine: vllm
        source: hf://org/model@rev
        gpu: {class: [b200, h200], count: 2, memory_gb: 70}
        disk_gb: 75
        args: {max-model-len: 32768, enable-prefix-caching: true, quantization: fp8, trust-remote-code: null}
        env: {VLLM_LOGGING_LEVEL: INFO}
      - engine: sglang
        source: file:///weights/model
        sha256: ${"ab".repeat(32)}
        gpu: {class: [a40], memory_gb: 40}
    nodes: {require: {zone: a}, avoid: {pool: test}}
    multi_node: {nodes: 2, fabric: same}
  - name: small
    profiles:
      - engine: llama.cpp
        source: /weights/small.gguf
        cpu: {cores: 8, memory_gb: 24}
`;

const problemsOf = (text: string): readonly ConfigProblem[] => {
  const loaded = parseCatalogText(text, "catalog.yaml");
  return loaded.kind === "invalid" ? loaded.problems : [];
};
/** A catalog of one model with this added to it. */
const withModel = (model: Record<string, unknown>): string =>
  stringify({ models: [{ name: "m", profiles: [{ engine: "sim" }], ...model }] });
const withProfile = (profile: Record<string, unknown>, model: Record<string, unknown> = {}): string =>
  withModel({ ...model, profiles: [{ source: "/weights/m", ...profile }] });
const GPU = { class: ["h200"], memory_gb: 70 };

test("a complete catalog is taken without a warning", () => {
  const loaded = parseCatalogText(COMPLETE, "catalog.yaml");
  if (loaded.kind === "invalid") assert.fail(formatProblems(loaded.problems));
  assert.equal(loaded.data.models.length, 2);
  assert.deepEqual(loaded.warnings, []);
});

test("JSON is read as it is", () => {
  const text = JSON.stringify({ models: [{ name: "m", profiles: [{ engine: "sim", args: { seed: 1 } }] }] });
  assert.equal(parseCatalogText(text, "request").kind, "valid");
});

const mistakes: readonly { readonly name: string; readonly text: string; readonly path: string }[] = [
  ...["vllm", "sglang", "comfyui"].map((engine) => ({
    name: `${engine} without a gpu block`,
    text: withProfile({ engine }),
    path: "models[0].profiles[0].gpu",
  })),
  ...["llama.cpp", "tei", "comfyui", "command"].map((engine) => ({
    name: `${engine} over several nodes`,
    text: withProfile(
      { engine, gpu: GPU, ...(engine === "command" ? { command: ["/bin/engine"] } : {}) },
      { multi_node: { nodes: 2 } },
    ),
    path: "models[0].profiles[0].engine",
  })),
  ...["tensor-parallel-size", "tensor_parallel_size", "tp", "pipeline-parallel-size"].map((flag) => ({
    name: `llama.cpp with ${flag}`,
    text: withProfile({ engine: "llama.cpp", args: { [flag]: 2 } }),
    path: `models[0].profiles[0].args.${flag}`,
  })),
  {
    name: "more parallelism than cards",
    text: withProfile({ engine: "vllm", gpu: { ...GPU, count: 2 }, args: { "tensor-parallel-size": 4 } }),
    path: "models[0].profiles[0].args",
  },
  {
    name: "more parallelism than cards on all nodes",
    text: withProfile(
      { engine: "vllm", gpu: { ...GPU, count: 2 }, args: { tp: 4, "pipeline-parallel-size": 2 } },
      { multi_node: { nodes: 2 } },
    ),
    path: "models[0].profiles[0].args",
  },
  {
    name: "weights that come from nowhere",
    text: withModel({ profiles: [{ engine: "vllm", gpu: GPU }] }),
    path: "models[0].profiles[0].source",
  },
  {
    name: "a command profile without a command",
    text: withProfile({ engine: "command" }),
    path: "models[0].profiles[0].command",
  },
  {
    name: "a command of another engine",
    text: withProfile({ engine: "sim", command: ["sh"] }),
    path: "models[0].profiles[0].command",
  },
  {
    name: "fewer replicas at most than at least",
    text: withModel({ replicas: { min: 3, max: 2 } }),
    path: "models[0].replicas.max",
  },
  {
    name: "a label that is required and avoided",
    text: withModel({ nodes: { require: { zone: "a" }, avoid: { zone: "a" } } }),
    path: "models[0].nodes.avoid.zone",
  },
  {
    name: "more cards than are allowed",
    text: withProfile({ engine: "vllm", gpu: { ...GPU, count: 2 } }, { nodes: { gpu_uuids: ["GPU-1"] } }),
    path: "models[0].profiles[0].gpu.count",
  },
  {
    name: "one flag in two spellings",
    text: withProfile({ engine: "sim", args: { "max-model-len": 1, max_model_len: 2 } }),
    path: "models[0].profiles[0].args.max_model_len",
  },
  ...["host", "port", "api-key", "api_key", "listen"].map((flag) => ({
    name: `the flag ${flag}, which is not the author's`,
    text: withProfile({ engine: "sim", args: { [flag]: "x" } }),
    path: `models[0].profiles[0].args.${flag}`,
  })),
  ...["--seed", "a b", "a;b", "$(id)", "-x", "a=b", ""].map((flag) => ({
    name: `a flag spelt ${JSON.stringify(flag)}`,
    text: withProfile({ engine: "sim", args: { [flag]: 1 } }),
    path: `models[0].profiles[0].args.${flag}`,
  })),
  {
    name: "a line break in an argument",
    text: withProfile({ engine: "sim", args: { a: "x\ny" } }),
    path: "models[0].profiles[0].args.a",
  },
  {
    name: "a list as an argument",
    text: withProfile({ engine: "sim", args: { a: [1] } }),
    path: "models[0].profiles[0].args.a",
  },
  ...[
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "PYTHONPATH",
    "PATH",
    "CUDA_VISIBLE_DEVICES",
    "YARDMASTER_KEY",
    "ld_library_path",
    "BASH_ENV",
  ].map((name) => ({
    name: `the variable ${name}`,
    text: withProfile({ engine: "sim", env: { [name]: "x" } }),
    path: `models[0].profiles[0].env.${name}`,
  })),
  ...[
    "http://host/m",
    "ftp://host/m",
    "../m",
    "weights/../../m",
    "file://host/m",
    "s3://user:secret@bucket/m",
    "https://token@host/m",
    "hf://model",
    "hf://org/model@../x",
    "s3://bucket",
    "s3://Bucket_1/m",
  ].map((source) => ({
    name: `the source ${source}`,
    text: withProfile({ engine: "sim", source }),
    path: "models[0].profiles[0].source",
  })),
  { name: "an unknown engine", text: withProfile({ engine: "vlm" }), path: "models[0].profiles[0].engine" },
  {
    name: "a reference to the environment",
    text: withProfile({ engine: "sim", env: { A: "${HOME}" } }),
    path: "models[0].profiles[0].env.A",
  },
  { name: "no profile", text: "models: [{name: m, profiles: []}]", path: "models[0].profiles" },
  { name: "a key that is not known", text: withModel({ replica: 1 }), path: "models[0].replica" },
];
for (const { name, text, path } of mistakes) {
  test(`${name} is a mistake when the catalog is given [40.C4]`, () => {
    const problems = problemsOf(text);
    assert.deepEqual(
      problems.map((problem) => problem.path),
      [path],
      formatProblems(problems),
    );
    assert.ok((problems[0]?.line ?? 0) >= 1);
  });
}

const allowed: readonly { readonly name: string; readonly text: string }[] = [
  { name: "llama.cpp on the CPU", text: withProfile({ engine: "llama.cpp", cpu: { cores: 4, memory_gb: 8 } }) },
  { name: "tei on the CPU", text: withProfile({ engine: "tei", cpu: { memory_gb: 8 } }) },
  { name: "llama.cpp on one card", text: withProfile({ engine: "llama.cpp", gpu: GPU }) },
  {
    name: "parallelism over all cards of all nodes",
    text: withProfile(
      { engine: "vllm", gpu: { ...GPU, count: 2 }, args: { "tensor-parallel-size": 2, "pipeline-parallel-size": 2 } },
      { multi_node: { nodes: 2 } },
    ),
  },
  {
    name: "a command with any arguments",
    text: withProfile({ engine: "command", command: ["/opt/run", "--port", "$(x)"] }),
  },
  { name: "a model started on demand", text: withModel({ replicas: { min: 0, max: 2 } }) },
  { name: "no model at all", text: "models: []" },
];
for (const { name, text } of allowed) {
  test(`${name} is no mistake [40.C4]`, () => assert.equal(formatProblems(problemsOf(text)), "0 mistakes"));
}

test("a name or alias that two models share is a mistake that names both places", () => {
  const text = `models:
  - {name: a, aliases: [c], profiles: [{engine: sim}]}
  - {name: b, aliases: [a, b], profiles: [{engine: sim}]}
  - {name: c, profiles: [{engine: sim}]}
`;
  assert.equal(
    formatProblems(problemsOf(text)),
    `catalog.yaml:3:25: models[1].aliases[0]: another model has this name, so a request could mean either (line 2) (found "a")
catalog.yaml:3:28: models[1].aliases[1]: stands here twice (line 3) (found "b")
catalog.yaml:4:12: models[2].name: another model has this name, so a request could mean either (line 2) (found "c")
3 mistakes`,
  );
});

test("every mistake is named at once with line, path and the nearest known word [40.C1]", () => {
  const problems = problemsOf(`models:
  - name: m
    priorty: 5
    profiles:
      - {engine: vlm}
      - {engine: vllm, source: /w, gpu: {class: h200, memory_gb: 70}}
  - name: m
    profiles: [{engine: sim}]
`);
  assert.deepEqual(
    problems.map(({ line, path, hint }) => [line, path, hint]),
    [
      [3, "models[0].priorty", "did you mean `priority`?"],
      [5, "models[0].profiles[0].engine", "did you mean `vllm`?"],
      [6, "models[0].profiles[1].gpu.class", "put it in a list: [ … ], or one line each with a dash"],
      [7, "models[1].name", undefined],
    ],
  );
});

test("the value of an environment entry is in no message", () => {
  const problems = problemsOf(withProfile({ engine: "sim", env: { TOKEN: "CANARY\nx" } }));
  assert.equal(problems.length, 1);
  assert.ok(!JSON.stringify(problems).includes("CANARY"));
});

/** Short, since each of ten thousand texts is parsed. */
const SHORT = `models:
  - name: m
    replicas: {min: 1, max: 4}
    profiles:
      - engine: sglang
        source: /weights/m
        gpu: {class: [a40], memory_gb: 40}
`;

test("ten thousand mutations of a catalog: each is taken whole or refused with a place, and none crashes [80.P10]", () => {
  let valid = 0;
  fc.assert(
    fc.property(
      fc.array(
        fc.record({
          at: fc.nat(SHORT.length),
          cut: fc.nat(6),
          put: fc.oneof(
            fc.constantFrom(
              "",
              " ",
              "\n",
              ":",
              "- ",
              "{",
              "}",
              "[",
              "]",
              "0",
              "-1",
              "1e9",
              "null",
              "&a",
              "*a",
              "!!x",
              "\t",
              "\u0000",
              "é",
              "'",
              '"',
              "#",
              "|",
              "<<: *a",
              "__proto__: {}",
              "name: ",
            ),
            fc.string({ maxLength: 4 }),
          ),
        }),
        { minLength: 1, maxLength: 2 },
      ),
      (edits) => {
        let text = SHORT;
        for (const { at, cut, put } of edits) text = text.slice(0, at) + put + text.slice(at + cut);
        const loaded = parseCatalogText(text, "catalog.yaml");
        if (loaded.kind === "valid") {
          valid += 1;
          return;
        }
        assert.ok(loaded.problems.length > 0);
        for (const { line, message } of loaded.problems) assert.ok(line >= 1 && message !== "");
      },
    ),
    { numRuns: 10_000, seed: 40 },
  );
  assert.ok(valid > 100 && valid < 9_500, `${valid} of the mutations were valid`);
});

test("a file that is absent, too large or no text is refused like any other mistake", async () => {
  const folder = await mkdtemp(join(tmpdir(), "yardmaster-catalog-"));
  const path = join(folder, "catalog.yaml");
  const refusal = async (): Promise<string> => {
    const loaded = await loadCatalogFile(path);
    return loaded.kind === "invalid" ? (loaded.problems[0]?.message ?? "") : "valid";
  };
  assert.equal(await refusal(), "there is no such file");
  await writeFile(path, Buffer.from([0x6d, 0xff, 0xfe]));
  assert.equal(await refusal(), "the file is not UTF-8 text");
  await writeFile(path, Buffer.alloc(CATALOG_BYTES_MAX + 1, "#"));
  assert.match(await refusal(), /larger than/);
  await writeFile(path, "");
  assert.match(await refusal(), /empty/);
  await writeFile(path, COMPLETE);
  assert.equal(await refusal(), "valid");
  await rm(folder, { recursive: true });
});

test("of many thousand mistakes the first are listed, and the others counted [40.C1]", () => {
  const entries = Array.from({ length: 1_200 }, (_, index) => `  - {name: "!${index}", profiles: [{engine: sim}]}\n`);
  const refused = parseCatalogText(`models:\n${entries.join("")}`, "x");
  assert.ok(refused.kind === "invalid");
  assert.deepEqual(
    [refused.problems.length, refused.problems.at(-1)?.line, refused.problems.at(-1)?.message],
    [1_001, 1_002, "200 more mistakes from here on are not listed"],
  );
});

test("a name that no path could carry is refused, one with other slashes and dots is not [40.C1]", () => {
  const nameOf = (name: string): string => `models: [{name: "${name}", profiles: [{engine: sim}]}]`;
  for (const name of ["a/../b", "a/..", "a/./b", "a/.", "x/y/../../z"]) {
    const refused = parseCatalogText(nameOf(name), "x");
    assert.ok(refused.kind === "invalid", name);
    assert.match(refused.problems[0]?.message ?? "", /no path could name the model/);
  }
  for (const name of ["org/model", "a/..b", "a/b..", "a/...", "v1.2/x.y"])
    assert.equal(parseCatalogText(nameOf(name), "x").kind, "valid", name);
});
