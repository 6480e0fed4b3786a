import { present, type Draft } from "./conversion.ts";
import { commandWords } from "./command-words.ts";
import { expand, isSecretName, readMacros, type Macros } from "./llama-swap-macros.ts";
import { draftProfile, type ProfileDraft } from "./llama-swap-profile.ts";
import type { Branch } from "./source-tree.ts";

/** The cards of the machine, as whoever converts says. */
export interface GpuGiven {
  readonly class: string;
  readonly memoryGb: number;
}

export interface ModelSurroundings {
  readonly macros: Macros;
  readonly globalTtlS: number;
  /** Models that are loaded at the start. */
  readonly preloaded: ReadonlySet<string>;
  readonly gpu: GpuGiven | null;
}

export interface ConvertedModel {
  readonly branch: Branch;
  readonly entry: Readonly<Record<string, unknown>>;
  readonly names: readonly string[];
  /** What the agent needs in its own part of the configuration. */
  readonly program: { readonly engine: string; readonly words: readonly string[] } | null;
  readonly allowed: string | null;
  /** Limits that only an upstream has. */
  readonly timeouts: Readonly<Record<string, number>>;
}

const SERVED_NAME = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,255}$/;
/** How long a model that llama-swap would only stop for another one is idle before it makes room. */
const MAKES_ROOM_S = 30;
const SLOTS_MAX = 100_000;
const GPU_ASSUMED: GpuGiven = { class: "my-gpu", memoryGb: 24 };
const ALIASES_MAX = 64;

/** Null where it can't be run here; why is noted. */
export function convertModel(
  id: string,
  model: Branch,
  around: ModelSurroundings,
  draft: Draft,
): ConvertedModel | null {
  if (!SERVED_NAME.test(id))
    return refuse(model, draft, "has a name with characters that no model's name may have here");
  const macros = readMacros(model.at("macros"), around.macros.values);
  model.at("macros").take();
  const values = new Map(macros).set("MODEL_ID", id);
  const own: Macros = { values, env: around.macros.env };
  const words = readCommand(model, own, draft);
  if (words === null) return null;
  const profile = draftProfile(withoutSecrets(words, model.at("cmd"), draft));
  remark(profile, model, draft);
  const aliases = readAliases(model, id, draft);
  const slots = readSlots(model, profile, draft);
  const isPreloaded = around.preloaded.has(id);
  const entry = present({
    name: id,
    aliases: aliases.length === 0 ? undefined : aliases,
    replicas: { min: isPreloaded ? 1 : 0, max: 1 },
    idle_stop_s: isPreloaded ? undefined : readTtl(model, around, draft),
    slots_per_replica: slots,
    profiles: [profileEntry(model, profile, own, around, draft)],
  });
  if (hasControls(entry))
    return refuse(model, draft, "holds a control character, such as a line break inside of a word");
  return {
    branch: model,
    entry,
    names: [id, ...aliases],
    program: profile.program === null ? null : { engine: profile.engine, words: profile.program },
    allowed: profile.command?.[0] ?? null,
    timeouts: readTimeouts(model.at("timeouts"), draft),
  };
}

// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

function hasControls(value: unknown): boolean {
  if (typeof value === "string") return CONTROL.test(value);
  return typeof value === "object" && value !== null && Object.values(value).some(hasControls);
}

function refuse(model: Branch, draft: Draft, why: string): null {
  draft.note(model, "dropped", why);
  return null;
}

/** A key is left out of the command in any case, so nobody has to know it. */
const KEY_FROM_ENV = /(--?(?:api-key|admin-api-key|hf-token|hf-api-token)(?:=|\s+))\$\{env\.\w+\}/g;

function readCommand(model: Branch, macros: Macros, draft: Draft): string[] | null {
  const cmd = model.at("cmd");
  const text = cmd.text();
  if (text === undefined) return refuse(model, draft, "has no `cmd`");
  const expanded = expand(text.replaceAll(KEY_FROM_ENV, "$1left-out"), macros);
  if (expanded.kind === "unknown")
    return refuse(
      model,
      draft,
      `its command names \${${expanded.name}}, which is not known here: write it out, or set the variable while you convert`,
    );
  for (const variable of expanded.fromEnv)
    draft.note(cmd, "changed", `holds the value that the environment variable ${variable} has now`);
  const words = commandWords(expanded.text);
  if (words === null || words.length === 0)
    return refuse(model, draft, "its command can't be read: a quote is not closed, or nothing is there");
  return words;
}

