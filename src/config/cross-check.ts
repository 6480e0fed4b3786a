import { isSafeControlUrl, parseControlUrl } from "../contract/agent-schema.ts";
import { MODEL_ID } from "../decide/facades/azure/analyze-paths.ts";
import { isLoopback, parseListen } from "../contract/listen-address.ts";
import { parseCallbackAllow } from "../decide/jobs/judge-callback.ts";
import { parseEndpointUrl } from "../contract/resolve-config.ts";
import { valueIn, type Env } from "../contract/env.ts";
import type { ConfigOverrides } from "../contract/resolve-config.ts";
import type { FieldPath } from "../contract/schema-fields.ts";
import { checkOverflow } from "./check-overflow.ts";
import { checkGpus } from "./check-gpus.ts";
import { checkPrices } from "./check-prices.ts";
import { valueAt } from "./describe-issue.ts";
import { duplicates, listAt, mistake, namesAt, numberAt, textAt, warning } from "./finding.ts";
import type { Finding } from "./finding.ts";

/** What one key alone can't tell; reported in the same go as the other mistakes. */
export function crossCheck(raw: unknown, env: Env, overrides: ConfigOverrides): Finding[] {
  return [
    ...checkUpstreamsPresent(raw, overrides),
    ...checkAccess(raw, overrides),
    ...checkControl(raw, overrides),
    ...checkKeys(raw),
    ...checkCoordination(raw),
    ...checkSizes(raw),
    ...checkCallbacks(raw, env),
    ...checkModelNames(raw),
    ...checkControlUrls(raw),
    ...checkClientCertificates(raw),
    ...checkFeed(raw, env, overrides),
    ...checkSharedEndpoints(raw),
    ...checkGpus(raw),
    ...checkPrices(raw),
    ...checkOverflow(raw, env),
    ...duplicates(namesAt(raw, ["upstreams"], "id"), "an upstream with this id exists already"),
    ...listAt(raw, ["upstreams"]).flatMap((upstream, index) =>
      checkUpstream(raw, upstream, ["upstreams", index], { env, overrides }),
    ),
  ];
}

/** Each upstream counts its own requests, so an engine under two of them gets the slots of both. */
function checkSharedEndpoints(raw: unknown): Finding[] {
  const owners = new Map<string, string>();
  return listAt(raw, ["upstreams"]).flatMap((upstream, index) => {
    const id = textAt(upstream, ["id"]) ?? `number ${index + 1}`;
    return listAt(upstream, ["endpoints"]).flatMap((endpoint, place) => {
      const url = parseEndpointUrl(textAt(endpoint, ["url"]) ?? "")?.url;
      const owner = url === undefined ? id : owners.get(url);
      if (url !== undefined && owner === undefined) owners.set(url, id);
      if (owner === undefined || owner === id) return [];
      const path = ["upstreams", index, "endpoints", place, "url"];
      return [warning(path, `is an endpoint of upstream ${owner} too: the engine may get the slots of both`)];
    });
  });
}

function checkUpstreamsPresent(raw: unknown, overrides: ConfigOverrides): Finding[] {
  if (overrides.gateway === false) return [];
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) return [];
  if (!("upstreams" in raw))
    return [
      mistake(
        ["upstreams"],
        "is missing: a gateway without upstreams serves nothing",
        "write `upstreams: []` if that is meant; a file for a control plane or an agent alone has `control` or `agent`, and needs none",
      ),
    ];
  const catalog = overrides.standIn === undefined && valueAt(raw, ["control", "catalog"]) !== undefined;
  const follows = overrides.standIn === true || catalog || valueAt(raw, ["gateway", "control"]) !== undefined;
  const nothing = Array.isArray(raw.upstreams) && raw.upstreams.length === 0 && !follows;
  return nothing ? [warning(["upstreams"], "is empty: every request will be answered 404")] : [];
}

