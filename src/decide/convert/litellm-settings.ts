import { type Draft, plain, VARIABLE } from "./conversion.ts";
import { environmentOf, readAttempts, readSeconds } from "./litellm-deployment.ts";
import type { Branch } from "./source-tree.ts";

/** What LiteLLM's file says of all models together. */
export interface LitellmSettings {
  readonly totalS: number | undefined;
  readonly firstByteS: number | undefined;
  readonly attempts: number | undefined;
  readonly cacheTtlS: number | undefined;
  readonly aliases: readonly { readonly alias: string; readonly target: string; readonly branch: Branch }[];
  /** Keys of the configuration's top level. */
  readonly file: Readonly<Record<string, unknown>>;
}

const CACHE_TTL_S_ASSUMED = 600;
const CACHE_TTL_S_MAX = 2_592_000;
const MIB = 1_048_576;
const BODY_MB_MAX = 4_096;
const BUFFERED_BYTES = 402_653_184;

export function readSettings(draft: Draft): LitellmSettings {
  const { root } = draft;
  const [router, module, general] = [
    root.at("router_settings"),
    root.at("litellm_settings"),
    root.at("general_settings"),
  ];
  const totalS = readSeconds(router.at("timeout"), draft) ?? readSeconds(module.at("request_timeout"), draft);
  const settings = {
    totalS,
    firstByteS: readSeconds(router.at("stream_timeout"), draft),
    attempts: readAttempts(router, draft) ?? readAttempts(module, draft),
    cacheTtlS: readCache(module, draft),
    aliases: readAliases(router, draft),
    file: { ...readSharing(router, draft), ...readCacheRedis(module, draft), ...readBodySize(general, draft) },
  };
  readStrategy(router, draft);
  tellOfNoCounterpart(root, draft);
  return settings;
}

function readAliases(router: Branch, draft: Draft): LitellmSettings["aliases"] {
  return router
    .at("model_group_alias")
    .entries()
    .flatMap(([alias, branch]) => {
      const target = branch.text() ?? branch.at("model").text();
      if (target === undefined || alias === "" || alias.length > 256) return [];
      if (branch.at("hidden").flag() === true)
        draft.note(branch.at("hidden"), "dropped", "a name that may be asked for is listed by `/v1/models`");
      return [{ alias, target, branch }];
    });
}

function readStrategy(router: Branch, draft: Draft): void {
  const strategy = router.at("routing_strategy");
  const text = strategy.text();
  if (text === undefined || text === "least-busy") return;
  draft.note(strategy, "changed", "the endpoint with the least load is asked (`routing.policy: least_loaded`)");
}

/** Gateways that share: LiteLLM names the Redis in parts. */
function readSharing(router: Branch, draft: Draft): Record<string, unknown> {
  const url = readRedis(
    router,
    { url: "redis_url", host: "redis_host", port: "redis_port", password: "redis_password" },
    draft,
  );
  if (url === undefined) return {};
  draft.note(
    router.at(router.at("redis_url").isThere ? "redis_url" : "redis_host"),
    "changed",
    "gateways share slots, limits and jobs through it (`coordination: redis`): it needs `maxmemory-policy noeviction`",
  );
  return { coordination: "redis", redis_url: url };
}

interface RedisKeys {
  readonly url: string;
  readonly host: string;
  readonly port: string;
  readonly password: string;
}

function readRedis(parent: Branch, keys: RedisKeys, draft: Draft): string | undefined {
  const whole = readOrVariable(parent.at(keys.url), draft, "REDIS_URL", /^rediss?:\/\/[^@\s$]+$/);
  if (whole !== undefined) return whole;
  const host = readOrVariable(parent.at(keys.host), draft, "REDIS_HOST", /^[A-Za-z0-9.-]{1,253}$/);
  const port = readOrVariable(parent.at(keys.port), draft, "REDIS_PORT", /^\d{1,5}$/);
  const password = readOrVariable(parent.at(keys.password), draft, "REDIS_PASSWORD", null);
  if (host === undefined) return undefined;
  return `redis://${password === undefined ? "" : `:${password}@`}${host}:${port ?? "6379"}/0`;
}

/** A reference to the environment, or the text itself where it has the form of something that is no secret. */
function readOrVariable(branch: Branch, draft: Draft, name: string, form: RegExp | null): string | undefined {
  const text = branch.scalar();
  if (text === undefined || text === "") return undefined;
  const variable = environmentOf(text);
  if (variable !== undefined && VARIABLE.test(variable)) return `\${${draft.variable(variable)}}`;
  if (form?.test(text) === true) return plain(text);
  const held = draft.secretVariable(name, text);
  draft.note(
    branch,
    "secret",
    `stands in the file in plain text: put it into the environment variable ${held}, written as in an address`,
  );
  return `\${${held}}`;
}

