import { readFile } from "node:fs/promises";
import type { LinkTlsFiles } from "../contract/gateway-config.ts";
import { YardmasterError } from "../kernel/errors.ts";

/** PEM. */
export interface LinkTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** `section` is what the configuration calls their owner. Throws CONFIG_INVALID, with no word of what a file holds. */
export async function readLinkTls(files: LinkTlsFiles, section: string): Promise<LinkTls> {
  const read = async (path: string | null, key: string): Promise<string | undefined> => {
    if (path === null) return undefined;
    try {
      return await readFile(path, "utf8");
    } catch (cause) {
      throw new YardmasterError("CONFIG_INVALID", `${section}.${key}: ${path} can't be read`, { cause });
    }
  };
  const ca = await read(files.ca, "ca_file");
  const cert = await read(files.cert, "client_cert_file");
  const key = await read(files.key, "client_key_file");
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}
