import type { FieldPath } from "../contract/schema-fields.ts";
import { isArchive, isPickle, PICKLE_RUNS_CODE, readsPickle } from "../decide/weights/formats.ts";
import { parseSource } from "../decide/weights/source.ts";
import { valueAt } from "./describe-issue.ts";
import { listAt, mistake, numberAt, textAt, warning } from "./finding.ts";
import type { Finding } from "./finding.ts";

/** What makes a model impossible to run, told when the catalog is given and not minutes later on a node. */
export function checkCatalog(raw: unknown): Finding[] {
  return [
    ...checkNames(raw),
    ...listAt(raw, ["models"]).flatMap((model, index) => checkModel(model, ["models", index])),
  ];
}

/** A name or alias that two models share would send a request to either. */
function checkNames(raw: unknown): Finding[] {
  const owners = new Map<string, { readonly model: number; readonly path: FieldPath }>();
  return listAt(raw, ["models"]).flatMap((model, index) => {
    const names = [
      { name: textAt(model, ["name"]), path: ["models", index, "name"] },
      ...listAt(model, ["aliases"]).map((alias, place) => ({ name: alias, path: ["models", index, "aliases", place] })),
    ];
    return names.flatMap(({ name, path }): Finding[] => {
      if (typeof name !== "string") return [];
      const first = owners.get(name);
      if (first === undefined) {
        owners.set(name, { model: index, path });
        return [];
      }
      const message =
        first.model === index ? "stands here twice" : "another model has this name, so a request could mean either";
      return [{ severity: "mistake", path, message, first: first.path }];
    });
  });
}

function checkModel(model: unknown, path: FieldPath): Finding[] {
  const min = numberAt(model, ["replicas", "min"]) ?? 1;
  const max = numberAt(model, ["replicas", "max"]);
  const found: Finding[] = [];
  if (max !== undefined && min > max)
    found.push(mistake([...path, "replicas", "max"], `is smaller than replicas.min (${min})`));
  for (const [label, value] of Object.entries(objectAt(model, ["nodes", "require"])))
    if (typeof value === "string" && objectAt(model, ["nodes", "avoid"])[label] === value)
      found.push(
        mistake([...path, "nodes", "avoid", label], "is required as well, so that no node could ever be used"),
      );
  const allowPickle = valueAt(model, ["allow_pickle"]) === true;
  if (allowPickle)
    found.push(warning([...path, "allow_pickle"], `is set: ${PICKLE_RUNS_CODE}, with the engine's rights on the node`));
  const nodes = valueAt(model, ["multi_node"]) === undefined ? null : (numberAt(model, ["multi_node", "nodes"]) ?? 2);
  return [
    ...found,
    ...listAt(model, ["profiles"]).flatMap((profile, index) =>
      checkProfile(profile, [...path, "profiles", index], { nodes, allowPickle }),
    ),
    ...checkPinnedCards(model, path),
  ];
}

function checkPinnedCards(model: unknown, path: FieldPath): Finding[] {
  const cards = listAt(model, ["nodes", "gpu_uuids"]).length;
  if (cards === 0) return [];
  return listAt(model, ["profiles"]).flatMap((profile, index) => {
    const count = valueAt(profile, ["gpu"]) === undefined ? 0 : (numberAt(profile, ["gpu", "count"]) ?? 1);
    const at = [...path, "profiles", index, "gpu", "count"];
    return count > cards ? [mistake(at, `is more than the ${cards} cards that nodes.gpu_uuids allows`)] : [];
  });
}

const objectAt = (raw: unknown, path: FieldPath): Readonly<Record<string, unknown>> => {
  const value = valueAt(raw, path);
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
};

const NEED_GPU: readonly string[] = ["vllm", "sglang", "comfyui"];
const NEED_SOURCE: readonly string[] = ["vllm", "sglang", "llama.cpp", "tei"];
const SPAN_NODES: readonly string[] = ["vllm", "sglang", "sim"];

