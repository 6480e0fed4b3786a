import { parseEndpointUrl } from "../../contract/resolve-config.ts";
import { type Conversion, Draft, plain, present } from "./conversion.ts";
import { type Deployment, readDeployment } from "./litellm-deployment.ts";
import { readSettings, type LitellmSettings } from "./litellm-settings.ts";

/** Requests that one server is taken to work on at once, where its file does not say it. */
const SLOTS_ASSUMED = 16;
const SLOTS_MAX = 100_000;

/** One upstream to be: deployments of a name that can stand behind one another. */
interface Group {
  readonly names: string[];
  readonly deployments: Deployment[];
}

/** A LiteLLM proxy's `config.yaml`, read, as a configuration of a gateway. */
export function convertLitellm(value: unknown): Conversion {
  const draft = new Draft(value);
  const list = draft.root.at("model_list");
  if (!Array.isArray(list.value))
    return { kind: "refused", why: "has no `model_list`: is it the config.yaml of a LiteLLM proxy?" };
  const deployments = list.list().flatMap((entry) => readDeployment(entry, draft) ?? []);
  const settings = readSettings(draft);
  const groups = mergeEqual(groupByName(deployments, draft));
  addAliases(groups, settings, draft);
  addEngineNames(groups, draft);
  const upstreams = groups.map((group) => upstreamOf(group, settings, draft));
  return draft.finish(
    { listen: "127.0.0.1:8200", ...settings.file, auth: { mode: "keys", keys: [] }, upstreams },
    null,
  );
}

/** A name has one upstream, with one key, either in the house or outside of it: what does not go with the first is left out. */
function groupByName(deployments: readonly Deployment[], draft: Draft): Group[] {
  const groups = new Map<string, Group>();
  for (const deployment of deployments) {
    const group = groups.get(deployment.group);
    if (group === undefined) {
      groups.set(deployment.group, { names: [deployment.group], deployments: [deployment] });
      continue;
    }
    const [first] = group.deployments;
    if (first === undefined) continue;
    const why = whyApart(first, deployment);
    if (why === null) addTo(group, deployment, draft);
    else draft.note(deployment.branch, "dropped", why);
  }
  return [...groups.values()];
}

function whyApart(first: Deployment, other: Deployment): string | null {
  if (first.external !== other.external)
    return "an earlier entry of the name is in the house and this one is not, or the reverse: a name has one upstream, and work that may leave the house is set up under `overflow`";
  if (first.engine !== other.engine) return "an earlier entry of the name has another engine: a name has one upstream";
  return first.keyEnv === other.keyEnv ? null : "an earlier entry of the name has another key: an upstream has one";
}

function addTo(group: Group, deployment: Deployment, draft: Draft): void {
  const isTwice = group.deployments.some(({ url }) => addressOf(url) === addressOf(deployment.url));
  if (isTwice)
    draft.note(deployment.branch, "changed", "its address stands under this name already: it is one endpoint");
  else group.deployments.push(deployment);
}

const addressOf = (url: string): string => parseEndpointUrl(url)?.url ?? url;

/** Names of the same servers share their slots. */
function mergeEqual(groups: readonly Group[]): Group[] {
  const merged = new Map<string, Group>();
  for (const group of groups) {
    const places = group.deployments.map(({ url }) => addressOf(url)).toSorted();
    const [first] = group.deployments;
    const key = JSON.stringify([places, first?.keyEnv, first?.external, first?.engine]);
    const known = merged.get(key);
    if (known === undefined) merged.set(key, group);
    else known.names.push(...group.names);
  }
  return [...merged.values()];
}

function addAliases(groups: readonly Group[], { aliases }: LitellmSettings, draft: Draft): void {
  for (const { alias, target, branch } of aliases) {
    const owner = groups.find(({ names }) => names.includes(target));
    const taken = groups.some(({ names }) => names.includes(alias));
    if (owner === undefined) draft.note(branch, "dropped", "names a model that was not taken over");
    else if (!taken) owner.names.push(alias);
    else if (!owner.names.includes(alias)) draft.note(branch, "dropped", "another model has this name already");
  }
}

/**
 * Where an engine refuses names that it does not list and lists one of the upstream's, requests are sent under that one. So the engine's
 * own name stands beside those of clients. Other engines get the name that the client sent.
 */
function addEngineNames(groups: readonly Group[], draft: Draft): void {
  const taken = new Set(groups.flatMap(({ names }) => names));
  for (const { names, deployments } of groups) {
    for (const { engine, engineName, branch } of deployments) {
      if (names.includes(engineName)) continue;
      const model = branch.at("litellm_params", "model");
      if (engine !== "vllm" && engine !== "ollama")
        draft.note(
          model,
          "changed",
          `the server gets the name that the client sent, and LiteLLM sent it ${JSON.stringify(engineName)}: let it serve the other name too, or let clients ask for its own`,
        );
      else if (taken.has(engineName))
        draft.note(
          model,
          "changed",
          "another upstream has the engine's own name: let the engine serve the clients' name too",
        );
      else {
        names.push(engineName);
        taken.add(engineName);
      }
    }
  }
}

function upstreamOf({ names, deployments }: Group, settings: LitellmSettings, draft: Draft): Record<string, unknown> {
  const [first] = deployments;
  const pick = <K extends "totalS" | "firstByteS" | "attempts" | "price">(key: K): Deployment[K] | undefined =>
    deployments.find((deployment) => deployment[key] !== undefined)?.[key];
  for (const { slots, branch } of deployments)
    if (slots === undefined)
      draft.note(
        branch.at("litellm_params", "max_parallel_requests"),
        "assumed",
        `is not there: ${SLOTS_ASSUMED} requests at once; write what the engine takes (\`slots\`)`,
      );
  const slotsOf = ({ slots }: Deployment): number => slots ?? SLOTS_ASSUMED;
  const timeouts = present({
    total_s: pick("totalS") ?? settings.totalS,
    first_byte_s: pick("firstByteS") ?? settings.firstByteS,
  });
  const attempts = pick("attempts") ?? settings.attempts;
  return present({
    id: draft.id(names[0] ?? ""),
    engine: first?.engine,
    models: [...new Set(names)].map(plain),
    slots: Math.min(
      deployments.reduce((sum, deployment) => sum + slotsOf(deployment), 0),
      SLOTS_MAX,
    ),
    external: first?.external === true ? true : undefined,
    health: first?.external === true ? "passive" : undefined,
    key_env: first?.keyEnv ?? undefined,
    timeouts: Object.keys(timeouts).length === 0 ? undefined : timeouts,
    retry: attempts === undefined ? undefined : { attempts },
    price: pick("price"),
    cache: settings.cacheTtlS === undefined ? undefined : { ttl_s: settings.cacheTtlS },
    endpoints: deployments.map((deployment) => ({ url: deployment.url, slots: slotsOf(deployment) })),
  });
}