/** Over a link pass a credential and the keys of engines. */
function checkControlUrls(raw: unknown): Finding[] {
  return ["agent", "gateway"].flatMap((role) =>
    listAt(raw, [role, "control"]).flatMap((value, index) => {
      const url = typeof value === "string" ? parseControlUrl(value) : null;
      if (url === null || isSafeControlUrl(url)) return [];
      const path = [role, "control", index];
      return [mistake(path, "`ws://` is for loopback only", "use wss://, and `ca_file` for your own certificates")];
    }),
  );
}

function checkClientCertificates(raw: unknown): Finding[] {
  return ["agent", "gateway"].flatMap((role) => {
    const has = (key: string): boolean => valueAt(raw, [role, key]) !== undefined;
    if (has("client_cert_file") === has("client_key_file")) return [];
    const missing = has("client_cert_file") ? "client_key_file" : "client_cert_file";
    return [mistake([role, missing], "is missing: a certificate is shown with its key", "name both files, or none")];
  });
}

function checkFeed(raw: unknown, env: Env, overrides: ConfigOverrides): Finding[] {
  // Control planes and agents read the same file and follow nobody.
  if (overrides.gateway === false) return [];
  if (valueAt(raw, ["gateway", "control"]) === undefined) return [];
  const tokenEnv = textAt(raw, ["gateway", "token_env"]) ?? "YARDMASTER_TOKEN";
  if (valueIn(env, tokenEnv) !== undefined) return [];
  const message = `the environment variable ${tokenEnv} is not set: the control planes let nobody in without a credential`;
  return [warning(["gateway", "control"], message)];
}

function checkAccess(raw: unknown, overrides: ConfigOverrides): Finding[] {
  const fromFile = valueAt(raw, ["listen"]);
  const text = overrides.listen ?? (fromFile === undefined ? "127.0.0.1:8200" : fromFile);
  const listen = typeof text === "string" ? parseListen(text) : undefined;
  const mode = valueAt(raw, ["auth", "mode"]) ?? "keys";
  const insecure = valueAt(raw, ["auth", "allow_insecure"]) === true;
  const openMode = mode === "none";
  if (listen === undefined || isLoopback(listen.host)) {
    return openMode && insecure
      ? [
          warning(
            ["auth", "allow_insecure"],
            "is not needed on a loopback address, and would matter if `listen` changed",
          ),
        ]
      : [];
  }
  if (openMode && insecure)
    return [warning(["auth", "allow_insecure"], "anyone who reaches the address can use the GPUs without a key")];
  if (openMode)
    return [
      mistake(
        ["auth", "mode"],
        "`none` is refused, since `listen` is not a loopback address",
        "use `mode: keys`, or a loopback address in `listen`; `allow_insecure: true` opens the gateway to everyone on the network",
      ),
    ];
  if (listAt(raw, ["auth", "keys"]).length > 0 || insecure) return [];
  return [
    mistake(
      ["auth", "keys"],
      "there is no key, and `listen` is not a loopback address",
      "make one with `yardmaster key new` and put its lines here; one of role admin can then make more with `yardmaster ctl key new`",
    ),
  ];
}

function checkControl(raw: unknown, overrides: ConfigOverrides): Finding[] {
  const found: Finding[] = [];
  const lease = numberAt(raw, ["control", "lease_s"]) ?? 10;
  const blind = numberAt(raw, ["control", "lease_max_blind_s"]);
  if (blind !== undefined && blind > lease)
    found.push(
      warning(
        ["control", "lease_max_blind_s"],
        `is longer than lease_s (${lease}): where there are two control planes, another may lead by then`,
      ),
    );
  const text = overrides.controlListen ?? textAt(raw, ["control", "listen"]);
  const listen = text === undefined ? undefined : parseListen(text);
  if (listen === undefined || isLoopback(listen.host) || valueAt(raw, ["auth", "allow_insecure"]) === true)
    return found;
  const path = ["control", "listen"];
  if (valueAt(raw, ["auth", "mode"]) === "none")
    found.push(mistake(path, "is not a loopback address, and `auth.mode` is `none`", "use `mode: keys`"));
  else if (listAt(raw, ["auth", "keys"]).length === 0)
    found.push(
      mistake(
        path,
        "is not a loopback address, and there is no key",
        "make one with `yardmaster key new --role admin` and put its lines below `auth.keys`",
      ),
    );
  return found;
}

