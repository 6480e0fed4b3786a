import { closeSync, fsyncSync, openSync, rmSync, statfsSync, statSync, writeSync } from "node:fs";
import { dirname } from "node:path";

/** The log of a removal: one page for some thousand that become free, so that the largest file of a client fits in it. */
const ROOM_BYTES = 2 * 1024 * 1024;
/** It is made again only where it takes room from nobody. */
const FREE_BYTES_MIN = 4 * ROOM_BYTES;
/** SQLite's own names for a full disk and for one that can't be written, without what it adds to them. */
const NO_ROOM: ReadonlySet<number> = new Set([13, 10]);

/**
 * A file that holds room beside a database. What is removed from a database is written to its log first, so on a full disk nothing
 * could be removed: then the file is given up. Synchronous, as the database is.
 */
export class DiskRoom {
  readonly #path: string;

  constructor(database: string) {
    this.#path = `${database}-room`;
  }

  /** Makes the file where there is none and room for it. Never throws. */
  fill(): void {
    try {
      if (statSync(this.#path, { throwIfNoEntry: false })?.size === ROOM_BYTES) return;
      const { bavail, bsize } = statfsSync(dirname(this.#path));
      if (bavail * bsize < FREE_BYTES_MIN) return;
      const file = openSync(this.#path, "w", 0o600);
      try {
        // Written, not only as long: a hole holds no room.
        writeSync(file, Buffer.alloc(ROOM_BYTES, 1));
        fsyncSync(file);
      } finally {
        closeSync(file);
      }
    } catch {
      this.#giveUp();
    }
  }

  /** Does it, and once more with the file's room where there was none. */
  with<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (!isNoRoom(error) || !this.#giveUp()) throw error;
      return work();
    }
  }

  /** False: there was nothing to give up. */
  #giveUp(): boolean {
    try {
      rmSync(this.#path);
      return true;
    } catch {
      return false;
    }
  }
}

function isNoRoom(error: unknown): boolean {
  const code = error instanceof Error && "errcode" in error ? error.errcode : undefined;
  return typeof code === "number" && NO_ROOM.has(code & 0xff);
}
