import type { UpstreamFile } from "../../contract/config-schema.ts";
import { isLoopback } from "../../contract/listen-address.ts";
import { plain, present, variableName, type Draft } from "./conversion.ts";
import { providerOf, splitModel } from "./litellm-providers.ts";
import type { Branch } from "./source-tree.ts";

/** One entry of LiteLLM's `model_list` that can be served here. */
export interface Deployment {
  /** What clients ask for. */
  readonly group: string;
  readonly branch: Branch;
  /** What its server calls the model. */
  readonly engineName: string;
  readonly engine: UpstreamFile["engine"];
  readonly url: string;
  readonly external: boolean;
  /** Variable with the server's key; null: it asks for none. */
  readonly keyEnv: string | null;
  readonly slots: number | undefined;
  readonly attempts: number | undefined;
  readonly totalS: number | undefined;
  readonly firstByteS: number | undefined;
  readonly price: Readonly<Record<string, unknown>> | undefined;
}

const ENV_REFERENCE = /^os\.environ\/([A-Za-z_][A-Za-z0-9_]*)$/;
/** What authors write where a client library insists on a key and the server asks for none. */
const NO_KEY = /^(?:|none|null|empty|no[-_ ]?key|fake|dummy|not[-_ ]?needed|na|n\/a)$/i;
const SECONDS_MAX = 86_400;
const ATTEMPTS_MAX = 10;
const NAME_CHARS_MAX = 256;

export const environmentOf = (text: string | undefined): string | undefined =>
  text === undefined ? undefined : ENV_REFERENCE.exec(text)?.[1];

/** Null where it can't be served; why is noted. */
export function readDeployment(entry: Branch, draft: Draft): Deployment | null {
  const group = entry.at("model_name").scalar();
  const params = entry.at("litellm_params");
  const model = params.at("model").scalar();
  if (group === undefined || model === undefined || group === "" || group.length > NAME_CHARS_MAX)
    return refuse(entry, draft, "has no `model_name` and `litellm_params.model` that can be read");
  if (group.includes("*") || model.includes("*"))
    return refuse(entry, draft, "stands for any model: here each one is named, in `models` of an upstream");
  const { provider: word, name } = splitModel(model);
  const provider = providerOf(word);
  if (provider.kind === "foreign")
    return refuse(
      entry,
      draft,
      `\`${word}\` is asked in words of its own, which are not translated here: requests go on as they come`,
    );
  const base = readBase(params, draft);
  if (base === "bad") return refuse(entry, draft, "its `api_base` is no plain http or https address");
  if (provider.kind === "own" && base === "none")
    return refuse(entry, draft, `has no \`api_base\`, and \`${word}\` has no usual address`);
  const isCloud = provider.kind === "cloud" && base === "none";
  if (provider.kind === "own" && provider.note !== undefined) draft.note(params.at("model"), "changed", provider.note);
  const url = base !== "none" ? base.url : provider.kind === "cloud" ? provider.url : "";
  const external = isCloud || isPublic(url);
  if (external)
    draft.note(
      params.at(base === "none" ? "model" : "api_base"),
      "changed",
      "is outside the house: only keys with `allow_external` may use it, and no health page is asked",
    );
  return {
    group,
    branch: entry,
    engineName: name,
    engine: provider.kind === "own" ? provider.engine : "generic",
    url,
    external,
    keyEnv: readKey(params, draft, { group, fallback: isCloud && provider.kind === "cloud" ? provider.keyEnv : null }),
    ...readLimits(entry, draft),
  };
}

function refuse(entry: Branch, draft: Draft, why: string): null {
  draft.note(entry, "dropped", why);
  return null;
}

/** Without the `/v1` that requests bring along. */
function readBase(params: Branch, draft: Draft): { readonly url: string } | "none" | "bad" {
  const given = params.at("api_base").isThere ? params.at("api_base") : params.at("base_url");
  if (!given.isThere) return "none";
  const text = given.text();
  const variable = environmentOf(text);
  if (variable !== undefined) {
    draft.note(given, "changed", `comes from \`${variable}\` here too: let it hold the address without the \`/v1\``);
    return { url: `\${${draft.variable(variable)}}` };
  }
  const url = text === undefined ? null : URL.parse(text);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) return "bad";
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") return "bad";
  const path = url.pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
  return { url: plain(`${url.origin}${path}`) };
}

const PRIVATE_V4 =
  /^(?:10\.|127\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|169\.254\.|0\.)/;