function checkKeys(raw: unknown): Finding[] {
  const idle = listAt(raw, ["auth", "keys"]).flatMap((key, index) => {
    const role = valueAt(key, ["role"]);
    return valueAt(key, ["classes"]) !== undefined &&
      typeof role === "string" &&
      ["agent", "gateway", "metrics", "approver"].includes(role)
      ? [
          warning(
            ["auth", "keys", index, "classes"],
            `means nothing for role \`${role}\`, which sends no requests to engines`,
          ),
        ]
      : [];
  });
  return [
    ...idle,
    ...duplicates(namesAt(raw, ["auth", "keys"], "id"), "a key with this id exists already"),
    ...duplicates(
      namesAt(raw, ["auth", "keys"], "hash"),
      "the same key stands here already under another entry, so the two can't be told apart",
    ),
  ];
}

/** The URL may stand there without being used: switching is one line, both ways. */
function checkCoordination(raw: unknown): Finding[] {
  if (valueAt(raw, ["coordination"]) !== "redis" || valueAt(raw, ["redis_url"]) !== undefined) return [];
  return [mistake(["redis_url"], "is missing, and `coordination` is `redis`", "such as redis://127.0.0.1:6379/0")];
}

function checkSizes(raw: unknown): Finding[] {
  const body = numberAt(raw, ["max_body_bytes"]) ?? 67_108_864;
  const buffered = numberAt(raw, ["max_buffered_bytes"]) ?? 402_653_184;
  const found: Finding[] = [];
  if (body > buffered)
    found.push(
      mistake(
        ["max_body_bytes"],
        `is larger than max_buffered_bytes (${buffered}), so such a body could never be held`,
        "raise max_buffered_bytes or lower max_body_bytes",
      ),
    );
  const head = numberAt(raw, ["http", "headers_timeout_s"]) ?? 0;
  if (head > 120)
    found.push(
      warning(
        ["http", "headers_timeout_s"],
        "lets one slow client hold a connection for minutes before it has asked for anything",
      ),
    );
  return found;
}

function checkCallbacks(raw: unknown, env: Env): Finding[] {
  const path: FieldPath = ["jobs", "callback_allow"];
  const entries = listAt(raw, path);
  const found = entries.flatMap((entry, index) =>
    typeof entry === "string" && parseCallbackAllow([entry]).kind === "bad"
      ? [
          mistake(
            [...path, index],
            "is no host, address or range",
            "such as hooks.example.com, *.example.com or 10.1.0.0/16",
          ),
        ]
      : [],
  );
  const secretEnv = textAt(raw, ["jobs", "callback_secret_env"]) ?? "YARDMASTER_CALLBACK_SECRET";
  if (entries.length > 0 && valueIn(env, secretEnv) === undefined)
    found.push(warning(path, `${secretEnv} is not set: callbacks can't be signed, so none is accepted`));
  return found;
}

function checkModelNames(raw: unknown): Finding[] {
  const owner = new Map<string, { readonly upstream: number; readonly path: FieldPath }>();
  const found: Finding[] = [];
  for (const [upstream] of listAt(raw, ["upstreams"]).entries()) {
    const base: FieldPath = ["upstreams", upstream];
    const names: { readonly name: unknown; readonly path: FieldPath }[] = listAt(raw, [...base, "models"]).map(
      (name, index) => ({ name, path: [...base, "models", index] }),
    );
    names.push({ name: valueAt(raw, [...base, "model"]), path: [...base, "model"] });
    for (const { name, path } of names) {
      if (typeof name !== "string") continue;
      const first = owner.get(name);
      if (first === undefined) owner.set(name, { upstream, path });
      else if (first.upstream !== upstream)
        found.push({
          severity: "mistake",
          path,
          message: "another upstream serves a model of this name, so a request could go to either",
          first: first.path,
        });
      else found.push({ severity: "warning", path, message: "stands here twice", first: first.path });
    }
  }
  return found;
}

