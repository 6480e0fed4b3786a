import { fileURLToPath } from "node:url";
import type { KeyRing } from "../../access/key-ring.ts";
import type { LeaderAnswer } from "../../contract/control-api.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Logger } from "../../kernel/log.ts";
import type { ClusterView } from "../view/cluster-view.ts";
import { BoardAssets } from "./board-assets.ts";
import { BoardHub } from "./board-hub.ts";
import { BoardSessions } from "./board-sessions.ts";
import { BoardState, type BoardStatePorts } from "./board-state.ts";
import type { GatewayDesk } from "./gateway-desk.ts";
import { GatewayPoll } from "./gateway-poll.ts";

export interface BoardPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly keys: KeyRing;
  readonly view: ClusterView;
  readonly desk: GatewayDesk;
  readonly events: BoardStatePorts["events"];
  readonly bounded: BoardStatePorts["bounded"];
  readonly version: string;
  readonly clusterId: string;
  readonly store: "sqlite" | "postgres";
  readonly leader: () => LeaderAnswer;
  readonly catalog: () => {
    readonly held: { readonly token: string; readonly why: string } | null;
    readonly refused: string | null;
  };
  readonly onLook: (seconds: number) => void;
  readonly onBytes: (bytes: number) => void;
}

/** Where the page's files are when it has been built; the same beside the sources and beside the compiled program. */
const FOLDER = fileURLToPath(new URL("../../../dashboard/dist/", import.meta.url));
const REFUSED_CHARS_MAX = 1_000;

/** All that a control plane has for its board. */
export class Board {
  readonly sessions: BoardSessions;
  readonly assets: BoardAssets;
  readonly hub: BoardHub;

  constructor(ports: BoardPorts) {
    const { clock, log, keys, view, desk, events, bounded } = ports;
    this.sessions = new BoardSessions(clock, keys);
    this.assets = new BoardAssets(FOLDER, { clock, log });
    const poll = new GatewayPoll(clock, desk);
    let silentSince: number | null = null;
    const state = new BoardState({
      clock,
      view,
      desk,
      poll,
      events,
      bounded,
      leader: ports.leader,
      about: () => {
        const { self, role, leader, store_silent_s: silentS } = ports.leader();
        silentSince = silentS === null ? null : (silentSince ?? clock.wall() - silentS * 1_000);
        const { held, refused } = ports.catalog();
        return {
          version: ports.version,
          clusterId: ports.clusterId,
          store: ports.store,
          self,
          role,
          leader,
          storeSilentSince: silentSince,
          catalog: { held, refused: refused?.slice(0, REFUSED_CHARS_MAX) ?? null },
        };
      },
    });
    this.hub = new BoardHub({ clock, log, state, desk, poll, onLook: ports.onLook, onBytes: ports.onBytes });
  }

  close(): void {
    this.hub.close();
  }
}
