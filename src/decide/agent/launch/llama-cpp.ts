import { renderFlags, type FlagRules } from "./flags.ts";
import {
  chatProbe,
  completionProbe,
  embeddingProbe,
  healthReadiness,
  refused,
  rerankProbe,
  servedNames,
  type LaunchInput,
  type LaunchPlan,
} from "./launch-plan.ts";

// Left out on purpose: other models by name or address (`hf`, `mu`, the router's `models-…`), other keys and sockets, log files.
const RULES: FlagRules = {
  engine: "llama.cpp",
  form: "apart",
  negative: null,
  own: "m model host port api-key api-key-file alias a",
  allowed: `c ctx-size np parallel ngl gpu-layers n-gpu-layers t threads tb threads-batch threads-http b batch-size ub ubatch-size
    fa flash-attn fit sm split-mode ts tensor-split mg main-gpu ctk cache-type-k ctv cache-type-v nkvo no-kv-offload mlock no-mmap
    numa cb cont-batching no-cont-batching embeddings embedding pooling rerank reranking metrics slots no-slots jinja
    chat-template reasoning-format reasoning-budget mmproj lora lora-scaled spec-draft-model spec-draft-n-max
    spec-draft-n-min rope-scaling rope-scale rope-freq-base rope-freq-scale n predict n-predict s seed cache-ram cache-reuse
    sleep-idle-seconds sse-ping-interval to timeout swa-full no-context-shift context-shift no-warmup warmup verbose`,
};

const MARKERS = [
  /build: |build_info/,
  /loading model|load_model: loading/,
  /llama_model_loader|print_info/,
  /load_tensors/,
  /llama_context|llama_kv_cache/,
  /warming up the model/,
  /initializing slots|n_slots = /,
  /model loaded/,
  /listening on/,
];

export function planLlamaCpp(input: LaunchInput): LaunchPlan {
  const { start, weights } = input;
  const { profile, model } = start;
  if (weights === null) return refused("llama.cpp needs a `source`");
  if (start.shard.of > 1) return refused("llama.cpp runs on one node");
  if (input.port === null) return refused("there is no port for the engine");
  const rendered = renderFlags(profile.args, RULES);
  if (rendered.kind === "refused") return rendered;
  const given = rendered.names;
  const argv = [...input.program, "-m", weights, "--host", input.host, "--port", String(input.port)];
  argv.push("--alias", servedNames(start).join(","), "--api-key-file", input.keyFile, ...rendered.argv);
  if (!given.has("np") && !given.has("parallel")) argv.push("-np", String(model.slots));
  if (!given.has("metrics")) argv.push("--metrics");
  if (!given.has("slots") && !given.has("no-slots")) argv.push("--slots");
  if (profile.gpu === null && profile.cpu !== null && !given.has("t") && !given.has("threads"))
    argv.push("-t", String(Math.max(1, Math.floor(profile.cpu.cores))));
  const pooling = given.has("embeddings") || given.has("embedding");
  const ranking = given.has("rerank") || given.has("reranking");
  const probes = ranking
    ? [rerankProbe(model.name)]
    : pooling
      ? [embeddingProbe(model.name)]
      : [completionProbe(model.name), chatProbe(model.name)];
  return { kind: "launch", argv, env: {}, readiness: healthReadiness(probes), markers: MARKERS };
}
