import { type DiskNeed, judgeDiskRoom } from "../../decide/weights/disk-room.ts";
import { readDisk } from "../system/node-facts.ts";

/** The disk does not take what was to be written, now. */
export class DiskTrouble extends Error {
  override readonly name = "DiskTrouble";
}

const CODES: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT", "EROFS", "EIO", "EACCES", "EPERM", "EFBIG"]);

/** The system's word that the disk is the trouble; null for any other error. */
export function diskTroubleOf(error: unknown): DiskTrouble | null {
  if (error instanceof DiskTrouble) return error;
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string" || !CODES.has(error.code))
    return null;
  const why = error.code === "ENOSPC" || error.code === "EDQUOT" ? "no space" : "the cache can't be written";
  return new DiskTrouble(`${why} (${error.code})`, { cause: error });
}

/** What downloads will still write to the disk of the cache. */
export class DiskLedger {
  readonly #folder: string;
  readonly #reserve: number;
  readonly #needs = new Map<string, DiskNeed>();

  constructor(folder: string, reserve: number) {
    this.#folder = folder;
    this.#reserve = reserve;
  }

  /** Promises the room to `name`, in place of what it was promised before. Throws DiskTrouble when there is too little. */
  async require(name: string, need: DiskNeed): Promise<void> {
    const disk = await readDisk(this.#folder);
    // Nothing may come between the look at the others and the promise.
    const others = [...this.#needs].filter(([other]) => other !== name).map(([, other]) => other);
    const verdict = judgeDiskRoom(disk, need, others, this.#reserve);
    if (verdict.kind === "short") throw new DiskTrouble(verdict.why);
    this.#needs.set(name, need);
  }

  /** Less is needed now, or nothing. */
  lower(name: string, need: DiskNeed | null): void {
    if (need === null) this.#needs.delete(name);
    else if (this.#needs.has(name)) this.#needs.set(name, need);
  }
}
