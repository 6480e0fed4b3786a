import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { StartVerb } from "../../../contract/agent-link.ts";
import type { Profile, ReplicaEngine } from "../../../contract/catalog.ts";
import { aStart } from "../../../testing/a-start.ts";
import type { Launch, LaunchInput } from "./launch-plan.ts";
import { DEFAULT_PROGRAMS, planLaunch } from "./plan-launch.ts";

const KEY = "CANARY-engine-key-0123456789";
const TOOL = "/opt/tools/serve";

function input(profile: Partial<Profile>, over: Partial<Omit<StartVerb, "profile">> = {}): LaunchInput {
  const engine: ReplicaEngine = profile.engine ?? "vllm";
  const gpu = profile.gpu === undefined ? null : profile.gpu;
  const start = aStart({
    profile: { engine, ...profile },
    gpuUuids: Array.from({ length: gpu?.count ?? 0 }, (_, at) => `GPU-${at}`),
    engineKey: KEY,
    ...over,
  });
  return {
    start,
    host: "10.0.0.5",
    port: 18_000,
    weights: profile.source ?? null,
    gpuMemoryMib: start.gpuUuids.map(() => 100_000),
    program: DEFAULT_PROGRAMS[engine] ?? ["yardmaster"],
    commands: [TOOL],
    keyFile: "/data/key",
  };
}

function launched(from: LaunchInput): Launch {
  const plan = planLaunch(from);
  return plan.kind === "launch" ? plan : assert.fail(plan.why);
}
const refusal = (from: LaunchInput): string => {
  const plan = planLaunch(from);
  return plan.kind === "refused" ? plan.why : assert.fail(plan.argv.join(" "));
};
const H200 = { classes: ["h200"], count: 2, memoryMib: 70_000 };
const W = "/weights/model";

test("vllm is told its model, names, address, cards and slots, as separate arguments [40.N5]", () => {
  const plan = launched(
    input({ source: W, gpu: H200, args: { "max-model-len": 32_768, "enable-prefix-caching": false } }),
  );
  assert.deepEqual(plan.argv, [
    ...["vllm", "serve", W, "--max-model-len=32768", "--no-enable-prefix-caching"],
    ...["--served-model-name", "m", "m-alias", "--tensor-parallel-size=2", "--max-num-seqs=4"],
    ...["--gpu-memory-utilization=0.70", "--host=10.0.0.5", "--port=18000"],
  ]);
  assert.equal(plan.env["CUDA_VISIBLE_DEVICES"], "GPU-0,GPU-1");
  assert.equal(plan.env["VLLM_API_KEY"], KEY);
});

test("what a profile says itself is not said twice", () => {
  const args = { "tensor-parallel-size": 1, max_num_seqs: 8, "gpu-memory-utilization": 0.5 };
  const { argv } = launched(input({ source: W, gpu: H200, args }));
  for (const name of ["tensor-parallel-size", "max-num-seqs", "gpu-memory-utilization"])
    assert.equal(argv.filter((word) => word.startsWith(`--${name}=`)).length, 1, name);
});

test("a share of a card is only told when the card's size is known", () => {
  const from = input({ source: W, gpu: { ...H200, count: 1 } });
  const { argv } = launched({ ...from, gpuMemoryMib: [null] });
  assert.ok(!argv.some((word) => word.startsWith("--gpu-memory-utilization")));
});

test("of a replica over two nodes only the head listens; the other shard is headless and known by its process", () => {
  const shard = { of: 2, headAddress: "10.0.0.5", rendezvousPort: 29_501 };
  const head = launched(input({ source: W, gpu: H200 }, { shard: { ...shard, index: 0 } }));
  const other = launched({ ...input({ source: W, gpu: H200 }, { shard: { ...shard, index: 1 } }), port: null });
  const both = ["--nnodes=2", "--master-addr=10.0.0.5", "--master-port=29501", "--pipeline-parallel-size=2"];
  for (const word of both) assert.ok(head.argv.includes(word) && other.argv.includes(word), word);
  assert.ok(head.argv.includes("--node-rank=0") && other.argv.includes("--node-rank=1"));
  assert.ok(other.argv.includes("--headless") && !other.argv.some((word) => word.startsWith("--port")));
  assert.deepEqual([head.readiness.kind, other.readiness.kind], ["http", "process"]);
  assert.match(
    refusal(input({ source: W, gpu: H200 }, { shard: { index: 0, of: 2, headAddress: null, rendezvousPort: null } })),
    /head/,
  );
});

