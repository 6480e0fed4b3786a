import type { LinkTlsFiles } from "../contract/gateway-config.ts";
import { readPem } from "../kernel/read-pem.ts";

/** PEM. */
export interface LinkTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/** `section` is what the configuration calls their owner. Throws CONFIG_INVALID, with no word of what a file holds. */
export async function readLinkTls(files: LinkTlsFiles, section: string): Promise<LinkTls> {
  const { ca, cert, key } = files;
  return {
    ...(ca === null ? {} : { ca: await readPem(ca, `${section}.ca_file`) }),
    ...(cert === null ? {} : { cert: await readPem(cert, `${section}.client_cert_file`) }),
    ...(key === null ? {} : { key: await readPem(key, `${section}.client_key_file`) }),
  };
}
