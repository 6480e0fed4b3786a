import { randomBytes } from "node:crypto";
import { link, open, readFile, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SIGNING_KEY_FILE } from "../contract/audit-chain.ts";
import { syncFolder } from "../kernel/durable-file.ts";
import { hasSystemCode } from "../kernel/errors.ts";
import { Secret } from "../kernel/secret.ts";
import { Signer } from "../kernel/signer.ts";
import { makeFolder } from "../kernel/make-folder.ts";

const SECRET_BYTES = 32;

/**
 * What signs approvals and the audit's chain: the secrets of the configuration, else one of this data folder, which is made when it is first
 * needed. It is read once; where that fails the next one who needs it tries again.
 */
export function lazySigner(dataDir: string, secrets: readonly Secret[] | null): () => Promise<Signer> {
  let opened: Promise<Signer> | null = null;
  const make = async (): Promise<Signer> => {
    if (secrets === null) return new Signer([await folderSecret(dataDir)]);
    const [first, ...others] = secrets;
    if (first === undefined) throw new Error("none of the variables that signing_key_envs names is set");
    return new Signer([first, ...others]);
  };
  return () => {
    opened ??= make().catch((error: unknown) => {
      opened = null;
      throw error;
    });
    return opened;
  };
}

async function folderSecret(dataDir: string): Promise<Secret> {
  const path = join(dataDir, SIGNING_KEY_FILE);
  return (await readSecret(path)) ?? (await makeSecret(path));
}

async function readSecret(path: string): Promise<Secret | null> {
  try {
    const text = (await readFile(path, "utf8")).trim();
    // A lost secret would make every signature wrong: an empty file is not taken for a new one.
    if (!/^[0-9a-f]{64}$/.test(text)) throw new Error(`${path} holds no signing secret`);
    return new Secret(text);
  } catch (error) {
    if (hasSystemCode(error, "ENOENT")) return null;
    throw error;
  }
}

/** Whole or not there, and the same one for processes that make it at once: whoever comes second reads the first one's. */
async function makeSecret(path: string): Promise<Secret> {
  await makeFolder(dirname(path));
  const draft = `${path}.${randomBytes(4).toString("hex")}`;
  const text = randomBytes(SECRET_BYTES).toString("hex");
  try {
    await using file = await open(draft, "wx", 0o600);
    await file.writeFile(`${text}\n`);
    await file.sync();
    await link(draft, path);
    await syncFolder(dirname(path));
  } catch (error) {
    if (!hasSystemCode(error, "EEXIST")) throw error;
  } finally {
    await rm(draft, { force: true });
  }
  const secret = await readSecret(path);
  if (secret === null) throw new Error(`${path} is gone again`);
  return secret;
}
