import { allPlain, type Conversion, Draft, plain, present, variableName } from "./conversion.ts";
import { isPublic } from "./litellm-deployment.ts";
import { expand, isSecretName, type Macros, readMacros } from "./llama-swap-macros.ts";
import { convertModel, type ConvertedModel, type GpuGiven } from "./llama-swap-model.ts";
import type { Branch } from "./source-tree.ts";

/** Where the catalog is looked for by the configuration that names it. */
export const CATALOG_FILE = "catalog.yaml";

export interface LlamaSwapSurroundings {
  readonly gpu: GpuGiven | null;
  /** Of whoever converts. Variables whose name says that they are secrets are not asked for. */
  readonly env: (name: string) => string | undefined;
}

const PEER_SLOTS_ASSUMED = 16;
const STARTS_S_MAX = 86_400;

/** llama-swap's `config.yaml`, read, as a configuration and a catalog of one machine. */
export function convertLlamaSwap(value: unknown, { gpu, env }: LlamaSwapSurroundings): Conversion {
  const draft = new Draft(value);
  const { root } = draft;
  if (root.at("models").entries().length === 0 && root.at("peers").entries().length === 0)
    return { kind: "refused", why: "has neither `models` nor `peers`: is it the config.yaml of llama-swap?" };
  const macros: Macros = {
    values: readMacros(root.at("macros")),
    env: (name) => (isSecretName(name) ? undefined : env(name)),
  };
  root.at("macros").take();
  const preloaded = readPreloaded(root, draft);
  const globalTtlS = root.at("globalTTL").number() ?? 0;
  const taken = new Set(
    root
      .at("models")
      .entries()
      .map(([id]) => id),
  );
  const models = root
    .at("models")
    .entries()
    .flatMap(([id, model]) => {
      const converted = convertModel(id, model, { macros, globalTtlS, preloaded, gpu }, draft);
      return converted === null ? [] : [withFreeNames(converted, taken, draft)];
    });
  const peers = root
    .at("peers")
    .entries()
    .flatMap(([id, peer]) => convertPeer(id, peer, macros, taken, draft) ?? []);
  tellOfNoCounterpart(root, draft);
  const hasCatalog = models.length > 0;
  return draft.finish(
    present({
      listen: "127.0.0.1:8200",
      auth: { mode: "keys", keys: [] },
      control: hasCatalog ? present({ catalog: { file: CATALOG_FILE }, ...readStart(root, draft) }) : undefined,
      agent: hasCatalog ? agentOf(models, root, draft) : undefined,
      upstreams: [...peers, ...models.flatMap((model) => limitsOf(model, draft))],
    }),
    hasCatalog ? { models: models.map(({ entry }) => allPlain(entry)) } : null,
  );
}

/** A name belongs to the first model that has it. */
function withFreeNames(model: ConvertedModel, taken: Set<string>, draft: Draft): ConvertedModel {
  const [, ...aliases] = model.names;
  const free = aliases.filter((alias) => !taken.has(alias));
  if (free.length < aliases.length)
    draft.note(model.branch.at("aliases"), "changed", "a name that another model has was left out");
  for (const name of free) taken.add(name);
  return { ...model, entry: present({ ...model.entry, aliases: free.length === 0 ? undefined : free }) };
}

function readPreloaded(root: Branch, draft: Draft): ReadonlySet<string> {
  const list = root.at("hooks", "on_startup", "preload");
  const ids = list.list().flatMap((entry) => entry.scalar() ?? []);
  if (ids.length > 1)
    draft.note(
      list,
      "changed",
      "models that are loaded at the start are kept running all at once, as far as there is room",
    );
  return new Set(ids);
}

/** A model has so long to become ready. */
function readStart(root: Branch, draft: Draft): Record<string, unknown> {
  const branch = root.at("healthCheckTimeout");
  const asked = branch.number();
  if (asked === undefined || asked <= 0 || asked > STARTS_S_MAX) return {};
  draft.note(branch, "changed", "a start fails when it has made no progress for so long, and not after so long");
  return { start_stall_s: Math.max(asked, 15) };
}

function agentOf(models: readonly ConvertedModel[], root: Branch, draft: Draft): Record<string, unknown> {
  const programs = new Map<string, readonly string[]>();
  for (const { program, branch } of models) {
    if (program === null) continue;
    const known = programs.get(program.engine);
    if (known === undefined) programs.set(program.engine, program.words.map(plain));
    else if (known.join(" ") !== program.words.map(plain).join(" "))
      draft.note(
        branch.at("cmd"),
        "changed",
        `a node has one program for ${program.engine}: that of an earlier model is used`,
      );
  }
  const commands = [...new Set(models.flatMap(({ allowed }) => (allowed === null ? [] : [plain(allowed)])))];
  const first = root.at("startPort").number();
  const isPort = first !== undefined && Number.isInteger(first) && first >= 1 && first <= 65_535;
  return present({
    engine_ports: isPort ? `${first}-${Math.min(first + 999, 65_535)}` : undefined,
    programs: programs.size === 0 ? undefined : Object.fromEntries(programs),
    commands: commands.length === 0 ? undefined : commands,
  });
}

