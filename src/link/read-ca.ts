import { readFile } from "node:fs/promises";
import { YardmasterError } from "../kernel/errors.ts";

/** The certificates in a file that the configuration names at `key`. Throws CONFIG_INVALID. */
export async function readCa(path: string, key: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new YardmasterError("CONFIG_INVALID", `${key}: ${path} can't be read`, { cause });
  }
}
