import { hash } from "node:crypto";
import type { CatalogFile, ModelEntry, ProfileEntry } from "./catalog-schema.ts";
import type { Catalog, Model, Profile } from "./catalog.ts";

const BYTES_PER_GB = 1e9;
const BYTES_PER_MIB = 1_048_576;

/** A need is rounded up. */
const mib = (gigabytes: number): number => Math.ceil((gigabytes * BYTES_PER_GB) / BYTES_PER_MIB);

/** The file is taken to be checked. The result is frozen: a snapshot that readers hold can't change under them. */
export function resolveCatalog(file: CatalogFile, revision: number): Catalog {
  const models = new Map(file.models.map((entry) => [entry.name, resolveModel(entry)]));
  return Object.freeze({ revision, models });
}

export function resolveModel(entry: ModelEntry): Model {
  const { min } = entry.replicas;
  return deepFrozen({
    name: entry.name,
    aliases: entry.aliases,
    priority: entry.priority,
    replicas: { min, max: entry.replicas.max ?? Math.max(1, min) },
    idleStopMs: entry.idle_stop_s === undefined ? null : Math.round(entry.idle_stop_s * 1000),
    autoscale:
      entry.autoscale === undefined
        ? null
        : {
            target: entry.autoscale.target_in_flight_per_slot,
            upAfterMs: Math.round(entry.autoscale.up_after_s * 1000),
            downAfterMs: Math.round(entry.autoscale.down_after_s * 1000),
          },
    slotsPerReplica: entry.slots_per_replica,
    rollout: entry.rollout,
    profiles: entry.profiles.map((profile) => resolveProfile(profile, entry.allow_pickle)),
    nodes: { require: entry.nodes.require, avoid: entry.nodes.avoid, gpuUuids: entry.nodes.gpu_uuids },
    multiNode: entry.multi_node ?? null,
  });
}

function resolveProfile(entry: ProfileEntry, allowPickle: boolean): Profile {
  const source = entry.source ?? null;
  const content: Omit<Profile, "hash"> = {
    engine: entry.engine,
    source,
    sha256: entry.sha256 ?? null,
    weightsName: source === null ? null : weightsName(source, allowPickle),
    gpu:
      entry.gpu === undefined
        ? null
        : {
            classes: [...new Set(entry.gpu.class.map((name) => name.toLowerCase()))],
            count: entry.gpu.count,
            memoryMib: mib(entry.gpu.memory_gb),
          },
    cpu: entry.cpu === undefined ? null : { cores: entry.cpu.cores, memoryMib: mib(entry.cpu.memory_gb) },
    diskMib: mib(entry.disk_gb),
    args: entry.args,
    env: entry.env,
    command: entry.command ?? null,
    // Only where it is set: profiles that have nothing to do with it keep their hashes.
    ...(allowPickle ? { allowPickle } : {}),
  };
  return { hash: hash("sha256", canonicalJson(content), "hex"), ...content };
}

/**
 * From the source alone, so that the wanted names can be computed from a catalog. A path and its `file://` URL are one source. Where
 * pickle is allowed it is another name: what is fetched then may be other files, and no model without the permission gets them.
 */
export const weightsName = (source: string, allowPickle = false): string =>
  hash("sha256", source.replace(/^file:\/\/(?=\/)/, "") + (allowPickle ? "\nallow_pickle" : ""), "hex");

/** JSON with the members of every object in one order: equal values have equal texts. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : inner,
  );
}

/** A plain value and all that is in it. */
export function deepFrozen<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  for (const inner of Object.values(value)) deepFrozen(inner);
  return Object.freeze(value);
}
