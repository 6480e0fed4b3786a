import type { Plot, UpstreamRow } from "../../contract/board.ts";
import type { BoardReport, BoardUpstream } from "../../contract/feed-board.ts";
import type { GatewayMessage } from "../../contract/feed.ts";
import { mergeUpstream, type UpstreamTelling } from "../../decide/board/merge-upstream.ts";
import { PlotRing } from "../../decide/board/plot-ring.ts";
import { WindowedCounts } from "../../decide/board/windowed-counts.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import { GatewayAsks } from "./gateway-asks.ts";
import type { GatewayPeer } from "./gateway-peer.ts";

type BoardMessage = Extract<GatewayMessage, { type: "board" | "answerHead" | "answerText" | "answerEnd" }>;

/** While somebody looks. */
const LIVE_MS = 1_000;
/** While somebody has looked of late: whoever opens the board at night sees the last quarter of an hour. */
const BACKGROUND_MS = 5_000;
const BACKGROUND_FOR_MS = 24 * 3_600_000;
const NEWS_MS_MAX = 2_500;

interface Told {
  readonly row: BoardUpstream;
  readonly queue: WindowedCounts;
  readonly firstByte: WindowedCounts;
  readonly ended: WindowedCounts;
}

interface Known {
  readonly peer: GatewayPeer;
  readonly told: Map<string, Told>;
  bounds: Pick<BoardReport, "queueBounds" | "firstByteBounds">;
  /** A whole look has been told. */
  isKnown: boolean;
  everyMs: number;
}

interface Merged {
  readonly row: UpstreamRow;
  /** Its percentiles change by themselves for as long as something was counted of late. */
  readonly isLively: boolean;
}

/**
 * What gateways tell of their queues, and what they are asked.
 *
 * Invariants:
 *   G1. Until a board has been opened, no gateway is asked anything. A day after the last one was closed it is so again.
 *   G2. What a gateway told ends with its connection.
 */
