import { chmod, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newKey } from "../contract/key-hash.ts";
import { REQUEST_CLASSES } from "../contract/request-class.ts";
import type { ApiKey } from "../contract/gateway-config.ts";
import type { Role } from "../contract/roles.ts";
import type { Secret } from "../kernel/secret.ts";

export interface SessionKey {
  readonly secret: Secret;
  readonly key: ApiKey;
}

/** A key that ends with the process: nothing of it is stored but, for the operator's, a file that only its owner can read. */
export function makeSessionKey(id: string, role: Role): SessionKey {
  const { key: secret, hash } = newKey();
  return {
    secret,
    key: {
      id,
      hash,
      role,
      classes: REQUEST_CLASSES,
      models: null,
      weight: 1,
      limits: { requestsPerMinute: null, tokensPerMinute: null, inFlightMax: null },
      allowExternal: false,
      expiresAt: null,
    },
  };
}

/** Where `ctl` on this machine finds its key. */
export async function writeOperatorKey(dataDir: string, secret: Secret): Promise<string> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, "operator.key");
  await writeFile(path, `${secret.reveal()}\n`, { mode: 0o600 });
  await chmod(path, 0o600);
  return path;
}

/** The key has ended with its process: a file that is left would be a riddle to the next `ctl`. */
export async function removeOperatorKey(dataDir: string): Promise<void> {
  await rm(join(dataDir, "operator.key"), { force: true });
}