function readCache(module: Branch, draft: Draft): number | undefined {
  const asked = module.at("cache").flag();
  const params = module.at("cache_params");
  if (asked !== true) {
    if (params.isThere) draft.note(params, "dropped", "the cache is not turned on");
    return undefined;
  }
  const ttl = params.at("ttl").number();
  draft.note(
    module.at("cache"),
    "changed",
    "each upstream keeps answers of requests that ask for the same answer each time (a seed, or temperature 0); keys don't see each other's",
  );
  if (ttl !== undefined && ttl > 0 && ttl <= CACHE_TTL_S_MAX) return ttl;
  draft.note(params.at("ttl"), "assumed", `is not there: answers are kept for ${CACHE_TTL_S_ASSUMED} s`);
  return CACHE_TTL_S_ASSUMED;
}

function readCacheRedis(module: Branch, draft: Draft): Record<string, unknown> {
  const params = module.at("cache_params");
  const type = params.at("type").text();
  if (module.at("cache").value !== true || (type !== undefined && type !== "redis")) {
    if (type !== undefined && type !== "local")
      draft.note(params.at("type"), "changed", "answers are kept in memory, or in a Redis");
    return {};
  }
  const url = readRedis(params, { url: "url", host: "host", port: "port", password: "password" }, draft);
  return url === undefined ? {} : { cache_redis_url: url };
}

function readBodySize(general: Branch, draft: Draft): Record<string, unknown> {
  const branch = general.at("max_request_size_mb");
  const asked = branch.number();
  if (asked === undefined || asked <= 0) return {};
  const bytes = Math.ceil(Math.min(asked, BODY_MB_MAX) * MIB);
  if (asked > BODY_MB_MAX) draft.note(branch, "changed", "4 GiB is the most that is taken");
  return { max_body_bytes: bytes, ...(bytes > BUFFERED_BYTES ? { max_buffered_bytes: bytes } : {}) };
}

const NO_OTHER_MODEL = "another model is never asked in the place of the one that was named";
const BREAKERS = "endpoints that fail leave by themselves and are tried again";
const SEEN = "`/metrics`, `ctl audit` and `otel` show what happens, without prompts and answers";

/** Keys that many files have, with what stands in their place here. What is not named is told by the tree itself. */
function tellOfNoCounterpart(root: Branch, draft: Draft): void {
  const fallbacks = {
    fallbacks: NO_OTHER_MODEL,
    default_fallbacks: NO_OTHER_MODEL,
    context_window_fallbacks: NO_OTHER_MODEL,
    content_policy_fallbacks: NO_OTHER_MODEL,
  };
  draft.noteAll(root.at("router_settings"), {
    ...fallbacks,
    allowed_fails: BREAKERS,
    allowed_fails_policy: BREAKERS,
    cooldown_time: BREAKERS,
    disable_cooldowns: BREAKERS,
    retry_policy: "`retry.attempts` of an upstream counts for every kind of failure",
  });
  draft.noteAll(root.at("litellm_settings"), {
    ...fallbacks,
    drop_params: "requests go on as they come: an engine that does not know a member says so itself",
    json_logs: "is a flag of the role: `--log-format json`",
    set_verbose: "is a flag of the role: `--log-level debug`",
    callbacks: SEEN,
    success_callback: SEEN,
    failure_callback: SEEN,
    service_callback: SEEN,
  });
  draft.noteAll(root.at("general_settings"), {
    master_key: "no key is taken over: make one with `yardmaster key new --id root --role admin`",
    database_url:
      "keys, teams and spend of LiteLLM's database are not read: make keys with `yardmaster key new`, and give them `limits`",
    store_model_in_db: "models that were added there are not in this file: write them into `upstreams`",
    alerting: "alerts are made of `/metrics`: `deploy/` has rules for Prometheus",
    background_health_checks: "engines are always asked (`health`)",
    health_check_interval: "each kind of engine is asked at its own pace",
  });
  draft.noteAll(root, {
    environment_variables: "set them in the environment of the gateway; a configuration holds none",
    include: "files that it names are not read: convert them one by one",
    mcp_servers: "tools are not called by a gateway",
    guardrails: "prompts and answers are not looked at",
  });
}
