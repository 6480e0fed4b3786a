import type { GatewayReport } from "../../contract/feed.ts";
import type { GpuReport } from "../../contract/fleet.ts";
import { BoardDesk, type BoardDeskPorts } from "../board/board-desk.ts";
import type { Dispatcher } from "../http/dispatcher.ts";
import type { Overflow } from "../overflow/open-overflow.ts";
import type { UpstreamRegistry } from "../upstreams/upstream-registry.ts";
import type { FeedUser } from "./feed-client.ts";
import { makeReport } from "./feed-report.ts";

export interface FeedUserPorts extends Pick<BoardDeskPorts, "clock" | "keys" | "metrics"> {
  readonly registry: UpstreamRegistry;
  readonly overflow: Overflow;
  readonly dispatcher: Dispatcher;
  readonly jobs: () => GatewayReport["jobs"] | null;
  readonly onState: FeedUser["onState"];
  readonly onReadings: (node: string, gpus: readonly GpuReport[], ageMs: number) => void;
}

/** What a gateway does with what it is told, and what it tells of itself. */
export function feedUser(ports: FeedUserPorts): FeedUser {
  const { clock, keys, metrics, registry, overflow, dispatcher } = ports;
  return {
    onState: ports.onState,
    onReadings: (nodes) => {
      for (const { node, gpus, ageMs } of nodes) ports.onReadings(node, gpus, ageMs);
    },
    report: (now) => ({ ...makeReport(registry.shown(), now), jobs: ports.jobs() }),
    board: new BoardDesk({
      clock,
      keys,
      metrics,
      upstreams: () => registry.shown(),
      hasOverflow: (id) => overflow.desk.policyOf(id) !== undefined,
      onRequest: (req, res, vouched) => dispatcher.onRequest(req, res, false, vouched),
    }),
  };
}
