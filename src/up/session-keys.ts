import { chmod, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { newKey } from "../contract/key-hash.ts";
import { ADDRESSES_FILE, type LocalAddresses } from "../contract/local-addresses.ts";
import { REQUEST_CLASSES } from "../contract/request-class.ts";
import { NO_LIMITS, type ApiKey } from "../contract/gateway-config.ts";
import type { Role } from "../contract/roles.ts";
import type { Secret } from "../kernel/secret.ts";
import { makeFolder } from "../kernel/make-folder.ts";

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
      limits: NO_LIMITS,
      allowExternal: false,
      expiresAt: null,
    },
  };
}

/** Where `ctl` on this machine finds its key. */
export async function writeOperatorKey(dataDir: string, secret: Secret): Promise<void> {
  await writeOwn(dataDir, OPERATOR_KEY, `${secret.reveal()}\n`);
}

/** The key has ended with its process: a file that is left would be a riddle to the next `ctl`. */
export async function removeOperatorKey(dataDir: string): Promise<void> {
  await rm(join(dataDir, OPERATOR_KEY), { force: true });
}

/** And where `ctl` finds whom to ask. */
export async function writeAddresses(dataDir: string, addresses: LocalAddresses): Promise<void> {
  await writeOwn(dataDir, ADDRESSES_FILE, `${JSON.stringify(addresses)}\n`);
}

export async function removeAddresses(dataDir: string): Promise<void> {
  await rm(join(dataDir, ADDRESSES_FILE), { force: true });
}

const OPERATOR_KEY = "operator.key";

async function writeOwn(dataDir: string, name: string, text: string): Promise<void> {
  await makeFolder(dataDir);
  const path = join(dataDir, name);
  await writeFile(path, text, { mode: 0o600 });
  await chmod(path, 0o600);
}