test("sglang, llama.cpp and tei are told the same in their own words [40.N5]", () => {
  const sglang = launched(input({ engine: "sglang", source: W, gpu: H200 })).argv;
  for (const word of ["sglang.launch_server", `--model-path=${W}`, "--tp-size=2", "--port=18000", "--host=10.0.0.5"])
    assert.ok(sglang.includes(word), word);
  const llama = launched(
    input({ engine: "llama.cpp", source: W, cpu: { cores: 2, memoryMib: 1 }, args: { c: 4096, ngl: -1, jinja: true } }),
  ).argv;
  assert.deepEqual(llama, [
    ...["llama-server", "-m", W, "--host", "10.0.0.5", "--port", "18000", "--alias", "m,m-alias"],
    ...[
      "--api-key-file",
      "/data/key",
      "-c",
      "4096",
      "-ngl",
      "-1",
      "--jinja",
      "-np",
      "4",
      "--metrics",
      "--slots",
      "-t",
      "2",
    ],
  ]);
  const tei = launched(input({ engine: "tei", source: W }));
  assert.ok(tei.argv.includes("--hostname=10.0.0.5") && tei.argv.includes("--max-concurrent-requests=4"));
  assert.equal(tei.env["API_KEY"], KEY);
  assert.equal(tei.env["CUDA_VISIBLE_DEVICES"], "");
});

test("an embedding or ranking model is tried with what it can do", () => {
  const paths = (from: LaunchInput): string[] => {
    const { readiness } = launched(from);
    return readiness.kind === "http" ? readiness.probes.map((probe) => probe.path) : [];
  };
  assert.equal(paths(input({ source: W, args: { runner: "pooling" } }))[0], "/v1/embeddings");
  assert.equal(paths(input({ engine: "llama.cpp", source: W, args: { reranking: true } }))[0], "/v1/rerank");
  assert.equal(paths(input({ engine: "sglang", source: W, args: { "is-embedding": true } }))[0], "/v1/embeddings");
  assert.equal(paths(input({ engine: "tei", source: W }))[0], "/embed");
});

test("a command runs only when the node lists it, and its placeholders are filled in without a shell [40.N5]", () => {
  const command = [TOOL, "--port", "{port}", "--at={host}:{port}", "$(reboot)", "a;b"];
  const plan = launched(input({ engine: "command", command, args: { "health-path": "/up", probe: "none" } }));
  assert.deepEqual(plan.argv, [TOOL, "--port", "18000", "--at=10.0.0.5:18000", "$(reboot)", "a;b"]);
  assert.equal(plan.env["YARDMASTER_ENGINE_KEY"], KEY);
  assert.match(refusal(input({ engine: "command", command: ["/bin/sh", "-c", "id"] })), /agent\.commands/);
  assert.match(refusal(input({ engine: "command", command: ["serve"] })), /agent\.commands/);
});

test("the simulated engine takes its own flags", () => {
  const { argv } = launched(input({ engine: "sim", args: { dialect: "llama.cpp", "decode-tps": 5 } }));
  assert.ok(argv.includes("--dialect=llama.cpp") && argv.includes("--model=m-alias") && argv.includes("--slots=4"));
  assert.match(refusal(input({ engine: "sim", args: { listen: "0.0.0.0:80" } })), /itself/);
});

