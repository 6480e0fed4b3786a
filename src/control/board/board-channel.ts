import { randomBytes } from "node:crypto";
import { BOARD_TABLES, type BoardTable } from "../../contract/board.ts";
import { ChangeLog, type LoggedFrame } from "../../decide/board/change-log.ts";
import type { BoardState, StateChange } from "./board-state.ts";

/** What one kind of reader sees, as the frames that all of them get. */
export interface ChannelView {
  readonly tables: readonly BoardTable[];
  readonly top: (state: BoardState) => string;
  readonly topChange: (change: StateChange) => string | null;
  readonly cluster: (state: BoardState) => string;
}

const ID = /^([0-9a-f]{16})\.([0-9]{1,15})$/;

/**
 * The versions of a stream.
 *
 * Invariants:
 *   C1. A frame is made once, whoever gets it; so is the snapshot of a version.
 *   C2. An id names one state: versions of another run of the stream fit none here.
 */
export class BoardChannel {
  readonly #view: ChannelView;
  #id = randomBytes(8).toString("hex");
  #log = new ChangeLog();
  #snapshot: LoggedFrame | null = null;
  #cluster = "";

  constructor(view: ChannelView) {
    this.#view = view;
  }

  get version(): number {
    return this.#log.version;
  }

  /** Nobody follows: what changes meanwhile is in no frame. */
  reset(): void {
    this.#id = randomBytes(8).toString("hex");
    this.#log = new ChangeLog();
    this.#snapshot = null;
    this.#cluster = "";
  }

  /** Nothing where nothing of it has changed. */
  add(state: BoardState, change: StateChange, at: number): void {
    const parts: string[] = [];
    const top = this.#view.topChange(change);
    if (top !== null) parts.push(`"top":${top}`);
    const cluster = this.#view.cluster(state);
    if (cluster !== this.#cluster) parts.push(`"cluster":${cluster}`);
    this.#cluster = cluster;
    const tables = this.#view.tables.flatMap((table) => {
      const found = change.tables.get(table);
      return found === undefined ? [] : ([[table, found]] as const);
    });
    const set = tables.flatMap(([table, { set: rows }]) =>
      rows.length === 0 ? [] : `"${table}":{${rows.map(([key, text]) => `${JSON.stringify(key)}:${text}`).join()}}`,
    );
    const gone = tables.flatMap(([table, { gone: keys }]) =>
      keys.length === 0 ? [] : `"${table}":${JSON.stringify(keys)}`,
    );
    if (set.length > 0) parts.push(`"set":{${set.join()}}`);
    if (gone.length > 0) parts.push(`"gone":{${gone.join()}}`);
    if (parts.length === 0) return;
    this.#snapshot = null;
    this.#log.add((version) => this.#frame("change", version, `{"at":${at},${parts.join()}}`));
  }

  /** What brings a reader from its version to the newest; null: the snapshot does. */
  since(version: number): readonly LoggedFrame[] | null {
    return this.#log.since(version);
  }

  snapshot(state: BoardState, at: number): LoggedFrame {
    if (this.#snapshot !== null) return this.#snapshot;
    this.#cluster ||= this.#view.cluster(state);
    const tables = BOARD_TABLES.map((table) => {
      const rows = this.#view.tables.includes(table) ? [...state.texts(table)] : [];
      return `"${table}":{${rows.map(([key, text]) => `${JSON.stringify(key)}:${text}`).join()}}`;
    });
    const { version } = this;
    const body = `{"at":${at},"top":${this.#view.top(state)},"cluster":${this.#view.cluster(state)},"tables":{${tables.join()}}}`;
    this.#snapshot = { version, text: this.#frame("snapshot", version, body) };
    return this.#snapshot;
  }

  /** The version that an id of this stream names; null: of another, or none. */
  versionOf(id: string | null): number | null {
    const found = ID.exec(id ?? "");
    const version = Number(found?.[2]);
    return found?.[1] === this.#id && version <= this.version ? version : null;
  }

  #frame(event: string, version: number, data: string): string {
    return `id: ${this.#id}.${version}\nevent: ${event}\ndata: ${data}\n\n`;
  }
}