/** What a profile's model says that matters for it. */
interface OfModel {
  /** Of one replica; null: a single one. */
  readonly nodes: number | null;
  readonly allowPickle: boolean;
}

function checkProfile(profile: unknown, path: FieldPath, { nodes, allowPickle }: OfModel): Finding[] {
  const engine = textAt(profile, ["engine"]);
  if (engine === undefined) return [];
  const found: Finding[] = [];
  const gpu = valueAt(profile, ["gpu"]);
  if (NEED_GPU.includes(engine) && gpu === undefined)
    found.push(
      mistake(
        [...path, "gpu"],
        `is missing: ${engine} can't run without a GPU`,
        "write `gpu: {class: [h200], count: 1, memory_gb: 70}`",
      ),
    );
  if (NEED_SOURCE.includes(engine) && valueAt(profile, ["source"]) === undefined)
    found.push(mistake([...path, "source"], `is missing: where ${engine} gets its weights`));
  if (engine === "command" && valueAt(profile, ["command"]) === undefined)
    found.push(mistake([...path, "command"], "is missing: the program to start, and its arguments"));
  if (engine !== "command" && valueAt(profile, ["command"]) !== undefined)
    found.push(mistake([...path, "command"], `belongs to engine \`command\`, not to ${engine}`));
  if (nodes !== null && !SPAN_NODES.includes(engine))
    found.push(
      mistake(
        [...path, "engine"],
        `${engine} can't run over several nodes, which multi_node asks for`,
        `engines that can: ${SPAN_NODES.join(", ")}`,
      ),
    );
  if (gpu === undefined && valueAt(profile, ["cpu"]) === undefined && !NEED_GPU.includes(engine) && engine !== "sim")
    found.push(warning(path, "says neither `gpu` nor `cpu`: it is placed as if it needed nothing"));
  return [
    ...found,
    ...checkSource(profile, path, allowPickle),
    ...checkArgs(profile, path, engine, nodes),
    ...checkLoadFormat(profile, path, allowPickle),
    ...checkEnv(profile, path),
  ];
}

const SCHEMES: readonly string[] = ["hf", "https", "http", "file", "s3"];

