import { formatListen } from "../../../contract/listen-address.ts";
import { renderFlags, type FlagRules } from "./flags.ts";
import {
  completionProbe,
  healthReadiness,
  refused,
  servedNames,
  type LaunchInput,
  type LaunchPlan,
} from "./launch-plan.ts";

const RULES: FlagRules = {
  engine: "sim",
  form: "equals",
  negative: null,
  own: "listen model",
  allowed: "dialect slots prefill-tps decode-tps seed",
};

/** The simulated engine, which is this same program. */
export function planSim(input: LaunchInput): LaunchPlan {
  const { start } = input;
  if (start.shard.of > 1) return refused("the simulated engine runs on one node");
  if (input.port === null) return refused("there is no port for the engine");
  const rendered = renderFlags(start.profile.args, RULES);
  if (rendered.kind === "refused") return rendered;
  const argv = [...input.program, "sim-engine", `--listen=${formatListen({ host: input.host, port: input.port })}`];
  argv.push(...servedNames(start).map((name) => `--model=${name}`), ...rendered.argv);
  if (!rendered.names.has("slots")) argv.push(`--slots=${start.model.slots}`);
  return {
    kind: "launch",
    argv,
    env: { YARDMASTER_SIM_KEY: start.engineKey },
    readiness: healthReadiness([completionProbe(start.model.name)]),
    markers: [/sim-engine ready/],
  };
}