const refusals: readonly { readonly name: string; readonly from: LaunchInput }[] = [
  { name: "a second address", from: input({ source: W, args: { host: "0.0.0.0" } }) },
  { name: "another key", from: input({ source: W, args: { "api-key": "x" } }) },
  { name: "code from a file", from: input({ source: W, args: { middleware: "evil.module" } }) },
  { name: "a configuration file", from: input({ source: W, args: { config: "/tmp/x.yaml" } }) },
  { name: "a socket", from: input({ source: W, args: { uds: "/tmp/s" } }) },
  { name: "a flag nobody knows", from: input({ source: W, args: { "brand-new": true } }) },
  { name: "a flag by another spelling", from: input({ source: W, args: { max_model_len: 1, "max-model-len": 2 } }) },
  { name: "a line break in a value", from: input({ source: W, args: { dtype: "half\n--host=0.0.0.0" } }) },
  {
    name: "a flag as a value",
    from: input({ engine: "llama.cpp", source: W, args: { "chat-template": "--api-key-file" } }),
  },
  { name: "LD_PRELOAD", from: input({ source: W, env: { LD_PRELOAD: "/tmp/x.so" } }) },
  { name: "NODE_OPTIONS", from: input({ engine: "sim", env: { NODE_OPTIONS: "--require=/tmp/x" } }) },
  { name: "PYTHONPATH", from: input({ source: W, env: { PYTHONPATH: "/tmp" } }) },
  {
    name: "PYTHONSTARTUP for a command",
    from: input({ engine: "command", command: [TOOL], env: { PYTHONSTARTUP: "x" } }),
  },
  {
    name: "ld_preload in small letters",
    from: input({ engine: "command", command: [TOOL], env: { ld_preload: "x" } }),
  },
  { name: "PATH", from: input({ source: W, env: { PATH: "/tmp" } }) },
  { name: "BASH_ENV", from: input({ engine: "command", command: [TOOL], env: { BASH_ENV: "x" } }) },
  { name: "a proxy", from: input({ source: W, env: { HTTPS_PROXY: "http://x" } }) },
  { name: "vLLM's developer mode", from: input({ source: W, env: { VLLM_SERVER_DEV_MODE: "1" } }) },
  {
    name: "flags of llama.cpp by variable",
    from: input({ engine: "llama.cpp", source: W, env: { LLAMA_ARG_HOST: "x" } }),
  },
  { name: "other cards", from: input({ source: W, env: { CUDA_VISIBLE_DEVICES: "0,1" } }) },
  {
    name: "the mark of ownership",
    from: input({ engine: "command", command: [TOOL], env: { YARDMASTER_PROOF: "x" } }),
  },
  { name: "a variable of nothing known", from: input({ source: W, env: { SOMETHING: "1" } }) },
  { name: "cards that the profile does not need", from: input({ source: W }, { gpuUuids: ["GPU-0"] }) },
  {
    name: "a card's name with a comma",
    from: input({ source: W, gpu: { ...H200, count: 1 } }, { gpuUuids: ["GPU-0,1"] }),
  },
  {
    name: "a model's name that is a flag",
    from: input({ source: W }, { model: { name: "--host", aliases: [], slots: 1 } }),
  },
  { name: "vllm without weights", from: input({}) },
  { name: "comfyui", from: input({ engine: "comfyui" }) },
];
for (const { name, from } of refusals) {
  test(`${name} in a start is refused before any process is made [80.C40 80.D28]`, () => {
    assert.doesNotMatch(refusal(from), /CANARY/);
  });
}

for (const args of [{ "load-format": "pt" }, { load_format: "npcache" }, { "Load-Format": " PT " }])
  test(`${JSON.stringify(args)} is refused by the node itself where the model may have no pickle [80.C43]`, () => {
    assert.match(refusal(input({ source: W, args })), /reads? pickle/);
    const allowed = planLaunch(input({ source: W, args, allowPickle: true }));
    assert.ok(allowed.kind === "launch" || !/pickle/.test(allowed.why));
  });

test("whatever a profile's arguments hold, each is one word behind its own flag, and the key is in none [80.D28]", () => {
  const nasty = fc.oneof(
    fc.string(),
    fc.constantFrom("; rm -rf ~", "$(id)", "`id`", "--host=0.0.0.0", "a b", "'", '"', "\\", "-1", "=x"),
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
  );
  const args = fc.dictionary(fc.constantFrom("dtype", "seed", "max-model-len", "chat-template", "timeout", "c"), nasty);
  fc.assert(
    fc.property(fc.constantFrom<ReplicaEngine>("vllm", "llama.cpp", "tei"), args, (engine, given) => {
      const plan = planLaunch(input({ engine, source: W, args: given }));
      if (plan.kind === "refused") return;
      assert.ok(!plan.argv.some((word) => word.includes("CANARY")));
      const dashed = plan.argv.filter((word) => word === "--host" || word.startsWith("--host="));
      assert.ok(dashed.length <= 1, plan.argv.join(" "));
      for (const word of plan.argv) assert.ok(!/[\n\r]/.test(word) && !word.includes("\0"));
    }),
  );
});
