import { BOARD_ROWS_MAX, type BoardReport, type BoardUpstream } from "../../contract/feed-board.ts";
import type { Clock, MonoMs, Timer } from "../../kernel/clock.ts";
import type { BoardPeer } from "../feed/feed-client.ts";

/** How many upstreams are looked at in one turn of the event loop: requests have their turns between. */
const ROWS_PER_TURN = 100;
const EVERY_MS_MIN = 500;

export interface ReporterPorts<U> {
  readonly clock: Clock;
  readonly bounds: Pick<BoardReport, "queueBounds" | "firstByteBounds">;
  /** All upstreams as they are now. */
  readonly upstreams: () => readonly U[];
  readonly row: (upstream: U, now: MonoMs) => BoardUpstream;
}

/**
 * Tells one control plane of the upstreams every so often.
 *
 * Invariants:
 *   B1. A row is told again only when it has changed since it was told.
 *   B2. What could not be said is said whole later: nothing is kept for a connection that is slow.
 */
export class BoardReporter<U> {
  readonly #ports: ReporterPorts<U>;
  readonly #peer: BoardPeer;
  readonly #told = new Map<string, string>();
  #everyMs = 0;
  #isWhole = true;
  #timer: Timer | null = null;
  #isLooking = false;
  #isClosed = false;

  constructor(peer: BoardPeer, ports: ReporterPorts<U>) {
    this.#peer = peer;
    this.#ports = ports;
  }

  /** From now on; 0: no longer. */
  watch(everyMs: number): void {
    this.#timer?.cancel();
    const began = this.#everyMs === 0;
    this.#everyMs = everyMs === 0 ? 0 : Math.max(EVERY_MS_MIN, everyMs);
    if (this.#everyMs === 0) this.#forget();
    else if (began) this.#look();
    else this.#plan();
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  #plan(): void {
    if (this.#isClosed || this.#everyMs === 0) return;
    this.#timer = this.#ports.clock.after(this.#everyMs, () => this.#look());
  }

  #look(): void {
    if (this.#isLooking) return this.#plan();
    this.#isLooking = true;
    const list = this.#ports.upstreams();
    const seen = new Set<string>();
    const step = (from: number): void => {
      if (this.#isClosed || this.#everyMs === 0) {
        this.#isLooking = false;
        return;
      }
      const until = Math.min(list.length, from + ROWS_PER_TURN);
      const rows = this.#changed(list.slice(from, until), seen);
      const isLast = until >= list.length;
      if (rows.length > 0 || isLast) this.#tell(rows, isLast ? this.#gone(seen) : [], isLast);
      if (!isLast) {
        setImmediate(() => step(until));
        return;
      }
      this.#isLooking = false;
      this.#plan();
    };
    step(0);
  }

  #changed(part: readonly U[], seen: Set<string>): BoardUpstream[] {
    const now = this.#ports.clock.mono();
    return part.flatMap((upstream) => {
      const row = this.#ports.row(upstream, now);
      const text = JSON.stringify(row);
      seen.add(row.id);
      if (this.#told.get(row.id) === text) return [];
      this.#told.set(row.id, text);
      return row;
    });
  }

  #gone(seen: ReadonlySet<string>): string[] {
    const gone = [...this.#told.keys()].filter((id) => !seen.has(id));
    for (const id of gone) this.#told.delete(id);
    return gone;
  }

  #tell(rows: readonly BoardUpstream[], gone: readonly string[], last: boolean): void {
    const { bounds } = this.#ports;
    for (let at = 0; at === 0 || at < rows.length; at += BOARD_ROWS_MAX) {
      const part = rows.slice(at, at + BOARD_ROWS_MAX);
      const isEnd = at + BOARD_ROWS_MAX >= rows.length;
      const rest = { rows: part, gone: isEnd ? [...gone] : [], last: last && isEnd };
      if (!this.#peer.send({ type: "board", whole: this.#isWhole, ...bounds, ...rest })) {
        this.#forget();
        return;
      }
      this.#isWhole = false;
    }
  }

  #forget(): void {
    this.#told.clear();
    this.#isWhole = true;
  }
}
