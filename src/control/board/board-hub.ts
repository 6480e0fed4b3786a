import type { ServerResponse } from "node:http";
import { BOARD_TABLES, BOARD_TICK_MS, type ClusterState } from "../../contract/board.ts";
import type { Role } from "../../contract/roles.ts";
import type { LoggedFrame } from "../../decide/board/change-log.ts";
import type { Clock, Timer } from "../../kernel/clock.ts";
import { messageOf } from "../../kernel/errors.ts";
import type { Logger } from "../../kernel/log.ts";
import { BoardChannel } from "./board-channel.ts";
import { withoutFleet } from "./board-rows.ts";
import type { BoardState } from "./board-state.ts";
import { BoardViewer } from "./board-viewer.ts";
import type { GatewayDesk } from "./gateway-desk.ts";
import type { GatewayPoll } from "./gateway-poll.ts";

/**
 * All boards that are open.
 *
 * Invariants:
 *   H1. While none is open nothing is looked at, made or asked for.
 *   H2. One look and one encoding serve all of them.
 *   H3. A board whose session has ended is told so and closed within a tick.
 */
export const BOARDS_MAX = 200;
/** Behind by more than this, a snapshot is shorter than what was missed. */
const CATCH_UP_MAX = 30;
/** A stream that nobody follows is kept for so long: connections break and come back. */
const KEEP_MS = 60_000;

export interface HubPorts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly state: BoardState;
  readonly desk: GatewayDesk;
  readonly poll: GatewayPoll;
  readonly onLook: (seconds: number) => void;
  readonly onBytes: (bytes: number) => void;
}

export interface OpenBoard {
  readonly res: ServerResponse;
  readonly role: Role;
  /** The id of the last message that it has; null: none. */
  readonly since: string | null;
  readonly isCompressed: boolean;
  /** Whether whoever looks may still look. */
  readonly holds: () => boolean;
}

interface Board {
  readonly viewer: BoardViewer;
  readonly channel: BoardChannel;
  readonly holds: () => boolean;
}

export class BoardHub {
  readonly #ports: HubPorts;
  readonly #boards = new Set<Board>();
  readonly #everything = new BoardChannel({
    tables: BOARD_TABLES,
    top: ({ top }) => top,
    topChange: ({ top }) => top,
    cluster: ({ cluster }) => cluster,
  });
  /** For whoever looks after money alone. */
  readonly #money = new BoardChannel({
    tables: ["overflow", "approvals"],
    top: ({ moneyTop }) => moneyTop,
    topChange: ({ moneyTop }) => moneyTop,
    cluster: ({ cluster }) => JSON.stringify(withoutFleet(JSON.parse(cluster) as ClusterState)),
  });
  #closeDesk: (() => void) | null = null;
  #timer: Timer | null = null;
  #forget: Timer | null = null;
  #isLooking = false;
  #hasLooked = false;
  #isClosed = false;

  constructor(ports: HubPorts) {
    this.#ports = ports;
  }

  get count(): number {
    return this.#boards.size;
  }

  get isFull(): boolean {
    return this.#boards.size >= BOARDS_MAX;
  }

  /** The head has been written. */
  open({ res, role, since, isCompressed, holds }: OpenBoard): void {
    const channel = role === "approver" ? this.#money : this.#everything;
    const viewer = new BoardViewer(res, {
      at: channel.versionOf(since),
      isCompressed,
      onBytes: this.#ports.onBytes,
      onDrain: () => void this.#serve(board),
      onOver: () => this.#leave(board),
    });
    const board: Board = { viewer, channel, holds };
    this.#boards.add(board);
    this.#begin();
    // A look that is old would be told as if it were of now.
    if (this.#hasLooked) void this.#serve(board);
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#forget?.cancel();
    for (const { viewer } of this.#boards) viewer.end();
    this.#closeDesk?.();
    this.#ports.poll.stop();
  }

  #begin(): void {
    if (this.#timer !== null || this.#isLooking || this.#isClosed) return;
    this.#forget?.cancel();
    this.#closeDesk = this.#ports.desk.open();
    this.#ports.poll.start();
    void this.#tick();
  }

  #leave(board: Board): void {
    this.#boards.delete(board);
    if (this.#boards.size > 0) return;
    this.#timer?.cancel();
    this.#timer = null;
    this.#hasLooked = false;
    this.#closeDesk?.();
    this.#ports.poll.stop();
    this.#forget?.cancel();
    this.#forget = this.#ports.clock.after(KEEP_MS, () => {
      this.#everything.reset();
      this.#money.reset();
    });
  }

  async #tick(): Promise<void> {
    const { clock, state, log } = this.#ports;
    const startedAt = clock.mono();
    this.#timer = null;
    this.#isLooking = true;
    try {
      for (const board of this.#boards) if (!board.holds()) void this.#dismiss(board);
      const change = await state.look();
      const at = clock.wall();
      this.#everything.add(state, change, at);
      this.#money.add(state, change, at);
      this.#hasLooked = true;
    } catch (error) {
      log.error("board.look_failed", { why: messageOf(error) });
    }
    this.#isLooking = false;
    this.#ports.onLook((clock.mono() - startedAt) / 1_000);
    const alive: LoggedFrame = { version: 0, text: `event: change\ndata: {"at":${clock.wall()}}\n\n` };
    for (const board of this.#boards) void this.#serve(board, alive);
    if (this.#boards.size > 0 && !this.#isClosed)
      this.#timer = clock.after(Math.max(0, BOARD_TICK_MS - (clock.mono() - startedAt)), () => void this.#tick());
  }

  /** Brings it to the newest version, and shows that the link lives. */
  async #serve({ viewer, channel }: Board, alive?: LoggedFrame): Promise<void> {
    // While a look goes on its tables are of two moments; its end comes by here.
    if (!viewer.mayTake || this.#isLooking) return;
    viewer.isBusy = true;
    try {
      const frames = this.#missing(viewer, channel);
      if (frames.length === 0 && alive !== undefined) await viewer.write(alive);
      for (const frame of frames) {
        viewer.at = frame.version;
        await viewer.write(frame);
        // What is left is made up for when it has taken this.
        if (viewer.isBlocked) break;
      }
    } finally {
      viewer.isBusy = false;
    }
  }

  #missing({ at }: BoardViewer, channel: BoardChannel): readonly LoggedFrame[] {
    const { clock, state } = this.#ports;
    const changes = at === null ? null : channel.since(at);
    return changes !== null && changes.length <= CATCH_UP_MAX ? changes : [channel.snapshot(state, clock.wall())];
  }

  async #dismiss({ viewer }: Board): Promise<void> {
    const told = { code: "UNAUTHORIZED", message: "the session has ended: sign in again" };
    await viewer.write({ version: 0, text: `event: end\ndata: ${JSON.stringify(told)}\n\n` });
    viewer.end();
  }
}