const NOT_YET: readonly string[] = ["job"];
const OF_DOCUMENTS: readonly string[] = ["document-intelligence", "ocr"];

interface Around {
  readonly env: Env;
  readonly overrides: ConfigOverrides;
}

function checkUpstream(raw: unknown, upstream: unknown, path: FieldPath, { env, overrides }: Around): Finding[] {
  if (typeof upstream !== "object" || upstream === null || Array.isArray(upstream)) return [];
  const found: Finding[] = [];
  const kind = valueAt(upstream, ["kind"]) ?? "openai";
  const catalog = valueAt(upstream, ["model"]) !== undefined;
  const slots = numberAt(upstream, ["slots"]);
  const batchMax = numberAt(upstream, ["batch_max"]);
  if (typeof kind === "string" && NOT_YET.includes(kind))
    found.push(
      mistake(
        [...path, "kind"],
        `\`${kind}\` is not available in this version`,
        "use `openai`, `http`, `azure-di` or `comfyui`",
      ),
    );
  if (!("slots" in upstream) && !catalog)
    found.push(mistake([...path, "slots"], "is missing: how many requests the engines take at once"));
  if (slots !== undefined && batchMax !== undefined && batchMax > slots)
    found.push(
      mistake([...path, "batch_max"], `is larger than slots (${slots})`, "leave it out for three quarters of `slots`"),
    );
  if (kind === "openai" && !catalog && listAt(upstream, ["models"]).length === 0) {
    found.push(
      mistake(
        [...path, "models"],
        "names no model, so no request would ever come here",
        "list the served names, or use `kind: http` to reach it below /upstreams/{id}/ only",
      ),
    );
  }
  if (catalog) found.push(...checkCatalogModel(raw, upstream, path, overrides));
  else if (listAt(upstream, ["endpoints"]).length === 0)
    found.push(warning([...path, "endpoints"], "is empty: requests will be answered 503"));
  return [
    ...found,
    ...checkDocuments(upstream, kind, path),
    ...checkComfyUi(upstream, kind, path),
    ...checkEndpoints(upstream, path),
    ...checkUpstreamDetails(upstream, path, env),
    ...checkQueueBytes(raw, upstream, path),
  ];
}

function checkCatalogModel(raw: unknown, upstream: object, path: FieldPath, { standIn }: ConfigOverrides): Finding[] {
  const found: Finding[] = [];
  const follows = standIn === true || valueAt(raw, ["gateway", "control"]) !== undefined;
  if (!follows)
    found.push(
      warning([...path, "model"], "needs `gateway.control`: without it only what `endpoints` names is served"),
    );
  if ("slots" in upstream) return found;
  for (const [index, endpoint] of listAt(upstream, ["endpoints"]).entries())
    if (valueAt(endpoint, ["slots"]) === undefined)
      found.push(mistake([...path, "endpoints", index, "slots"], "is missing, and the upstream has none either"));
  return found;
}

function checkComfyUi(upstream: object, kind: unknown, path: FieldPath): Finding[] {
  const engine = textAt(upstream, ["engine"]) ?? "generic";
  if (kind !== "comfyui")
    return engine === "comfyui"
      ? [mistake([...path, "engine"], "`comfyui` makes images and videos", "it goes with `kind: comfyui`")]
      : [];
  const found: Finding[] = [];
  if (engine !== "generic" && engine !== "comfyui")
    found.push(mistake([...path, "engine"], `\`${engine}\` runs no workflows`, "leave it out"));
  if (listAt(upstream, ["models"]).length > 0)
    found.push(
      mistake([...path, "models"], "names models, and workflows name none", "jobs go to it by `upstream` alone"),
    );
  return found;
}

