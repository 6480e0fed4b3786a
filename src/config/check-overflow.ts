import { SIGNING_SECRET_CHARS_MIN } from "../contract/audit-chain.ts";
import { valueIn, type Env } from "../contract/env.ts";
import { providerConfig } from "../contract/overflow-provider-schema.ts";
import { providerProblems } from "../contract/resolve-provider.ts";
import type { FieldPath } from "../contract/schema-fields.ts";
import { valueAt } from "./describe-issue.ts";
import { duplicates, listAt, mistake, namesAt, textAt, warning, type Finding } from "./finding.ts";

/** What each kind of signal needs; the others have a usual value. */
const NEEDED: Readonly<Record<string, readonly string[]>> = {
  comfyui_vram: ["url", "busy_pct"],
  gpu_util_with_backlog: ["gpu", "queue_url", "busy_pct"],
  semaphore: ["url", "busy_field"],
  queue_depth: ["min"],
  queue_time_p90_s: ["above"],
};

/** Work that may go elsewhere: who is asked, by what, and for how much money. */
export function checkOverflow(raw: unknown, env: Env): Finding[] {
  const upstreams = new Set(namesAt(raw, ["upstreams"], "id").map(({ name }) => name));
  const owners = namesAt(raw, ["overflow"], "upstream");
  const sections = listAt(raw, ["overflow"]).map((section, index) => ({ section, path: ["overflow", index] }));
  const accounts = sections.flatMap(({ path }) => namesAt(raw, [...path, "tiers"], "id"));
  return [
    ...duplicates(owners, "this upstream has a section already"),
    ...duplicates(accounts, "another tier has this id"),
    ...owners
      .filter(({ name }) => name !== undefined && !upstreams.has(name))
      .map(({ path }) => warning(path, "is no upstream of this file")),
    ...checkSigning(raw, env),
    ...checkSecretHosts(raw),
    ...sections.flatMap(({ section, path }) => [
      ...listAt(section, ["signals"]).flatMap((signal, place) => checkSignal(raw, signal, [...path, "signals", place])),
      ...listAt(section, ["tiers"]).flatMap((tier, place) => checkTier(tier, [...path, "tiers", place], env)),
    ]),
  ];
}

/** A place's secret is for that place: under the same name it would be told to another. */
function checkSecretHosts(raw: unknown): Finding[] {
  const uses = [
    ...listAt(raw, ["overflow"]).flatMap((section, index) =>
      listAt(section, ["tiers"]).flatMap((tier, place) => {
        const path = ["overflow", index, "tiers", place];
        const url = textAt(tier, ["base_url"]) ?? `the usual one of ${textAt(tier, ["provider"])}`;
        return ["key_env", "secret_key_env"].map((key) => ({ name: textAt(tier, [key]), url, path: [...path, key] }));
      }),
    ),
    ...listAt(raw, ["upstreams"]).flatMap((upstream, index) =>
      listAt(upstream, ["endpoints"]).map((endpoint) => ({
        name: textAt(upstream, ["key_env"]),
        url: textAt(endpoint, ["url"]) ?? "",
        path: ["upstreams", index, "key_env"],
      })),
    ),
  ];
  const tiers = uses.filter(({ path }) => path[0] === "overflow");
  return tiers.flatMap(({ name, url, path }, index) => {
    const isOther = (use: (typeof uses)[number]): boolean => use.name === name && hostOf(use.url) !== hostOf(url);
    // Of two tiers the second one is told; an engine's own host is a different place in any case.
    const first =
      name === undefined ? undefined : (tiers.slice(0, index).find(isOther) ?? uses.slice(tiers.length).find(isOther));
    const message = "names a secret that another host is given too: a secret is for one place";
    return first === undefined ? [] : [{ severity: "mistake", path, message, first: first.path }];
  });
}

const hostOf = (url: string): string => URL.parse(url)?.host ?? url;

/** Approvals of single jobs are signed, and whoever has the job when it is sent must be able to tell a true one. */
function checkSigning(raw: unknown, env: Env): Finding[] {
  const names = listAt(raw, ["signing_key_envs"]);
  const found = names.flatMap((name, index) => {
    const value = typeof name === "string" ? valueIn(env, name) : undefined;
    const path = ["signing_key_envs", index];
    if (value === undefined)
      return [warning(path, "names an environment variable that is not set: a gateway without any signs nothing")];
    return value.length < SIGNING_SECRET_CHARS_MIN
      ? [mistake(path, `names a secret of less than ${SIGNING_SECRET_CHARS_MIN} characters`)]
      : [];
  });
  if (names.length > 0 || valueAt(raw, ["coordination"]) !== "redis") return found;
  const perJob = listAt(raw, ["overflow"]).some((section) =>
    listAt(section, ["tiers"]).some((tier) => textAt(tier, ["approval"]) === "per_job"),
  );
  return perJob
    ? [mistake(["signing_key_envs"], "is missing: gateways that share approvals sign them with one secret")]
    : [];
}

function checkSignal(raw: unknown, signal: unknown, path: FieldPath): Finding[] {
  const kind = textAt(signal, ["kind"]) ?? "";
  const found: Finding[] = (NEEDED[kind] ?? [])
    .filter((key) => valueAt(signal, [key]) === undefined)
    .map((key) => mistake([...path, key], `is missing: \`kind: ${kind}\` needs it`));
  if (kind === "gpu_util_with_backlog" && valueAt(raw, ["gpu_health"]) === undefined)
    found.push(warning([...path, "gpu"], "is watched by nobody without `gpu_health`, so the signal stays broken"));
  return found;
}

function checkTier(tier: unknown, path: FieldPath, env: Env): Finding[] {
  const found: Finding[] = [];
  const parsed = providerConfig.safeParse(tier);
  for (const { key, problem } of parsed.success ? providerProblems(parsed.data) : [])
    found.push(mistake([...path, key], problem));
  if (valueAt(tier, ["price"]) !== undefined)
    for (const key of ["per_day", "per_month"])
      if (valueAt(tier, ["budget", key]) === undefined)
        found.push(mistake([...path, "budget", key], "is missing: a tier that costs money has a budget"));
  if (valueAt(tier, ["two_person"]) === true && textAt(tier, ["approval"]) !== "per_job")
    found.push(warning([...path, "two_person"], "has no effect without `approval: per_job`"));
  for (const key of ["key_env", "secret_key_env"]) {
    const name = textAt(tier, [key]);
    if (name !== undefined && valueIn(env, name) === undefined)
      found.push(warning([...path, key], "names an environment variable that is not set: the tier takes nothing"));
  }
  return found;
}
