import { createHash } from "node:crypto";
import { canonicalJson } from "../../decide/idempotency/canonical-json.ts";

/** Making a larger body canonical would hold up the event loop; it is compared byte by byte. */
const CANONICAL_BYTES_MAX = 256 * 1024;

/**
 * SHA-256, in hex, of what makes two requests the same: `about` (what counts besides the body, in a fixed order) and the body,
 * canonical where it is JSON of up to 256 KiB. A larger body costs one pass of the hash, about 1 ms for each MB.
 */
export function bodyFingerprint(about: readonly string[], chunks: readonly Buffer[], isJson: boolean): string {
  const sum = createHash("sha256");
  for (const part of about) sum.update(`${Buffer.byteLength(part)}:${part}`);
  const bytes = chunks.reduce((total, chunk) => total + chunk.length, 0);
  const canonical =
    isJson && bytes <= CANONICAL_BYTES_MAX ? canonicalJson(Buffer.concat(chunks).toString("utf8")) : undefined;
  // The kind stands in front: bytes that happen to be the canonical form of other bytes are another request.
  sum.update(canonical === undefined ? "bytes:" : "json:");
  if (canonical !== undefined) sum.update(canonical);
  else for (const chunk of chunks) sum.update(chunk);
  return sum.digest("hex");
}
