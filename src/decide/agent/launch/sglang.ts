import { renderFlags, type FlagRules } from "./flags.ts";
import {
  chatProbe,
  completionProbe,
  embeddingProbe,
  healthReadiness,
  isHead,
  refused,
  type LaunchInput,
  type LaunchPlan,
} from "./launch-plan.ts";

const RULES: FlagRules = {
  engine: "sglang",
  form: "equals",
  negative: null,
  own: "model model-path host port api-key admin-api-key served-model-name config nnodes node-rank dist-init-addr grpc-port smg-grpc-mode",
  allowed: `tp-size pp-size dp-size ep-size tensor-parallel-size mem-fraction-static context-length max-running-requests
    max-queued-requests max-total-tokens max-prefill-tokens chunked-prefill-size schedule-policy schedule-conservativeness
    enable-metrics enable-priority-scheduling schedule-low-priority-values-first abort-on-priority-when-disabled
    enable-memory-saver watchdog-timeout skip-server-warmup uvicorn-access-log-exclude-prefixes quantization dtype kv-cache-dtype
    is-embedding tool-call-parser reasoning-parser chat-template trust-remote-code load-format attention-backend
    sampling-backend disable-radix-cache disable-cuda-graph cuda-graph-max-bs enable-torch-compile enable-dp-attention
    speculative-algorithm speculative-draft-model-path speculative-num-steps speculative-eagle-topk
    speculative-num-draft-tokens random-seed log-level log-requests decode-log-interval stream-interval`,
};

const MARKERS = [
  /server_args=/,
  /Load weight begin/,
  /Load weight end/,
  /KV Cache is allocated/,
  /Capture cuda graph begin/,
  /Capture cuda graph end/,
  /max_total_num_tokens=/,
  /Uvicorn running on/,
  /The server is fired up and ready to roll!/,
];

export function planSglang(input: LaunchInput): LaunchPlan {
  const { start, weights } = input;
  const { profile, model, shard } = start;
  if (weights === null) return refused("sglang needs a `source`");
  const rendered = renderFlags(profile.args, RULES);
  if (rendered.kind === "refused") return rendered;
  const given = rendered.names;
  const argv = [...input.program, `--model-path=${weights}`, `--served-model-name=${model.name}`, ...rendered.argv];
  const cards = (profile.gpu?.count ?? 1) * shard.of;
  if (!given.has("tp-size") && !given.has("tensor-parallel-size") && cards > 1) argv.push(`--tp-size=${cards}`);
  if (!given.has("max-running-requests")) argv.push(`--max-running-requests=${model.slots}`);
  if (!given.has("enable-metrics")) argv.push("--enable-metrics");
  if (shard.of > 1) {
    if (shard.headAddress === null || shard.rendezvousPort === null)
      return refused("a replica over several nodes needs the address and port of its head");
    argv.push(`--nnodes=${shard.of}`, `--node-rank=${shard.index}`);
    argv.push(`--dist-init-addr=${hostAndPort(shard.headAddress, shard.rendezvousPort)}`);
  }
  if (!isHead(start)) return { kind: "launch", argv, env: {}, readiness: { kind: "process" }, markers: MARKERS };
  // It takes its key by no other way than the command line.
  argv.push(`--api-key=${start.engineKey}`);
  if (input.port === null) return refused("there is no port for the engine");
  argv.push(`--host=${input.host}`, `--port=${input.port}`);
  const probes =
    profile.args["is-embedding"] === true
      ? [embeddingProbe(model.name)]
      : [completionProbe(model.name), chatProbe(model.name)];
  // Its health page generates a token, and takes up to 20 s for it under load.
  const readiness = healthReadiness(probes, 25_000, 30_000);
  return { kind: "launch", argv, env: {}, readiness, markers: MARKERS };
}

const hostAndPort = (host: string, port: number): string =>
  host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