function checkSource(profile: unknown, path: FieldPath, allowPickle: boolean): Finding[] {
  const source = textAt(profile, ["source"]);
  const at = [...path, "source"];
  if (source === undefined) return [];
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//.exec(source)?.[1]?.toLowerCase();
  if (scheme === undefined && source.split("/").includes(".."))
    return [mistake(at, "leaves the folder that it is looked for in", "write the path without `..`")];
  if (scheme === undefined) return checkFormat(source, at, allowPickle);
  if (!SCHEMES.includes(scheme))
    return [mistake(at, `the scheme is not known: ${scheme}`, `use a path, or one of hf, https, file, s3`)];
  if (scheme === "file" && !/^file:\/\/\//i.test(source))
    return [mistake(at, "names a host", "write file:///PATH with three slashes")];
  if (/^[a-z0-9+.-]+:\/\/[^/?#]*:[^/?#]*@/i.test(source) || (scheme === "https" && /^https:\/\/[^/?#]*@/i.test(source)))
    return [mistake(at, "holds a password: everybody who may read the catalog could read it")];
  // The node's own reading is the one that counts; here it finds what no node could fetch.
  const parsed = parseSource(source, "/");
  if (parsed.kind === "unavailable") return [mistake(at, `can't be fetched: ${parsed.why}`)];
  return checkFormat(fileOf(parsed), at, allowPickle);
}

/** The one file that a source names; "" where it names more, which its node looks at. */
function fileOf(source: ReturnType<typeof parseSource>): string {
  switch (source.kind) {
    case "web":
      return source.file;
    case "hub":
      return source.file ?? "";
    case "s3":
      return source.key;
    case "path":
      return source.path;
    case "none":
    case "unavailable":
      return "";
  }
}

function checkFormat(file: string, at: FieldPath, allowPickle: boolean): Finding[] {
  if (isArchive(file)) return [mistake(at, "is an archive, and nothing unpacks one", "name the files of weights")];
  if (!isPickle(file) || allowPickle) return [];
  return [
    mistake(
      at,
      `is a pickle format: ${PICKLE_RUNS_CODE}`,
      "use safetensors or GGUF, or set `allow_pickle: true` on the model if you trust the file",
    ),
  ];
}

function checkLoadFormat(profile: unknown, path: FieldPath, allowPickle: boolean): Finding[] {
  if (allowPickle) return [];
  return Object.entries(objectAt(profile, ["args"]))
    .filter(([name, value]) => readsPickle(name, value))
    .map(([name]) =>
      mistake(
        [...path, "args", name],
        `makes the engine read pickle: ${PICKLE_RUNS_CODE}`,
        "leave it out, or set `allow_pickle: true` on the model",
      ),
    );
}

/** What Yardmaster sets itself on every engine: another value would make the replica unreachable, or open it to others. */
const OWN_ARGS: readonly string[] = ["host", "port", "listen", "api-key", "api-keys"];
const PARALLEL = ["tensor-parallel-size", "pipeline-parallel-size"] as const;
const SHORT_NAMES: Readonly<Record<string, string>> = {
  tp: "tensor-parallel-size",
  "tp-size": "tensor-parallel-size",
  pp: "pipeline-parallel-size",
  "pp-size": "pipeline-parallel-size",
  "tensor-parallel": "tensor-parallel-size",
};
const longName = (name: string): string => {
  const dashed = name.toLowerCase().replaceAll("_", "-");
  return SHORT_NAMES[dashed] ?? dashed;
};

function checkArgs(profile: unknown, path: FieldPath, engine: string, nodes: number | null): Finding[] {
  const args = objectAt(profile, ["args"]);
  const seen = new Map<string, string>();
  const found: Finding[] = [];
  let wanted = 1;
  for (const [name, value] of Object.entries(args)) {
    const at = [...path, "args", name];
    const long = longName(name);
    const parallel = PARALLEL.some((known) => known === long);
    const before = seen.get(long);
    seen.set(long, name);
    if (before !== undefined) found.push(mistake(at, `is the same flag as \`${before}\``, "keep one of them"));
    else if (OWN_ARGS.includes(long) && engine !== "command")
      found.push(mistake(at, "is set by Yardmaster itself", "leave it out"));
    else if (parallel && (engine === "llama.cpp" || engine === "tei"))
      found.push(mistake(at, `${engine} has no such parallelism`, "leave it out"));
    else if (parallel && typeof value === "number") wanted *= value;
  }
  const cards = (numberAt(profile, ["gpu", "count"]) ?? 1) * (nodes ?? 1);
  if (valueAt(profile, ["gpu"]) !== undefined && wanted > cards)
    found.push(
      mistake(
        [...path, "args"],
        `asks for ${wanted} cards by its parallel sizes, and the profile has ${cards}`,
        "raise gpu.count, or lower the sizes",
      ),
    );
  return found;
}

/** Each of these makes a program load or run something that the node's operator has not put there, or see cards that are not its own. */
const REFUSED_ENV =
  /^(?:LD_.*|DYLD_.*|NODE_OPTIONS|PYTHONPATH|PYTHONHOME|PYTHONSTARTUP|PERL5LIB|PERL5OPT|RUBYOPT|RUBYLIB|BASH_ENV|ENV|IFS|PATH|SHELL|GCONV_PATH|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|YARDMASTER_.*)$/i;

function checkEnv(profile: unknown, path: FieldPath): Finding[] {
  return Object.keys(objectAt(profile, ["env"]))
    .filter((name) => REFUSED_ENV.test(name))
    .map((name) => mistake([...path, "env", name], "may not be set by a catalog: the node decides it"));
}
