import type { ReplicaDoc } from "../../contract/fleet.ts";

/** Where the shards of one replica meet; apart from the ports that agents give to engines. */
const PORT_MIN = 29_500;
const PORT_MAX = 30_499;

/** The lowest that no other replica uses whose head is on the node. */
export function freeRendezvousPort(replicas: Iterable<ReplicaDoc>, headNodeId: string): number {
  const taken = new Set<number>();
  for (const { shards } of replicas) {
    const [head] = shards;
    if (head !== undefined && head.nodeId === headNodeId && head.rendezvousPort !== null)
      taken.add(head.rendezvousPort);
  }
  for (let port = PORT_MIN; port <= PORT_MAX; port++) if (!taken.has(port)) return port;
  throw new Error(`placement: node ${headNodeId} has no rendezvous port left`);
}
