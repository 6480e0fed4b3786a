import type { BigIntStats } from "node:fs";
import { lstat } from "node:fs/promises";
import { hasSystemCode } from "../../kernel/errors.ts";

/** What tells a file or folder from every other one that is there, whatever it is called. */
export interface Identity {
  readonly dev: string;
  readonly ino: string;
}

export const identityOf = ({ dev, ino }: BigIntStats): Identity => ({ dev: String(dev), ino: String(ino) });

/** When the file was made; null where the disk does not keep that. */
export const bornOf = ({ birthtimeNs }: BigIntStats): string | null => (birthtimeNs > 0n ? String(birthtimeNs) : null);

/** Null where nothing has that name, or what should be a folder on the way to it is none. No link is followed. */
export async function lstatIfThere(path: string): Promise<BigIntStats | null> {
  try {
    return await lstat(path, { bigint: true });
  } catch (error) {
    if (hasSystemCode(error, "ENOENT") || hasSystemCode(error, "ENOTDIR")) return null;
    throw error;
  }
}
