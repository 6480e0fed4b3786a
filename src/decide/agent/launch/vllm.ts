import { renderFlags, type FlagRules } from "./flags.ts";
import {
  chatProbe,
  completionProbe,
  embeddingProbe,
  healthReadiness,
  isHead,
  refused,
  rerankProbe,
  servedNames,
  type LaunchInput,
  type LaunchPlan,
  type Probe,
  type Readiness,
} from "./launch-plan.ts";

// Left out on purpose: flags that load code (`worker-cls`, `middleware`, plugins, `kv-transfer-config`, a backend by its dotted
// name), open another socket (`uds`), or read further flags from a file (`config`).
const RULES: FlagRules = {
  engine: "vllm",
  form: "equals",
  negative: "no-",
  own: "model host port api-key served-model-name uds config headless nnodes node-rank master-addr master-port",
  allowed: `max-model-len max-num-seqs max-num-batched-tokens gpu-memory-utilization kv-cache-memory-bytes kv-cache-dtype dtype
    quantization enforce-eager tensor-parallel-size pipeline-parallel-size data-parallel-size enable-expert-parallel
    enable-prefix-caching enable-chunked-prefill scheduling-policy swap-space cpu-offload-gb block-size num-gpu-blocks-override seed
    tokenizer-mode trust-remote-code load-format generation-config override-generation-config hf-overrides rope-scaling rope-theta
    limit-mm-per-prompt mm-processor-kwargs enable-lora lora-modules max-loras max-lora-rank max-cpu-loras enable-auto-tool-choice
    tool-call-parser reasoning-parser chat-template chat-template-content-format response-role task runner convert
    speculative-config attention-backend distributed-timeout-seconds disable-custom-all-reduce shutdown-timeout
    enable-server-load-tracking enable-request-id-headers enable-force-include-usage enable-prompt-tokens-details disable-log-stats
    enable-log-requests disable-log-requests max-log-len uvicorn-log-level disable-uvicorn-access-log
    disable-access-log-for-endpoints api-server-count h11-max-incomplete-event-size h11-max-header-count enable-sleep-mode
    async-scheduling stream-interval optimization-level`,
};

export const VLLM_MARKERS = [
  /Initializing a V1 LLM engine|Initializing an LLM engine|vLLM API server version/,
  /Starting to load model/,
  /Loading weights took|Loading safetensors/,
  /Model loading took/,
  /Available KV cache memory/,
  /GPU KV cache size/,
  /Maximum concurrency for/,
  /Graph capturing finished/,
  /init engine \(profile, create kv cache, warmup model\) took/,
  /Starting vLLM server on/,
  /Application startup complete/,
];

export function planVllm(input: LaunchInput): LaunchPlan {
  const { start, weights } = input;
  const { profile, model, shard } = start;
  if (weights === null) return refused("vllm needs a `source`");
  const rendered = renderFlags(profile.args, RULES);
  if (rendered.kind === "refused") return rendered;
  const given = rendered.names;
  const argv = [...input.program, "serve", weights, ...rendered.argv, "--served-model-name", ...servedNames(start)];
  const cards = profile.gpu?.count ?? 1;
  if (!given.has("tensor-parallel-size") && cards > 1) argv.push(`--tensor-parallel-size=${cards}`);
  if (!given.has("pipeline-parallel-size") && shard.of > 1) argv.push(`--pipeline-parallel-size=${shard.of}`);
  if (!given.has("max-num-seqs")) argv.push(`--max-num-seqs=${model.slots}`);
  const share = memoryShare(input);
  if (share !== null && !given.has("gpu-memory-utilization") && !given.has("kv-cache-memory-bytes"))
    argv.push(`--gpu-memory-utilization=${share}`);
  const env: Record<string, string> = { VLLM_API_KEY: start.engineKey, VLLM_NO_USAGE_STATS: "1" };
  if (shard.of > 1) {
    if (shard.headAddress === null || shard.rendezvousPort === null)
      return refused("a replica over several nodes needs the address and port of its head");
    argv.push(`--nnodes=${shard.of}`, `--node-rank=${shard.index}`);
    argv.push(`--master-addr=${shard.headAddress}`, `--master-port=${shard.rendezvousPort}`);
    env["VLLM_HOST_IP"] = input.host;
  }
  if (!isHead(start))
    return {
      kind: "launch",
      argv: [...argv, "--headless"],
      env,
      readiness: { kind: "process" },
      markers: VLLM_MARKERS,
    };
  if (input.port === null) return refused("there is no port for the engine");
  argv.push(`--host=${input.host}`, `--port=${input.port}`);
  return { kind: "launch", argv, env, readiness: readiness(input), markers: VLLM_MARKERS };
}

/**
 * By itself vLLM takes nine tenths of a card: the profile's figure is its limit, rounded down. Not what was measured: it fills what it
 * is given, so each start would get a little less than the one before.
 */
function memoryShare({ start, gpuMemoryMib }: LaunchInput): string | null {
  const need = start.profile.gpu?.memoryMib;
  if (need === undefined || gpuMemoryMib.length === 0) return null;
  const known = gpuMemoryMib.filter((mib) => mib !== null);
  if (known.length < gpuMemoryMib.length) return null;
  const share = Math.floor((need / Math.min(...known)) * 100) / 100;
  return share <= 0 ? null : Math.min(share, 0.98).toFixed(2);
}

function readiness({ start }: LaunchInput): Readiness {
  const name = start.model.name;
  const { runner, task } = start.profile.args;
  const pooling = runner === "pooling" || (typeof task === "string" && /embed|score|classify|reward|pool/.test(task));
  const probes: Probe[] = pooling
    ? [embeddingProbe(name), rerankProbe(name), { path: "/classify", body: { model: name, input: "Hi" } }]
    : [completionProbe(name), chatProbe(name)];
  return healthReadiness(probes);
}
