import { createHmac } from "node:crypto";
import { klingClaims } from "../../../decide/overflow/providers/kling.ts";
import type { EpochMs } from "../../../kernel/clock.ts";
import type { Secret } from "../../../kernel/secret.ts";

/** A JSON web token by HS256, made for each request: it holds half an hour, and work waits longer. */
export function klingToken(accessKey: Secret, secretKey: Secret, now: EpochMs): string {
  const claims = klingClaims(accessKey.reveal(), Math.floor(now / 1_000));
  const signed = `${encode({ alg: "HS256", typ: "JWT" })}.${encode(claims)}`;
  return `${signed}.${createHmac("sha256", secretKey.reveal()).update(signed).digest("base64url")}`;
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