/** Keys that stand in the command are not written down; the agent gives each engine a key of its own. */
function withoutSecrets(words: readonly string[], cmd: Branch, draft: Draft): string[] {
  const kept: string[] = [];
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? "";
    const flag = /^--?(api-key|admin-api-key|hf-token|hf-api-token)(=.*)?$/.exec(word);
    const variable = /^(-e|--env)?=?([A-Za-z_]\w*)=./.exec(word);
    if (flag !== null) {
      if (flag[2] === undefined) at += 1;
      draft.note(cmd, "secret", `\`--${flag[1]}\` was left out: the agent gives each engine a key of its own`);
    } else if (variable !== null && !word.startsWith("--") && isSecretName(variable[2] ?? "")) {
      kept.push(word.slice(0, word.indexOf("=", (variable[1] ?? "").length + 1)));
      draft.note(cmd, "secret", `the value of ${variable[2]} stood there in plain text and was left out`);
    } else kept.push(word);
  }
  return kept;
}

function remark(profile: ProfileDraft, model: Branch, draft: Draft): void {
  const cmd = model.at("cmd");
  if (profile.whyCommand !== null)
    draft.note(cmd, "changed", `runs as a plain \`command\`, since ${profile.whyCommand}: its load is not seen`);
  const [program] = profile.command ?? [];
  if (program !== undefined && program.startsWith("/usr/bin/"))
    draft.note(cmd, "assumed", `the program is looked for at ${program}: an agent starts programs by their whole path`);
  if (profile.source !== undefined && !/^(?:\/|[a-z]+:\/\/)/.test(profile.source))
    draft.note(cmd, "changed", "the path of its weights is not absolute: it is looked for below `agent.weights_dir`");
  const stop = model.at("cmdStop");
  if (stop.isThere)
    draft.note(stop, "dropped", "engines are told to end by SIGTERM, and killed after `control.stop_grace_s`");
  const name = model.at("useModelName");
  if (name.text() !== undefined)
    draft.note(
      name,
      profile.engine === "command" ? "dropped" : "changed",
      profile.engine === "command"
        ? "the engine gets the name that the client sent"
        : "the engine is started with the names that clients use",
    );
  const proxy = model.at("proxy").text();
  if (proxy !== undefined && !proxy.includes("${PORT}"))
    draft.note(model.at("proxy"), "changed", "the agent gives each engine a port: let the command listen on `{port}`");
}

function readAliases(model: Branch, id: string, draft: Draft): string[] {
  const aliases: string[] = [];
  for (const branch of model.at("aliases").list()) {
    const alias = branch.scalar() ?? branch.at("id").scalar();
    if (alias === undefined) continue;
    if (alias === id || aliases.includes(alias)) continue;
    if (!SERVED_NAME.test(alias) || aliases.length >= ALIASES_MAX)
      draft.note(branch, "dropped", "is no name that a model may have here");
    else aliases.push(alias);
  }
  return aliases;
}

function readSlots(model: Branch, profile: ProfileDraft, draft: Draft): number {
  const limit = model.at("concurrencyLimit");
  const asked = limit.number();
  if (asked !== undefined && asked > 0) {
    draft.note(limit, "changed", "what is more waits in the queue of its class, and is refused only when that is full");
    return Math.min(Math.ceil(asked), SLOTS_MAX);
  }
  if (profile.slots !== undefined) return Math.min(profile.slots, SLOTS_MAX);
  draft.note(
    limit,
    "assumed",
    "is not there, nor does the command say it: one request at a time (`slots_per_replica`)",
  );
  return 1;
}

function readTtl(model: Branch, { globalTtlS }: ModelSurroundings, draft: Draft): number {
  const branch = model.at("ttl");
  const own = branch.number();
  const ttl = own === undefined || own < 0 ? globalTtlS : own;
  if (ttl > 0) return Math.min(ttl, 31_536_000);
  draft.note(
    branch,
    "changed",
    `it was stopped only for another model; here a model makes room once nobody has asked for it for ${MAKES_ROOM_S} s (\`idle_stop_s\`)`,
  );
  return MAKES_ROOM_S;
}

