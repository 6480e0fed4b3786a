import { type Holding, type NodeRoom, nodeRoom, type PlacementNode } from "./node-room.ts";

/** The rooms of all nodes in the order of their ids, and by class of card. */
export interface FleetRoom {
  readonly rooms: readonly NodeRoom[];
  readonly byClass: ReadonlyMap<string, readonly NodeRoom[]>;
  /** Numbers for what needs ask of cards. */
  readonly cardsKeys: Map<string, number>;
}

export function fleetRoom(nodes: Iterable<PlacementNode>, holdings: Iterable<Holding>): FleetRoom {
  const byNode = Map.groupBy(holdings, ({ nodeId }) => nodeId);
  const rooms = [...nodes]
    .toSorted((a, b) => (a.nodeId < b.nodeId ? -1 : 1))
    .map((node) => nodeRoom(node, byNode.get(node.nodeId) ?? []));
  const byClass = new Map<string, NodeRoom[]>();
  for (const room of rooms) {
    for (const gpuClass of new Set(room.cards.map((card) => card.class))) {
      const its = byClass.get(gpuClass);
      if (its === undefined) byClass.set(gpuClass, [room]);
      else its.push(room);
    }
  }
  return { rooms, byClass, cardsKeys: new Map() };
}
