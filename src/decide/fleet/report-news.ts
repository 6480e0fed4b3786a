import type { NodeReport } from "../../contract/fleet.ts";

/** What of a report a pass may act upon at once. Readings that waver with each heartbeat are not in it: the next tick sees them. */
export const reportNews = ({ bootId, address, labels, highestEpoch, gpuDiscovery, gpus, shards }: NodeReport): string =>
  JSON.stringify([
    bootId,
    address,
    labels,
    highestEpoch,
    gpuDiscovery,
    gpus.map(({ uuid, health }) => [uuid, health]),
    shards.map(({ replicaId, generation, shard, state, port, blockedBy }) => [
      replicaId,
      generation,
      shard,
      state,
      port,
      blockedBy,
    ]),
  ]);