function profileEntry(
  model: Branch,
  profile: ProfileDraft,
  macros: Macros,
  around: ModelSurroundings,
  draft: Draft,
): Record<string, unknown> {
  const { env, cards } = readEnv(model.at("env"), macros, draft);
  const wantsGpu = profile.wantsGpu ?? (cards !== undefined ? cards > 0 : around.gpu !== null);
  if (wantsGpu && around.gpu === null)
    draft.note(
      model.at("cmd"),
      "assumed",
      `wants a GPU, and no file says which: class ${GPU_ASSUMED.class} with ${GPU_ASSUMED.memoryGb} GB is nobody's; convert with \`--gpu CLASS:GB\``,
    );
  const gpu = around.gpu ?? GPU_ASSUMED;
  const args = { ...profile.args, ...commandArgs(model, profile, macros, draft) };
  return present({
    engine: profile.engine,
    source: profile.source,
    gpu: wantsGpu
      ? { class: [gpu.class], count: profile.cards ?? Math.max(cards ?? 1, 1), memory_gb: gpu.memoryGb }
      : undefined,
    args: Object.keys(args).length === 0 ? undefined : args,
    env: Object.keys(env).length === 0 ? undefined : env,
    command: profile.command,
  });
}

/** How a plain command is seen to be ready. */
function commandArgs(model: Branch, profile: ProfileDraft, macros: Macros, draft: Draft): Record<string, string> {
  const branch = model.at("checkEndpoint");
  const asked = branch.text();
  const path = asked === undefined ? undefined : expand(asked, macros);
  if (profile.engine !== "command") {
    if (asked !== undefined && asked !== "/health")
      draft.note(branch, "changed", "an engine of a known kind is asked at the pages of its kind");
    return {};
  }
  const probe = profile.whyCommand === null ? { probe: "none" } : probeOf(profile);
  if (path?.kind === "text" && /^\/[\w./?=&-]{0,255}$/.test(path.text)) return { "health-path": path.text, ...probe };
  if (asked !== undefined)
    draft.note(
      branch,
      "changed",
      "an engine is always asked for a page that says that it lives (`health-path`, /health)",
    );
  return probe;
}

function probeOf({ command = [] }: ProfileDraft): Record<string, string> {
  if (command.some((word) => /^--?(?:embeddings?|is-embedding)$/.test(word))) return { probe: "embeddings" };
  return command.some((word) => /^--?rerank(?:ing)?$/.test(word)) ? { probe: "none" } : {};
}

const VISIBLE = /^(?:CUDA|HIP|ROCR|NVIDIA)_VISIBLE_DEVICES$/;
const ALLOWED_ENV = /^(?:VLLM|SGLANG|GGML|LLAMA|NCCL|CUDA|TORCH|OMP|HF_HUB|HIP|ROCM)_[A-Z0-9_]+$/;

function readEnv(
  branch: Branch,
  macros: Macros,
  draft: Draft,
): { readonly env: Record<string, string>; readonly cards: number | undefined } {
  const env: Record<string, string> = {};
  let cards: number | undefined;
  for (const entry of branch.list()) {
    const text = entry.text();
    const expanded = text === undefined ? undefined : expand(text, macros);
    const match = expanded?.kind === "text" ? /^([A-Za-z_]\w*)=([\s\S]*)$/.exec(expanded.text) : null;
    const [, name = "", value = ""] = match ?? [];
    if (match === null) {
      draft.note(entry, "dropped", "is no NAME=VALUE whose value is known here");
    } else if (VISIBLE.test(name)) {
      cards = value.split(",").filter((part) => part.trim() !== "" && part.trim() !== "-1").length;
      draft.note(entry, "changed", "placement chooses the cards; the number of them was taken over");
    } else if (isSecretName(name)) {
      draft.note(entry, "secret", `${name} was left out: a catalog is no place for secrets`);
    } else if (!ALLOWED_ENV.test(name)) {
      draft.note(entry, "dropped", `${name} is not among the variables that an agent gives to engines`);
    } else env[name] = value;
  }
  return { env, cards };
}

function readTimeouts(branch: Branch, draft: Draft): Record<string, number> {
  const timeouts: Record<string, number> = {};
  for (const [key, name] of [
    ["connect", "connect_s"],
    ["responseHeader", "first_byte_s"],
  ] as const) {
    const asked = branch.at(key).number();
    if (asked === undefined) continue;
    if (asked > 0 && asked <= 86_400) timeouts[name] = asked;
    else draft.note(branch.at(key), "changed", "nothing waits without an end here: the usual time stays");
  }
  return timeouts;
}
