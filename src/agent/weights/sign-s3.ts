import { createHash, createHmac } from "node:crypto";
import type { Secret } from "../../kernel/secret.ts";

export interface S3Credentials {
  readonly keyId: string;
  readonly secret: Secret;
  readonly session: Secret | null;
}

const NO_BODY = createHash("sha256").update("").digest("hex");
const ALGORITHM = "AWS4-HMAC-SHA256";

/** As S3 wants paths and queries: everything but letters, digits and `-._~`. */
export const encodeS3 = (text: string): string =>
  encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (char) => `%${char.codePointAt(0)?.toString(16).toUpperCase() ?? ""}`,
  );

/**
 * Headers that sign a request without a body by AWS Signature Version 4; `headers` are signed too. `at` is ISO 8601. The URL's
 * path and query are to be spelled by `encodeS3`.
 */
export function signS3(
  request: { readonly method: string; readonly url: URL; readonly headers: Readonly<Record<string, string>> },
  region: string,
  credentials: S3Credentials,
  at: string,
): Record<string, string> {
  const time = `${at.replaceAll(/[-:]/g, "").slice(0, 15)}Z`;
  const scope = `${time.slice(0, 8)}/${region}/s3/aws4_request`;
  const added: Record<string, string> = { "x-amz-content-sha256": NO_BODY, "x-amz-date": time };
  if (credentials.session !== null) added["x-amz-security-token"] = credentials.session.reveal();
  const signed = Object.entries({ ...request.headers, ...added, host: request.url.host })
    .map(([name, value]) => [name.toLowerCase(), value.trim()] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  const names = signed.map(([name]) => name).join(";");
  const canonical = [
    request.method,
    request.url.pathname,
    canonicalQuery(request.url),
    ...signed.map(([name, value]) => `${name}:${value}`),
    "",
    names,
    NO_BODY,
  ].join("\n");
  const toSign = [ALGORITHM, time, scope, createHash("sha256").update(canonical).digest("hex")].join("\n");
  const signature = createHmac("sha256", signingKey(credentials.secret, scope)).update(toSign).digest("hex");
  const authorization = `${ALGORITHM} Credential=${credentials.keyId}/${scope}, SignedHeaders=${names}, Signature=${signature}`;
  return { ...added, authorization };
}

const signingKey = (secret: Secret, scope: string): Buffer =>
  scope
    .split("/")
    .reduce<Buffer>(
      (key, part) => createHmac("sha256", key).update(part).digest(),
      Buffer.from(`AWS4${secret.reveal()}`),
    );

const canonicalQuery = (url: URL): string =>
  [...url.searchParams]
    .map(([name, value]) => `${encodeS3(name)}=${encodeS3(value)}`)
    .toSorted()
    .join("&");
