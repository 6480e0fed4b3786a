import { open, rm, stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { writeDurably } from "../../kernel/durable-file.ts";
import { hasSystemCode } from "../../kernel/errors.ts";

/** What an agent's own files may need while nothing else on the disk can be written: some hundred times their size. */
const RESERVE_BYTES = 512 * 1024;
/** The reserve is made again only where it takes room from nobody. */
const FREE_BYTES_MIN = 16 * RESERVE_BYTES;

/**
 * A file that holds room. Weights, logs or a stranger's files fill a disk, and an agent that can't write down whom it obeys can
 * obey nobody: then the file is given up, and what had no room has it.
 */
export class DiskReserve {
  readonly #path: string;
  readonly #write: typeof writeDurably;

  constructor(path: string, write = writeDurably) {
    this.#path = path;
    this.#write = write;
  }

  /** Makes the reserve where there is room for it. Never rejects. */
  async fill(): Promise<void> {
    try {
      if (await this.#isThere()) return;
      const { bavail, bsize } = await statfs(dirname(this.#path));
      if (bavail * bsize < FREE_BYTES_MIN) return;
      await using file = await open(this.#path, "w", 0o600);
      // Written, not only as long: a hole holds no room.
      await file.writeFile(Buffer.alloc(RESERVE_BYTES, 1));
      await file.sync();
    } catch {
      await this.#giveUp();
    }
  }

  /** `writeDurably`, and once more with the reserve's room where there was none. */
  async write(path: string, text: string): Promise<void> {
    try {
      await this.#write(path, text);
    } catch (error) {
      const isFull = hasSystemCode(error, "ENOSPC") || hasSystemCode(error, "EDQUOT");
      if (!isFull || !(await this.#giveUp())) throw error;
      await this.#write(path, text);
    }
    await this.fill();
  }

  async #isThere(): Promise<boolean> {
    try {
      return (await stat(this.#path)).size === RESERVE_BYTES;
    } catch {
      return false;
    }
  }

  /** False: there was nothing to give up. */
  async #giveUp(): Promise<boolean> {
    try {
      await rm(this.#path);
      return true;
    } catch {
      return false;
    }
  }
}
