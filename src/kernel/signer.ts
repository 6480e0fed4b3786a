import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { Secret } from "./secret.ts";

export interface Signature {
  /** Which key signed it: 8 hex digits, which tell nothing of the key. */
  readonly key: string;
  readonly mac: string;
}

/** A key for one purpose alone, made of a secret: who has it can't sign anything else. */
export interface PurposeKey {
  readonly id: string;
  readonly hex: string;
}

/** What signatures are made for. One of another purpose is none. */
export type SigningPurpose = "approval" | "audit chain" | "identifier";

/**
 * Signs what must not be changed behind our back. The first secret signs and all of them verify, so that a secret is replaced by putting
 * the new one in front and taking the old one away when what it signed is over.
 */
export class Signer {
  readonly #secrets: readonly [Secret, ...Secret[]];

  constructor(secrets: readonly [Secret, ...Secret[]]) {
    this.#secrets = secrets;
  }

  sign(purpose: SigningPurpose, text: string): Signature {
    const { id, hex } = purposeKey(this.#secrets[0], purpose);
    return { key: id, mac: macOf(hex, text) };
  }

  verify(purpose: SigningPurpose, text: string, { key, mac }: Signature): boolean {
    return this.keysFor(purpose).some(({ id, hex }) => id === key && isSame(macOf(hex, text), mac));
  }

  /** The one that signs first. */
  keysFor(purpose: SigningPurpose): readonly PurposeKey[] {
    return this.#secrets.map((secret) => purposeKey(secret, purpose));
  }

  /** Stands for a name where the name itself shall not be read: the same each time, and told from the name only with the secret. */
  pseudonym(name: string): string {
    return `hmac:${this.sign("identifier", name).mac.slice(0, PSEUDONYM_DIGITS)}`;
  }
}

const PSEUDONYM_DIGITS = 24;
const KEY_ID_DIGITS = 8;

const purposeKey = (secret: Secret, purpose: SigningPurpose): PurposeKey => {
  const hex = createHmac("sha256", secret.reveal()).update(`yardmaster ${purpose}`).digest("hex");
  return { id: createHash("sha256").update(`id ${hex}`).digest("hex").slice(0, KEY_ID_DIGITS), hex };
};

export const macOf = (keyHex: string, text: string): string =>
  createHmac("sha256", Buffer.from(keyHex, "hex")).update(text).digest("hex");

export const isSame = (a: string, b: string): boolean =>
  a.length === b.length && timingSafeEqual(Buffer.from(a), Buffer.from(b));