/** What analyses documents, and what does not. */
function checkDocuments(upstream: object, kind: unknown, path: FieldPath): Finding[] {
  const engine = textAt(upstream, ["engine"]);
  const ofDocuments = engine !== undefined && OF_DOCUMENTS.includes(engine);
  if (kind !== "azure-di")
    return ofDocuments
      ? [mistake([...path, "engine"], `\`${engine}\` analyses documents`, "it goes with `kind: azure-di`")]
      : [];
  const found: Finding[] = [];
  if (engine !== undefined && engine !== "generic" && !ofDocuments)
    found.push(mistake([...path, "engine"], `\`${engine}\` analyses no documents`, `use ${OF_DOCUMENTS.join(" or ")}`));
  if (valueAt(upstream, ["ocr_path"]) !== undefined && engine !== "ocr")
    found.push(warning([...path, "ocr_path"], "is for `engine: ocr` alone"));
  const models = listAt(upstream, ["models"]);
  if (models.length === 0)
    found.push(
      mistake(
        [...path, "models"],
        "names no model, so no document would ever come here",
        "list ids such as prebuilt-read",
      ),
    );
  for (const [index, model] of models.entries())
    if (typeof model === "string" && !MODEL_ID.test(model))
      found.push(
        mistake(
          [...path, "models", index],
          "is no id of a document model",
          "2 to 64 letters, digits, '.', '_', '~' or '-', the first a letter or digit",
        ),
      );
  return found;
}

function checkEndpoints(upstream: object, path: FieldPath): Finding[] {
  const seen = new Map<string, FieldPath>();
  return listAt(upstream, ["endpoints"]).flatMap((endpoint, index): Finding[] => {
    const at = [...path, "endpoints", index, "url"];
    const address = parseEndpointUrl(textAt(endpoint, ["url"]) ?? "");
    if (address === undefined) return [];
    const first = seen.get(address.url);
    if (first !== undefined)
      return [
        { severity: "mistake", path: at, message: "this upstream has an endpoint with this address already", first },
      ];
    seen.set(address.url, at);
    return address.basePath.endsWith("/v1")
      ? [warning(at, "ends in /v1, which requests bring along: they would go to /v1/v1/…")]
      : [];
  });
}

function checkUpstreamDetails(upstream: object, path: FieldPath, env: Env): Finding[] {
  const found: Finding[] = [];
  const keyEnv = textAt(upstream, ["key_env"]);
  if (keyEnv !== undefined && /^[A-Za-z_][A-Za-z0-9_]*$/.test(keyEnv) && valueIn(env, keyEnv) === undefined) {
    found.push(
      warning(
        [...path, "key_env"],
        "names an environment variable that is not set: requests go to the engine without a key",
      ),
    );
  }
  const total = numberAt(upstream, ["timeouts", "total_s"]) ?? 3600;
  for (const name of ["connect_s", "first_byte_s", "idle_s"]) {
    const value = numberAt(upstream, ["timeouts", name]);
    if (value !== undefined && value > total)
      found.push(
        warning([...path, "timeouts", name], `is longer than total_s (${total}), which ends the request first`),
      );
  }
  return found;
}

function checkQueueBytes(raw: unknown, upstream: object, path: FieldPath): Finding[] {
  const body = numberAt(raw, ["max_body_bytes"]) ?? 67_108_864;
  const queueBytes = numberAt(upstream, ["queue", "max_bytes"]);
  return queueBytes !== undefined && queueBytes < body
    ? [
        warning(
          [...path, "queue", "max_bytes"],
          `is smaller than max_body_bytes (${body}): a large body can never wait`,
        ),
      ]
    : [];
}
