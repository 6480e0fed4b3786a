import {
  BOARD_TABLES,
  type BoardTable,
  type BoardTables,
  type Change,
  type ClusterState,
  type Snapshot,
  type TopLine,
} from "../../../src/contract/board.ts";

type Tables = { [T in BoardTable]: Map<string, BoardTables[T]> };

/**
 * What the server has told. A row that did not change stays the same object, and a table that did not change keeps its revision, so
 * whoever draws can leave both alone.
 */
export class BoardState {
  /** "Now" of the server when the last message was made. */
  at: number;
  top: TopLine;
  cluster: ClusterState;
  readonly tables: Tables;
  readonly revisions: Record<BoardTable, number>;

  constructor({ at, top, cluster, tables }: Snapshot) {
    this.at = at;
    this.top = top;
    this.cluster = cluster;
    this.tables = Object.fromEntries(
      BOARD_TABLES.map((table) => [table, new Map(Object.entries(tables[table]))]),
    ) as unknown as Tables;
    this.revisions = Object.fromEntries(BOARD_TABLES.map((table) => [table, 0])) as Record<BoardTable, number>;
  }

  apply({ at, top, cluster, set = {}, gone = {} }: Change): void {
    this.at = at;
    if (top !== undefined) this.top = top;
    if (cluster !== undefined) this.cluster = cluster;
    for (const table of BOARD_TABLES) {
      const rows = set[table];
      const left = gone[table];
      if (rows === undefined && left === undefined) continue;
      this.revisions[table] += 1;
      const into = this.tables[table] as Map<string, unknown>;
      for (const key of left ?? []) into.delete(key);
      for (const key in rows) into.set(key, rows[key]);
    }
  }
}
