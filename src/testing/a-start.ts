import type { StartVerb } from "../contract/agent-link.ts";
import type { Profile } from "../contract/catalog.ts";

export const aProfile = (over: Partial<Profile> = {}): Profile => ({
  hash: "hash",
  engine: "sim",
  source: null,
  sha256: null,
  weightsName: null,
  gpu: null,
  cpu: null,
  diskMib: 0,
  args: {},
  env: {},
  command: null,
  ...over,
});

export interface StartOver extends Partial<Omit<StartVerb, "kind" | "profile">> {
  readonly profile?: Partial<Profile>;
}

/** A start of a simulated engine, unless told otherwise. */
export const aStart = ({ profile, ...over }: StartOver = {}): StartVerb => ({
  kind: "start",
  replicaId: "r1",
  generation: 1,
  shard: { index: 0, of: 1, headAddress: null, rendezvousPort: null },
  model: { name: "m", aliases: ["m-alias"], slots: 4 },
  profile: aProfile(profile),
  gpuUuids: [],
  gpuMemoryMib: profile?.gpu?.memoryMib ?? 0,
  engineKey: "key-of-this-replica",
  startStallMs: 60_000,
  stopGraceMs: 5_000,
  ...over,
});