export class GatewayDesk {
  readonly asks: GatewayAsks;
  readonly #clock: Clock;
  readonly #known = new Map<GatewayPeer, Known>();
  readonly #merged = new Map<string, Merged>();
  readonly #stale = new Set<string>();
  readonly #ring = new PlotRing();
  #waiting: (() => void)[] = [];
  #viewers = 0;
  #everyMs = 0;
  #end: Timer | null = null;
  #ringTimer: Timer | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.asks = new GatewayAsks(clock);
  }

  joined(peer: GatewayPeer): void {
    if (!peer.tellsBoards) return;
    const known: Known = {
      peer,
      told: new Map(),
      bounds: { queueBounds: [], firstByteBounds: [] },
      isKnown: false,
      everyMs: 0,
    };
    this.#known.set(peer, known);
    this.#setPace(known);
  }

  left(peer: GatewayPeer): void {
    const known = this.#known.get(peer);
    if (known === undefined) return;
    this.#known.delete(peer);
    for (const id of known.told.keys()) this.#stale.add(id);
    this.asks.left(peer);
  }

  take(peer: GatewayPeer, message: BoardMessage): void {
    const known = this.#known.get(peer);
    if (known === undefined) return;
    if (message.type !== "board") this.asks.take(peer, message);
    else this.#takeReport(known, message);
  }

  /** Somebody looks, until what is returned is called. */
  open(): () => void {
    this.#viewers += 1;
    this.#end?.cancel();
    this.#pace(LIVE_MS);
    let isOpen = true;
    return () => {
      if (!isOpen) return;
      isOpen = false;
      this.#viewers -= 1;
      if (this.#viewers > 0) return;
      this.#pace(BACKGROUND_MS);
      this.#end = this.#clock.after(BACKGROUND_FOR_MS, () => this.#pace(0));
    };
  }

  close(): void {
    this.#end?.cancel();
    this.#ringTimer?.cancel();
  }

  /** Gateways that can be asked. */
  get peers(): readonly GatewayPeer[] {
    return [...this.#known.keys()];
  }

  /** Those that have overflow rules for the upstream, or for any. */
  peersWithOverflow(upstream?: string): readonly GatewayPeer[] {
    return [...this.#known.values()].flatMap(({ peer, told }) => {
      const has =
        upstream === undefined
          ? [...told.values()].some(({ row }) => row.hasOverflow)
          : told.get(upstream)?.row.hasOverflow === true;
      return has ? peer : [];
    });
  }

  /** Upstreams of the gateway that have overflow rules. */
  overflowsOf(peer: GatewayPeer): readonly string[] {
    const told = this.#known.get(peer)?.told ?? new Map<string, Told>();
    return [...told.values()].flatMap(({ row }) => (row.hasOverflow ? row.id : []));
  }

  /** Whether some gateway has told of all its upstreams. */
  get tells(): boolean {
    return [...this.#known.values()].some(({ isKnown }) => isKnown);
  }

  /** One row for each upstream, the same object for as long as nothing in it has changed. */
  rows(): readonly UpstreamRow[] {
    const now = this.#clock.mono();
    const byId = new Map<string, UpstreamTelling[]>();
    for (const { peer, told, bounds } of this.#known.values()) {
      for (const [id, each] of told) {
        const merged = this.#merged.get(id);
        if (merged !== undefined && !merged.isLively && !this.#stale.has(id)) continue;
        const list = byId.get(id) ?? [];
        byId.set(id, list);
        list.push(telling(peer.name, each, bounds, now));
      }
    }
    for (const id of this.#stale) if (!byId.has(id)) this.#merged.delete(id);
    this.#stale.clear();
    for (const [id, tellings] of byId) {
      const [first, ...others] = tellings;
      if (first === undefined) continue;
      const row = mergeUpstream([first, ...others]);
      this.#merged.set(id, { row, isLively: this.#isLively(id, now) });
    }
    return [...this.#merged.values()].map(({ row }) => row);
  }

  /** As of now: asks where nobody is asked at the moment, and waits a moment for the answers. */
  async fresh(): Promise<readonly UpstreamRow[]> {
    const close = this.open();
    try {
      if (this.#everyKnown()) return this.rows();
      await new Promise<void>((resolve) => {
        const timer = this.#clock.after(NEWS_MS_MAX, resolve);
        const look = (): void => {
          if (!this.#everyKnown()) {
            this.#waiting.push(look);
            return;
          }
          timer.cancel();
          resolve();
        };
        this.#waiting.push(look);
      });
      return this.rows();
    } finally {
      close();
    }
  }

  plot(id: string): Plot {
    return this.#ring.plot(id);
  }

  waitedAt(id: string, at: number): number | null {
    return this.#ring.waitingAt(id, at);
  }

  #everyKnown(): boolean {
    return [...this.#known.values()].every(({ isKnown }) => isKnown);
  }

  #isLively(id: string, now: MonoMs): boolean {
    for (const { told } of this.#known.values()) {
      const each = told.get(id);
      if (each !== undefined && (each.ended.isLively(now) || each.queue.isLively(now) || each.firstByte.isLively(now)))
        return true;
    }
    return false;
  }

  #takeReport(known: Known, report: BoardReport): void {
    const now = this.#clock.mono();
    const { told } = known;
    if (report.whole) {
      for (const id of told.keys()) this.#stale.add(id);
      told.clear();
      known.isKnown = false;
    }
    known.bounds = { queueBounds: report.queueBounds, firstByteBounds: report.firstByteBounds };
    for (const row of report.rows) {
      this.#stale.add(row.id);
      told.set(row.id, toldOf(told.get(row.id), row, now));
    }
    for (const id of report.gone) {
      this.#stale.add(id);
      told.delete(id);
    }
    if (!report.last) return;
    known.isKnown = true;
    for (const look of this.#waiting.splice(0)) look();
  }

  #pace(everyMs: number): void {
    if (everyMs === this.#everyMs) return;
    this.#everyMs = everyMs;
    for (const known of this.#known.values()) this.#setPace(known);
    this.#ringTimer?.cancel();
    if (everyMs > 0) {
      this.#planRing();
      return;
    }
    // What is told no longer would be shown as if it were so now.
    for (const { told } of this.#known.values()) told.clear();
    this.#merged.clear();
  }

  #setPace(known: Known): void {
    if (known.everyMs === this.#everyMs) return;
    // What can't be said is said with the next change of pace or connection; until then the gateway goes on as it did.
    if (known.peer.say({ type: "boardWatch", everyMs: this.#everyMs })) known.everyMs = this.#everyMs;
    if (this.#everyMs === 0) known.isKnown = false;
  }

  #planRing(): void {
    this.#ringTimer = this.#clock.after(this.#everyMs, () => {
      for (const known of this.#known.values()) this.#setPace(known);
      if (this.tells) this.#ring.note(this.rows(), this.#clock.wall());
      this.#planRing();
    });
  }
}

function toldOf(before: Told | undefined, row: BoardUpstream, now: MonoMs): Told {
  const ended = [row.ended];
  if (before === undefined)
    return {
      row,
      queue: new WindowedCounts(row.queue, now),
      firstByte: new WindowedCounts(row.firstByte, now),
      ended: new WindowedCounts(ended, now),
    };
  before.queue.note(row.queue, now);
  before.firstByte.note(row.firstByte, now);
  before.ended.note(ended, now);
  return { ...before, row };
}

function telling(
  gateway: string,
  { row, queue, firstByte, ended }: Told,
  { queueBounds, firstByteBounds }: Known["bounds"],
  now: MonoMs,
): UpstreamTelling {
  const over = ended.over(now);
  return {
    gateway,
    row,
    queue: { cells: queue.over(now).cells, bounds: queueBounds },
    firstByte: { cells: firstByte.over(now).cells, bounds: firstByteBounds },
    ended: { count: over.cells[0] ?? 0, ms: over.ms },
  };
}
