import { ANONYMOUS, type RequestKey } from "../../access/request-key.ts";
import type { KeyRing } from "../../access/key-ring.ts";
import { METRICS } from "../../contract/metric-names.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { BoardPeer, FeedBoard } from "../feed/feed-client.ts";
import type { BoardRequest } from "../feed/feed-link.ts";
import type { GatewayMetrics } from "../metrics/gateway-metrics.ts";
import type { Upstream } from "../upstreams/upstream.ts";
import { AskDesk, type AskPorts } from "./ask-desk.ts";
import { BoardReporter } from "./board-reporter.ts";
import { boardRow } from "./board-rows.ts";

export interface BoardDeskPorts {
  readonly clock: Clock;
  readonly keys: Pick<KeyRing, "byId">;
  readonly metrics: Pick<GatewayMetrics, "knownUpstream">;
  readonly upstreams: () => readonly Upstream[];
  readonly hasOverflow: (upstream: string) => boolean;
  readonly onRequest: AskPorts["onRequest"];
}

interface Visit {
  readonly reporter: BoardReporter<Upstream>;
  readonly asks: AskDesk;
}

/** What a gateway has for the boards of control planes. Until one of them asks, there is nothing of it. */
export class BoardDesk implements FeedBoard {
  readonly #ports: BoardDeskPorts;
  readonly #visits = new Map<BoardPeer, Visit>();

  constructor(ports: BoardDeskPorts) {
    this.#ports = ports;
  }

  take(peer: BoardPeer, message: BoardRequest): void {
    const { reporter, asks } = this.#visitOf(peer);
    if (message.type === "boardWatch") reporter.watch(message.everyMs);
    else if (message.type === "ask") asks.ask(message);
    else asks.leave(message.n);
  }

  leave(peer: BoardPeer): void {
    const visit = this.#visits.get(peer);
    this.#visits.delete(peer);
    visit?.reporter.close();
    visit?.asks.close();
  }

  #visitOf(peer: BoardPeer): Visit {
    const known = this.#visits.get(peer);
    if (known !== undefined) return known;
    const { clock, metrics, upstreams, hasOverflow, onRequest } = this.#ports;
    const visit = {
      reporter: new BoardReporter<Upstream>(peer, {
        clock,
        bounds: { queueBounds: [...METRICS.queue.buckets], firstByteBounds: [...METRICS.firstByte.buckets] },
        upstreams,
        row: (upstream, now) => {
          const { id } = upstream.settings;
          return boardRow(upstream, metrics.knownUpstream(id), hasOverflow(id), now);
        },
      }),
      asks: new AskDesk(peer, { onRequest, keyOf: (id, role) => this.#keyOf(id, role) }),
    };
    this.#visits.set(peer, visit);
    return visit;
  }

  /** The control plane has checked the key; what this gateway knows of it, its limits above all, counts as ever. */
  #keyOf(id: string, role: RequestKey["role"]): RequestKey {
    const known = this.#ports.keys.byId(id);
    return known === undefined ? { ...ANONYMOUS, id, role, allowExternal: false } : { ...known, role };
  }
}
