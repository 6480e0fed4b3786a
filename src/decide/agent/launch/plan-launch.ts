import type { ReplicaEngine } from "../../../contract/catalog.ts";
import { assertNever } from "../../../kernel/assert-never.ts";
import { planCommand } from "./command.ts";
import { PICKLE_RUNS_CODE, readsPickle } from "../../weights/formats.ts";
import { checkEnv } from "./environment.ts";
import { isHead, refused, servedNames, type LaunchInput, type LaunchPlan } from "./launch-plan.ts";
import { planLlamaCpp } from "./llama-cpp.ts";
import { planSglang } from "./sglang.ts";
import { planSim } from "./sim.ts";
import { planTei } from "./tei.ts";
import { planVllm } from "./vllm.ts";

/** What stands for an engine where the configuration names no program of the node's own. `sim` is this program itself. */
export const DEFAULT_PROGRAMS: Readonly<Partial<Record<ReplicaEngine, readonly string[]>>> = {
  vllm: ["vllm"],
  sglang: ["python3", "-m", "sglang.launch_server"],
  "llama.cpp": ["llama-server"],
  tei: ["text-embeddings-router"],
};

const HOST = /^[A-Za-z0-9][A-Za-z0-9.:-]{0,254}$/;
// oxlint-disable-next-line no-control-regex -- control characters are what it keeps out
const NAME = /^[A-Za-z0-9][^\u0000-\u001f\u007f,\s]{0,255}$/;

/** Whether the shard listens: only the head of a replica does. */
export const needsPort = isHead;

/**
 * The node's own check and translation of a start, whatever the control plane has checked before. The cards are pinned by
 * UUID; a profile without a GPU sees none.
 */
export function planLaunch(input: LaunchInput): LaunchPlan {
  const { start } = input;
  const { profile } = start;
  const env = checkEnv(profile);
  if (env.kind === "refused") return env;
  const cards = profile.gpu?.count ?? 0;
  if (start.gpuUuids.length !== cards)
    return refused(`the profile needs ${cards} cards, the start names ${start.gpuUuids.length}`);
  if (start.gpuUuids.some((uuid) => !/^[A-Za-z0-9][A-Za-z0-9/-]{0,127}$/.test(uuid)))
    return refused("a GPU's name is no UUID");
  if (start.shard.index >= start.shard.of)
    return refused(`there is no shard ${start.shard.index} of ${start.shard.of}`);
  const { headAddress } = start.shard;
  if (headAddress !== null && !HOST.test(headAddress)) return refused("the head's address is no host");
  if (servedNames(start).some((name) => !NAME.test(name))) return refused("a model's name would be read as a flag");
  if (profile.allowPickle !== true && Object.entries(profile.args).some(([name, value]) => readsPickle(name, value)))
    return refused(`load-format makes the engine read pickle, and ${PICKLE_RUNS_CODE}`);
  const plan = planEngine(input);
  if (plan.kind === "refused") return plan;
  const visible = start.gpuUuids.join(",");
  return {
    ...plan,
    env: {
      HF_HUB_OFFLINE: "1",
      DO_NOT_TRACK: "1",
      ...env.env,
      CUDA_DEVICE_ORDER: "PCI_BUS_ID",
      CUDA_VISIBLE_DEVICES: visible,
      ROCR_VISIBLE_DEVICES: visible,
      ...plan.env,
    },
  };
}

function planEngine(input: LaunchInput): LaunchPlan {
  const { engine } = input.start.profile;
  switch (engine) {
    case "vllm":
      return planVllm(input);
    case "sglang":
      return planSglang(input);
    case "llama.cpp":
      return planLlamaCpp(input);
    case "tei":
      return planTei(input);
    case "command":
      return planCommand(input);
    case "sim":
      return planSim(input);
    case "comfyui":
      return refused("this version starts no comfyui; a `command` profile can");
    default:
      return assertNever(engine, "engine");
  }
}
