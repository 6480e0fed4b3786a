import type { FieldPath } from "../contract/schema-fields.ts";
import { parseGpuName } from "../decide/gpu/gpu-name.ts";
import { valueAt } from "./describe-issue.ts";
import {
  duplicates,
  listAt,
  mistake,
  namesAt,
  numberAt,
  textAt,
  warning,
  type Finding,
  type NamedPlace,
} from "./finding.ts";

const SECTION: FieldPath = ["gpu_health"];

/** What the file says of cards: the names under endpoints, and what they are watched by. */
export function checkGpus(raw: unknown): Finding[] {
  const sources = listAt(raw, [...SECTION, "sources"]).flatMap(
    (source) => textAt(source, ["host"])?.toLowerCase() ?? [],
  );
  // With a control plane every node's agent is a source too, and which nodes there are is not in the file.
  const hosts = listAt(raw, ["gateway", "control"]).length === 0 ? sources : [];
  const isWatched = valueAt(raw, SECTION) !== undefined;
  return [
    ...checkSection(raw),
    ...listAt(raw, ["upstreams"]).flatMap((upstream, index) => [
      ...checkOldForm(raw, upstream, ["upstreams", index, "gpu_ids"]),
      ...listAt(upstream, ["endpoints"]).flatMap((endpoint, place) => {
        const names = listAt(endpoint, ["gpus"]);
        const path = ["upstreams", index, "endpoints", place, "gpus"];
        const idle = isWatched || names.length === 0 ? [] : [warning(path, "has no effect without `gpu_health`")];
        return [...idle, ...checkNames(names, path, hosts)];
      }),
    ]),
  ];
}

function checkSection(raw: unknown): Finding[] {
  const section = valueAt(raw, SECTION);
  if (typeof section !== "object" || section === null) return [];
  const is = (key: string): boolean => valueAt(section, [key]) === true;
  const found: Finding[] = [...checkSources(raw, section)];
  if (is("couple_xid") && !is("couple_faults"))
    found.push(warning([...SECTION, "couple_xid"], "has no effect on endpoints without `couple_faults: true`"));
  if (is("dry_run") && !is("couple_faults") && !is("shed_batch"))
    found.push(warning([...SECTION, "dry_run"], "has nothing to try: neither `couple_faults` nor `shed_batch` is on"));
  const poll = numberAt(section, ["poll_s"]) ?? 15;
  const staleness = numberAt(section, ["staleness_s"]) ?? 60;
  if (staleness <= poll)
    found.push(
      mistake(
        [...SECTION, "staleness_s"],
        `is not longer than poll_s (${poll}), so every sample would be stale before the next`,
        "use at least three times poll_s",
      ),
    );
  return found;
}

function checkSources(raw: unknown, section: object): Finding[] {
  const found: Finding[] = [];
  if (valueAt(section, ["dcgm_url"]) !== undefined && listAt(section, ["sources"]).length > 0)
    found.push(
      mistake(
        [...SECTION, "dcgm_url"],
        "stands beside `sources`",
        "write it as one of them, with the name of its host",
      ),
    );
  const named = (key: string): NamedPlace[] =>
    namesAt(raw, [...SECTION, "sources"], key).map(({ name, path }) => ({ name: name?.toLowerCase(), path }));
  return [
    ...found,
    ...duplicates(named("dcgm_url"), "this exporter is a source already"),
    ...duplicates(named("host"), "another source is of this host"),
  ];
}

/** `gpu_ids` says nothing of a host, so there may be only one that it can mean. */
function checkOldForm(raw: unknown, upstream: unknown, path: FieldPath): Finding[] {
  const ids = listAt(upstream, ["gpu_ids"]);
  if (ids.length === 0) return [];
  const found: Finding[] = [];
  const section = valueAt(raw, SECTION);
  const sources = listAt(section, ["sources"]).length + (textAt(section, ["dcgm_url"]) === undefined ? 0 : 1);
  if (section === undefined) found.push(warning(path, "has no effect without `gpu_health`"));
  else if (sources !== 1)
    found.push(
      mistake(
        path,
        sources === 0
          ? "needs one source in `gpu_health`"
          : `does not tell which of the ${sources} sources' hosts is meant`,
        "name the cards under each endpoint instead, as `gpus: [host/index]` or by UUID",
      ),
    );
  const seen = new Set<unknown>();
  for (const [index, id] of ids.entries()) {
    if (seen.has(id)) found.push(mistake([...path, index], "stands here twice"));
    seen.add(id);
  }
  return found;
}

function checkNames(names: readonly unknown[], path: FieldPath, hosts: readonly string[]): Finding[] {
  const seen = new Set<string>();
  return names.flatMap((text, index): Finding[] => {
    if (typeof text !== "string" || text === "") return [];
    const at = [...path, index];
    const name = parseGpuName(text);
    if (name === undefined)
      return [
        mistake(
          at,
          /^-?\d+$/.test(text) ? "is an index without a host" : "is no name of a card",
          "use a UUID such as GPU-8ea17be8-…, or host/index such as a01/0",
        ),
      ];
    const key = text.toLowerCase();
    if (seen.has(key)) return [mistake(at, "stands here twice")];
    seen.add(key);
    if (name.kind === "place" && hosts.length > 0 && !hosts.includes(name.host.toLowerCase()))
      return [
        mistake(at, "names a host of which no source is", `hosts of the sources: ${hosts.slice(0, 8).join(", ")}`),
      ];
    return [];
  });
}