const PUBLIC_NAME = /\.(?:com|net|org|ai|io|dev|cloud|xyz|eu|de)$/i;

/** A public address, or a name in one of the usual public zones. What can't be told is in the house. */
export function isPublic(url: string): boolean {
  const host = URL.parse(url)?.hostname.replace(/^\[|\]$/g, "") ?? "";
  if (host === "" || isLoopback(host)) return false;
  if (/^\d+\.\d+\.\d+\.\d+$/.test(host)) return !PRIVATE_V4.test(host);
  if (host.includes(":")) return !/^f[cde]/i.test(host) && host !== "::1";
  return PUBLIC_NAME.test(host);
}

function readKey(
  params: Branch,
  draft: Draft,
  { group, fallback }: { readonly group: string; readonly fallback: string | null },
): string | null {
  const branch = params.at("api_key");
  if (!branch.isThere) return fallback === null ? null : draft.variable(fallback);
  const text = branch.scalar();
  const variable = environmentOf(text);
  if (variable !== undefined) return draft.variable(variable);
  if (text?.trim() === "" && fallback !== null) return draft.variable(fallback);
  if (text === undefined || NO_KEY.test(text.trim())) {
    draft.note(branch, "changed", "taken for no key: the engine is asked without one");
    return null;
  }
  const name = draft.secretVariable(fallback ?? variableName(group, "api key"), text);
  draft.note(branch, "secret", `stands in the file in plain text: put it into the environment variable ${name}`);
  return name;
}

type Limits = Pick<Deployment, "slots" | "attempts" | "totalS" | "firstByteS" | "price">;

function readLimits(entry: Branch, draft: Draft): Limits {
  const params = entry.at("litellm_params");
  const slots = params.at("max_parallel_requests").number();
  const attempts = readAttempts(params, draft);
  draft.noteAll(params, {
    rpm: "an upstream has slots and no rate: give keys `limits.requests_per_minute`",
    tpm: "an upstream has slots and no rate: give keys `limits.tokens_per_minute`",
    weight: "the load decides, by `routing.policy`, and no weight",
    order: "the load decides, by `routing.policy`, and no order",
  });
  return {
    slots: slots === undefined ? undefined : Math.min(Math.max(1, Math.floor(slots)), 100_000),
    attempts,
    totalS: readSeconds(params.at("timeout"), draft),
    firstByteS: readSeconds(params.at("stream_timeout"), draft),
    price: readPrice(entry, draft),
  };
}

export function readAttempts(parent: Branch, draft: Draft): number | undefined {
  for (const key of ["num_retries", "max_retries"]) {
    const branch = parent.at(key);
    const asked = branch.number();
    if (asked === undefined) continue;
    const attempts = Math.min(Math.max(0, Math.floor(asked)), ATTEMPTS_MAX);
    draft.note(branch, "changed", "each further try goes to another endpoint, and only while nothing was answered");
    return attempts;
  }
  return undefined;
}

export function readSeconds(branch: Branch, draft: Draft): number | undefined {
  const asked = branch.number();
  if (asked === undefined) return undefined;
  if (asked > 0 && asked <= SECONDS_MAX) return asked;
  draft.note(branch, "changed", "is no time between 0 and a day: the usual one stays");
  return undefined;
}

const PER_TOKEN = {
  input: "input_cost_per_token",
  output: "output_cost_per_token",
  cached: "cache_read_input_token_cost",
};
/** Prices of a token are tiny: the digits that a float adds are not part of them. */
const perMillion = (price: number): number => Number((price * 1_000_000).toPrecision(12));

function readPrice(entry: Branch, draft: Draft): Deployment["price"] {
  const places = [entry.at("litellm_params"), entry.at("model_info")];
  const priceOf = (key: string): number | undefined => {
    const found = places.map((place) => place.at(key).number()).find((price) => price !== undefined);
    return found !== undefined && found >= 0 && found < 1 ? perMillion(found) : undefined;
  };
  const [input, output, cached] = [priceOf(PER_TOKEN.input), priceOf(PER_TOKEN.output), priceOf(PER_TOKEN.cached)];
  if (input === undefined && output === undefined) return undefined;
  if (input === undefined || output === undefined)
    draft.note(
      entry.at("model_info", input === undefined ? PER_TOKEN.input : PER_TOKEN.output),
      "assumed",
      "is not there, and the other price of tokens is: taken for nothing",
    );
  return present({ input_per_1m: input ?? 0, output_per_1m: output ?? 0, cached_per_1m: cached, currency: "USD" });
}
