import type { StartVerb } from "../../contract/agent-link.ts";
import type { ReplicaEngine } from "../../contract/catalog.ts";
import { DEFAULT_PROGRAMS, planLaunch } from "../agent/launch/plan-launch.ts";
import { parseSource } from "../weights/source.ts";
import { type CommandFlags, readFlags } from "./command-words.ts";

/** How a command line of llama-swap is run here. */
export interface ProfileDraft {
  readonly engine: ReplicaEngine;
  readonly source: string | undefined;
  readonly args: Readonly<Record<string, string | number | boolean>>;
  /** Program and arguments of an engine that has no kind of its own here. */
  readonly command: readonly string[] | undefined;
  /** Program and leading words that the node has for the engine; null: those that the path finds. */
  readonly program: readonly string[] | null;
  /** Requests at once, if the command says it. */
  readonly slots: number | undefined;
  /** Cards, if the command says it. */
  readonly cards: number | undefined;
  /** Whether it wants a card at all; null: it does not say. */
  readonly wantsGpu: boolean | null;
  /** Why it runs as a plain command though the engine is known. */
  readonly whyCommand: string | null;
}

interface Known {
  readonly engine: Exclude<ReplicaEngine, "command" | "sim" | "comfyui">;
  /** Words that lead to the flags. */
  readonly leading: number;
  readonly source: readonly string[];
  readonly slots: readonly string[];
  readonly cards: readonly string[];
  readonly own: readonly string[];
}

const PIPELINE = ["pipeline-parallel-size", "pp-size"];
const KEYS = ["api-key", "api-key-file", "admin-api-key", "hf-token", "hf-api-token"];

function knownEngine(words: readonly string[]): Known | null {
  const name = words[0]?.split("/").at(-1) ?? "";
  const common = ["host", "port", ...KEYS];
  if (/^llama-server(?:[-.].*)?$/.test(name))
    return {
      engine: "llama.cpp",
      leading: 1,
      source: ["m", "model"],
      slots: ["np", "parallel"],
      cards: [],
      own: [...common, "a", "alias"],
    };
  const vllm = {
    engine: "vllm",
    source: ["model"],
    slots: ["max-num-seqs"],
    cards: ["tensor-parallel-size", "tp"],
    own: [...common, "served-model-name"],
  } as const;
  if (name === "vllm" && words[1] === "serve") return { ...vllm, leading: 2 };
  if (/^python[\d.]*$/.test(name) && words[1] === "-m") {
    if (words[2] === "vllm.entrypoints.openai.api_server") return { ...vllm, leading: 3 };
    if (words[2] === "sglang.launch_server")
      return {
        engine: "sglang",
        leading: 3,
        source: ["model-path", "model"],
        slots: ["max-running-requests"],
        cards: ["tp-size", "tp", "tensor-parallel-size"],
        own: [...common, "served-model-name"],
      };
  }
  if (name === "text-embeddings-router")
    return {
      engine: "tei",
      leading: 1,
      source: ["model-id"],
      slots: ["max-concurrent-requests"],
      cards: [],
      own: [...common, "hostname", "p", "served-model-name"],
    };
  return null;
}

/** `words` still hold `${PORT}` where the port goes. */
export function draftProfile(words: readonly string[]): ProfileDraft {
  const known = knownEngine(words);
  if (known === null) return asCommand(words, null, readFlags(words.slice(1)));
  const read = readFlags(words.slice(known.leading));
  const typed = typedProfile(words, known, read);
  return typeof typed === "string" ? asCommand(words, typed, read) : typed;
}

/** Or why the engine can't be run as one of its kind. */
function typedProfile(
  words: readonly string[],
  known: Known,
  { flags, rest, twice }: CommandFlags,
): ProfileDraft | string {
  const positional = known.engine === "vllm" ? rest[0] : undefined;
  if (rest.length > (positional === undefined ? 0 : 1)) return "it has words that belong to no flag";
  if (twice.length > 0) return `\`${twice[0]}\` stands there twice`;
  const given = known.source.map((name) => flags.get(name)).find((value) => value !== undefined) ?? positional;
  const source = typeof given === "string" ? sourceOf(known, given) : undefined;
  if (source === undefined) return "it names no weights by a path";
  const names = new Set([...known.source, ...known.slots, ...known.own, ...known.cards]);
  const kept = Object.fromEntries([...flags].filter(([name]) => !names.has(name)));
  const slots = numberOf(known.slots, flags);
  const tensor = numberOf(known.cards, flags);
  const pipeline = numberOf(PIPELINE, flags);
  // The tensor size is that of the cards, unless another size takes its part of them.
  const args = pipeline === undefined || tensor === undefined ? kept : { ...kept, [known.cards[0] ?? ""]: tensor };
  const cards = pipeline === undefined ? tensor : pipeline * (tensor ?? 1);
  const profile: ProfileDraft = {
    engine: known.engine,
    source,
    args,
    command: undefined,
    program: programOf(words, known),
    slots,
    cards,
    wantsGpu: wantsGpu(known, flags),
    whyCommand: null,
  };
  const refusal = whyRefused(profile);
  return refusal ?? profile;
}

