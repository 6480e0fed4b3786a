import { crc32 } from "node:zlib";
import { YardmasterError } from "../../kernel/errors.ts";

/**
 * Of one row. A database's own check sees broken pages, not a flipped bit inside a text; a replica on the wrong node would look
 * sound.
 */
export const checksum = (...parts: readonly (string | number)[]): string =>
  crc32(parts.join("\u0000")).toString(16).padStart(8, "0");

/** Throws STORE_REFUSED. */
export function verifyChecksum(sum: unknown, what: string, ...parts: readonly (string | number)[]): void {
  if (sum !== checksum(...parts))
    throw new YardmasterError(
      "STORE_REFUSED",
      `the database is damaged: ${what} is not what was written; nothing was changed. Restore a backup`,
    );
}
