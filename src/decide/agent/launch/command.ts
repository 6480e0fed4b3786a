import {
  chatProbe,
  completionProbe,
  embeddingProbe,
  refused,
  type LaunchInput,
  type LaunchPlan,
  type Probe,
} from "./launch-plan.ts";

/** What stands in braces in a command's arguments is replaced, as a whole argument or inside one. */
const PLACES = /\{(host|port|model|weights|gpus|slots)\}/g;

/**
 * A program of the node's owner. It is told where to listen by the placeholders in its arguments or by YARDMASTER_ENGINE_HOST
 * and YARDMASTER_ENGINE_PORT, and its key by YARDMASTER_ENGINE_KEY. Of the profile's `args` two count: `health-path`, and
 * `probe` (`completions`, `chat`, `embeddings` or `none`).
 */
export function planCommand(input: LaunchInput): LaunchPlan {
  const { start } = input;
  const { profile, model } = start;
  const [program, ...rest] = profile.command ?? [];
  if (program === undefined) return refused("a `command` profile needs a `command`");
  if (!input.commands.includes(program))
    return refused(`${JSON.stringify(program)} is not among this node's \`agent.commands\``);
  if (start.shard.of > 1) return refused("a `command` profile runs on one node");
  if (input.port === null) return refused("there is no port for the engine");
  const probes = probesFor(profile.args["probe"], model.name);
  const healthPath = profile.args["health-path"] ?? "/health";
  if (probes === null) return refused("`probe` is one of completions, chat, embeddings and none");
  if (typeof healthPath !== "string" || !/^\/[\w./?=&-]{0,255}$/.test(healthPath))
    return refused("`health-path` is no path");
  const other = Object.keys(profile.args).find((key) => key !== "probe" && key !== "health-path");
  if (other !== undefined) return refused(`\`${other}\`: a \`command\` profile's flags stand in its \`command\``);
  const values: Readonly<Record<string, string>> = {
    host: input.host,
    port: String(input.port),
    model: model.name,
    weights: input.weights ?? "",
    gpus: start.gpuUuids.join(","),
    slots: String(model.slots),
  };
  const env = {
    YARDMASTER_ENGINE_HOST: input.host,
    YARDMASTER_ENGINE_PORT: String(input.port),
    YARDMASTER_ENGINE_KEY: start.engineKey,
    YARDMASTER_ENGINE_MODEL: model.name,
  };
  return {
    kind: "launch",
    argv: [program, ...rest.map((word) => word.replaceAll(PLACES, (_, name: string) => values[name] ?? ""))],
    env,
    readiness: { kind: "http", healthPath, healthTimeoutMs: 5_000, healthEveryMs: 5_000, probes },
    markers: [],
  };
}

function probesFor(kind: unknown, model: string): readonly Probe[] | null {
  switch (kind ?? "completions") {
    case "completions":
      return [completionProbe(model), chatProbe(model)];
    case "chat":
      return [chatProbe(model)];
    case "embeddings":
      return [embeddingProbe(model)];
    case "none":
      return [];
    default:
      return null;
  }
}
