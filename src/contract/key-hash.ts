import { hash } from "node:crypto";
import { randomKey } from "../kernel/ids.ts";
import { Secret } from "../kernel/secret.ts";

const KEY_PREFIX = "ym_";

/** SHA-256 in lower-case hex. Plain SHA-256 is enough because keys are 256 random bits: there is nothing to guess slowly. */
export const hashKey = (key: string): string => hash("sha256", key, "hex");

/** A new key: shown once by whoever asked for it, and kept only as its hash. */
export function newKey(): { readonly key: Secret; readonly hash: string } {
  const plain = randomKey(KEY_PREFIX);
  return { key: new Secret(plain), hash: hashKey(plain) };
}
