import { z } from "zod";
import { keyConfig } from "./key-schema.ts";
import { REQUEST_CLASSES } from "./request-class.ts";
import { ROLES } from "./roles.ts";

/** The messages of `GET/POST /admin/keys`, `DELETE /admin/keys/{id}` and `POST /admin/keys/{id}/rotate`. */

/** As in the file, without the hash: the gateway makes the key. */
export const newKeyRequest = keyConfig.omit({ hash: true });
export type NewKeyRequest = z.output<typeof newKeyRequest>;

/** Of a key that another gateway has made, so that several know one key; absent: one is made. */
const hash = keyConfig.shape.hash.optional();
export const newKeyAsk = newKeyRequest.extend({ hash });

export const rotateKeyRequest = z.strictObject({
  /** How long the old key stays valid beside the new one. */
  overlap_s: z.number().min(0).max(604_800).default(0),
  hash,
});

export const keyView = z.object({
  id: z.string(),
  /** The first digits of the hash, enough to tell two keys of one id apart. */
  fingerprint: z.string(),
  /** Keys of the file are changed in the file; session keys last as long as the process. */
  source: z.enum(["config", "stored", "session"]),
  role: z.enum(ROLES),
  classes: z.array(z.enum(REQUEST_CLASSES)),
  models: z.array(z.string()).nullable(),
  weight: z.number(),
  allow_external: z.boolean(),
  /** ISO 8601; null: never, or not known. */
  expires: z.string().nullable(),
  created: z.string().nullable(),
  /** Since the gateway started. */
  last_used: z.string().nullable(),
});
export type KeyView = z.output<typeof keyView>;

export const keyList = z.object({ keys: z.array(keyView) });

/**
 * A key is known to the gateway that was asked. Those that share its Redis, itself included, as last seen; null: there is none that it
 * shares with.
 */
const sharing = z.number().nullable().default(null);

/** The only message that ever holds a key. */
export const issuedKey = z.object({
  id: z.string(),
  /** Null: its hash was given. */
  key: z.string().nullable(),
  hash: z.string(),
  /** After a rotation: until when the old key is valid too. */
  old_valid_until: z.string().nullable(),
  sharing,
});
export type IssuedKey = z.output<typeof issuedKey>;

export const revokedKey = z.object({ id: z.string(), revoked: z.literal(true), sharing });
export type RevokedKey = z.output<typeof revokedKey>;