function limitsOf({ entry, timeouts }: ConvertedModel, draft: Draft): Record<string, unknown>[] {
  if (Object.keys(timeouts).length === 0) return [];
  return [{ id: draft.id(String(entry["name"])), model: entry["name"], timeouts }];
}

/** Another server that serves models of its own. */
function convertPeer(
  id: string,
  peer: Branch,
  macros: Macros,
  taken: Set<string>,
  draft: Draft,
): Record<string, unknown> | null {
  const expanded = expand(peer.at("proxy").text() ?? "", macros);
  const url = expanded.kind === "text" ? URL.parse(expanded.text) : null;
  const models = peer
    .at("models")
    .list()
    .flatMap((entry) => entry.scalar() ?? [])
    .filter((name) => name !== "" && name.length <= 256 && !taken.has(name));
  const isPlain =
    url !== null && /^https?:$/.test(url.protocol) && `${url.username}${url.password}${url.search}${url.hash}` === "";
  if (!isPlain || models.length === 0) {
    draft.note(peer, "dropped", "has no plain http or https address in `proxy`, or no model that is still free");
    return null;
  }
  for (const name of models) taken.add(name);
  const address = plain(`${url.origin}${url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "")}`);
  const external = isPublic(address);
  if (external)
    draft.note(
      peer.at("proxy"),
      "changed",
      "is outside the house: only keys with `allow_external` may use it, and no health page is asked",
    );
  draft.note(peer.at("slots"), "assumed", `is no key of it: ${PEER_SLOTS_ASSUMED} requests at once (\`slots\`)`);
  const timeouts: Record<string, number> = {};
  for (const [key, name] of [
    ["connect", "connect_s"],
    ["responseHeader", "first_byte_s"],
  ] as const) {
    const asked = peer.at("timeouts", key).number();
    if (asked !== undefined && asked > 0 && asked <= 86_400) timeouts[name] = asked;
  }
  return present({
    id: draft.id(id),
    engine: "generic",
    models: [...new Set(models)].map(plain),
    slots: PEER_SLOTS_ASSUMED,
    external: external ? true : undefined,
    health: external ? "passive" : undefined,
    key_env: readPeerKey(id, peer.at("apiKey"), draft),
    timeouts: Object.keys(timeouts).length === 0 ? undefined : timeouts,
    endpoints: [{ url: address }],
  });
}

function readPeerKey(id: string, branch: Branch, draft: Draft): string | undefined {
  const text = branch.text();
  if (text === undefined) return undefined;
  const variable = /^\$\{env\.([A-Za-z_]\w*)\}$/.exec(text)?.[1];
  if (variable !== undefined) return draft.variable(variable);
  const name = draft.secretVariable(variableName(id, "api key"), text);
  draft.note(branch, "secret", `stands in the file in plain text: put it into the environment variable ${name}`);
  return name;
}

const PLACEMENT =
  "placement decides by the memory of the cards which models run together, and by `priority` which one makes room";
const NOT_LISTED = "`/v1/models` lists what may be asked for, by its name alone";
const AS_IT_CAME = "requests go to the engine as they came: let clients send it, or set it by the engine's own flags";

function tellOfNoCounterpart(root: Branch, draft: Draft): void {
  draft.noteAll(root, {
    groups: PLACEMENT,
    matrix: PLACEMENT,
    routing: PLACEMENT,
    profiles: "names are rewritten by nobody at run time",
    apiKeys: "no key is taken over: make some with `yardmaster key new --id NAME`, and put the lines below `auth.keys`",
    logLevel: "is a flag of the role: `--log-level`",
    logTimeFormat: "lines of the log have times in ISO 8601",
    logToStdout: "the log goes to standard error; `ctl logs REPLICA` shows an engine's own",
    metricsMaxInMemory: "`/metrics` keeps counts, and no single requests; the audit does",
    captureBuffer: "no log and no audit holds prompts and answers",
    sendLoadingState: "an answer holds nothing but the engine's words; `x-yardmaster-queue-events` tells of waiting",
    includeAliasesInList: "each name that may be asked for is listed",
    unloadTimeout: "engines have `control.stop_grace_s` to end",
    store: "the audit is kept in the data folder",
    ui: "the board has no such setting",
    performance: "agents look at their cards by themselves",
    upstream: "`/upstreams/ID/` is there for upstreams of kind `http` alone",
  });
  for (const [, model] of root.at("models").entries()) {
    draft.noteAll(model, {
      name: NOT_LISTED,
      description: NOT_LISTED,
      metadata: NOT_LISTED,
      capabilities: NOT_LISTED,
      unlisted: "a name that may be asked for is listed; give keys `models` to narrow what they see",
      filters: AS_IT_CAME,
      sendLoadingState: "an answer holds nothing but the engine's words",
      unloadTimeout: "engines have `control.stop_grace_s` to end",
    });
  }
  for (const [, peer] of root.at("peers").entries()) draft.noteAll(peer, { filters: AS_IT_CAME });
}
