import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";

/**
 * What is known of a database outside of it: whose it is, and how many transactions were told as done. Written behind each of them,
 * without waiting for the disk, so that it may lag behind the database and never runs ahead of it: a database with fewer has lost
 * what was told as done.
 */
export interface CommitMark {
  readonly clusterId: string;
  readonly commits: number;
}

/** Name of the counter in the database itself. */
export const COMMITS = "commits";
/** The counter of a copy, which may have fewer than were told as done. */
export const A_COPY = -1;

export const MARK_TEXT =
  "A control plane's database lies beside this file. See the manual page on the control plane.\n";
const MARK = /^cluster ([0-9a-f-]{36}), commits (\d{1,15})$/m;
const DIGITS = 15;

/** Undefined where nothing was noted yet, or what was noted can't be read. */
export function readMark(path: string): CommitMark | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
  const [, clusterId, commits] = MARK.exec(text) ?? [];
  return clusterId === undefined ? undefined : { clusterId, commits: Number(commits) };
}

/** One file that is overwritten in place, always with as many bytes: no write can leave half of it. */
export class MarkWriter {
  readonly #clusterId: string;
  readonly #file: number;

  /** Safe on the disk when it returns. Throws when the file can't be written. */
  constructor(path: string, mark: CommitMark) {
    this.#clusterId = mark.clusterId;
    // Made where it is missing, and never cut: between that and the write there would be none.
    closeSync(openSync(path, "a", 0o600));
    this.#file = openSync(path, "r+");
    this.#write(mark.commits);
    fsyncSync(this.#file);
  }

  /** A failure only makes the mark lag. */
  note(commits: number): void {
    try {
      this.#write(commits);
    } catch {
      // The database has the transaction, which is what was asked for.
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  #write(commits: number): void {
    const line = `cluster ${this.#clusterId}, commits ${String(commits).padStart(DIGITS, "0")}\n`;
    writeSync(this.#file, MARK_TEXT + line, 0);
  }
}
