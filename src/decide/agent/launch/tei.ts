import { renderFlags, type FlagRules } from "./flags.ts";
import { healthReadiness, refused, type LaunchInput, type LaunchPlan } from "./launch-plan.ts";

const RULES: FlagRules = {
  engine: "tei",
  form: "equals",
  negative: null,
  own: "model-id hostname port uds-path api-key served-model-name hf-token hf-api-token otlp-endpoint cors-allow-origin",
  allowed: `max-concurrent-requests max-batch-tokens max-batch-requests max-client-batch-size auto-truncate payload-limit
    tokenization-workers dtype pooling default-prompt default-prompt-name dense-path json-output prometheus-port`,
};

const MARKERS = [
  /Maximum number of tokens per request/,
  /Starting \d+ tokenization workers/,
  /Starting model backend/,
  /Warming up model/,
  /Ready/,
];

export function planTei(input: LaunchInput): LaunchPlan {
  const { start, weights } = input;
  if (weights === null) return refused("tei needs a `source`");
  if (start.shard.of > 1) return refused("tei runs on one node");
  if (input.port === null) return refused("there is no port for the engine");
  const rendered = renderFlags(start.profile.args, RULES);
  if (rendered.kind === "refused") return rendered;
  const argv = [...input.program, `--model-id=${weights}`, `--served-model-name=${start.model.name}`, ...rendered.argv];
  // A container sets HOSTNAME, which it would take for the address to listen on.
  argv.push(`--hostname=${input.host}`, `--port=${input.port}`);
  if (!rendered.names.has("max-concurrent-requests")) argv.push(`--max-concurrent-requests=${start.model.slots}`);
  const probes = [
    { path: "/embed", body: { inputs: "Hi" } },
    { path: "/rerank", body: { query: "Hi", texts: ["Hello"] } },
    { path: "/predict", body: { inputs: "Hi" } },
    { path: "/embed_sparse", body: { inputs: "Hi" } },
  ];
  const readiness = healthReadiness(probes, 10_000);
  return { kind: "launch", argv, env: { API_KEY: start.engineKey }, readiness, markers: MARKERS };
}
