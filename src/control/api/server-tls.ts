import type { ServerTlsFiles } from "../../contract/resolve-control.ts";
import { messageOf, YardmasterError } from "../../kernel/errors.ts";
import { loadTls } from "../../kernel/node-builtins.ts";
import { readPem } from "../../kernel/read-pem.ts";

/** PEM. */
export interface ServerTls {
  readonly cert: string;
  readonly key: string;
  /** Who vouches for agents and gateways; absent: they need no certificate. */
  readonly ca?: string;
}

/** Throws CONFIG_INVALID for what can't be read or doesn't belong together, with no word of what a file holds. */
export async function readServerTls(files: ServerTlsFiles): Promise<ServerTls> {
  const tls = {
    cert: await readPem(files.cert, "control.tls.cert_file"),
    key: await readPem(files.key, "control.tls.key_file"),
    ...(files.clientCa === null ? {} : { ca: await readPem(files.clientCa, "control.tls.client_ca_file") }),
  };
  try {
    loadTls().createSecureContext(tls);
  } catch (cause) {
    throw new YardmasterError("CONFIG_INVALID", `control.tls can't be used: ${messageOf(cause)}`, { cause });
  }
  return tls;
}

export const isSameTls = (a: ServerTls, b: ServerTls): boolean => a.cert === b.cert && a.key === b.key && a.ca === b.ca;