function sourceOf({ engine }: Known, given: string): string | undefined {
  if (given.startsWith("/")) return `file://${given}`;
  const isHub = engine !== "llama.cpp" && /^[\w.-]+\/[\w.-]+$/.test(given);
  const source = isHub ? `hf://${given}@main` : given;
  return parseSource(source, "/weights").kind === "unavailable" ? undefined : source;
}

const numberOf = (names: readonly string[], flags: CommandFlags["flags"]): number | undefined => {
  const value = names.map((name) => flags.get(name)).find((found) => found !== undefined);
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : undefined;
};

/** The words before the flags, where they are not what an agent takes anyway. */
function programOf(words: readonly string[], { engine, leading }: Known): readonly string[] | null {
  const program = engine === "vllm" ? words.slice(0, 1) : words.slice(0, leading);
  const usual = DEFAULT_PROGRAMS[engine] ?? [];
  return program.join(" ") === usual.join(" ") ? null : program;
}

function wantsGpu({ engine }: Known, flags: CommandFlags["flags"]): boolean | null {
  if (engine !== "llama.cpp") return engine === "tei" ? null : true;
  const layers = ["ngl", "gpu-layers", "n-gpu-layers"]
    .map((name) => flags.get(name))
    .find((value) => value !== undefined);
  return layers === undefined ? null : layers !== 0;
}

/** Asks the agent's own rules, so that a profile that no node would start is not written down. */
function whyRefused(profile: ProfileDraft): string | null {
  const start = {
    kind: "start",
    replicaId: "r1",
    generation: 1,
    shard: { index: 0, of: 1, headAddress: null, rendezvousPort: null },
    model: { name: "m", aliases: [], slots: 1 },
    profile: {
      hash: "",
      engine: profile.engine,
      source: profile.source ?? null,
      sha256: null,
      weightsName: null,
      gpu: null,
      cpu: null,
      diskMib: 0,
      args: profile.args,
      env: {},
      command: null,
    },
    gpuUuids: [],
    gpuMemoryMib: 0,
    engineKey: "a key for nobody",
    startStallMs: 1,
    stopGraceMs: 1,
  } satisfies StartVerb;
  const plan = planLaunch({
    start,
    host: "127.0.0.1",
    port: 1,
    weights: "/weights",
    gpuMemoryMib: [],
    program: DEFAULT_PROGRAMS[profile.engine] ?? [],
    commands: [],
    keyFile: "/key",
  });
  return plan.kind === "refused" ? plan.why : null;
}

function asCommand(words: readonly string[], whyCommand: string | null, { flags }: CommandFlags): ProfileDraft {
  const [program = "", ...rest] = words;
  const layers = ["ngl", "gpu-layers", "n-gpu-layers"]
    .map((name) => flags.get(name))
    .find((value) => value !== undefined);
  return {
    engine: "command",
    source: undefined,
    args: {},
    command: [
      program.startsWith("/") ? program : `/usr/bin/${program.split("/").at(-1) ?? program}`,
      ...(whyCommand === null ? rest : onTheNodesAddress(rest)).map((word) => word.replaceAll("${PORT}", "{port}")),
    ],
    program: null,
    slots: numberOf(["np", "parallel", "max-num-seqs", "max-running-requests"], flags),
    cards: numberOf(["tensor-parallel-size", "tp-size", "tp"], flags),
    wantsGpu: layers === undefined ? null : layers !== 0,
    whyCommand,
  };
}

/** A known engine listens where gateways reach the node, and not where it was reached on one machine. */
const onTheNodesAddress = (words: readonly string[]): string[] =>
  words.map((word, at) =>
    words[at - 1] === "--host" ? "{host}" : word.startsWith("--host=") ? "--host={host}" : word,
  );
