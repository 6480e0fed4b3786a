import { randomBytes } from "node:crypto";

/**
 * Request ids: a random prefix per process and a counter, so that making one costs an addition. Unique across
 * processes with the prefix's 48 bits.
 */
export function requestIds(prefix: string = randomBytes(6).toString("hex")): () => string {
  let count = 0;
  return () => `req-${prefix}-${(count++).toString(36)}`;
}

/** 256 random bits in base64url behind a readable prefix. */
export const randomKey = (prefix: string): string => `${prefix}${randomBytes(32).toString("base64url")}`;
