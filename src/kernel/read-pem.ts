import { readFile } from "node:fs/promises";
import { YardmasterError } from "./errors.ts";

/** A file of certificates or a key that the configuration names at `key`. Throws CONFIG_INVALID, with no word of what it holds. */
export async function readPem(path: string, key: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new YardmasterError("CONFIG_INVALID", `${key}: ${path} can't be read`, { cause });
  }
}
