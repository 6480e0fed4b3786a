import { createHash } from "node:crypto";
import type { JobRecord } from "../../contract/job.ts";
import type { Tier } from "../../contract/overflow-settings.ts";

/** What an approval is bound to: all that decides what a tier is asked for. 64 hex digits. */
export function contentHash(
  job: Pick<JobRecord, "id" | "method" | "path" | "model" | "upstream" | "contentType">,
  body: Buffer | undefined,
): string {
  const { id, method, path, model, upstream, contentType } = job;
  const head = JSON.stringify([id, method, path, model, upstream, contentType]);
  return createHash("sha256")
    .update(head)
    .update("\n")
    .update(body ?? "")
    .digest("hex");
}

/** Names how a tier is set up, its keys too. */
export function setupOf({ provider, ...rules }: Tier): string {
  const keys = [provider.key, provider.signingKey].map((key) => key?.reveal() ?? null);
  return createHash("sha256")
    .update(JSON.stringify([rules, provider, keys]))
    .digest("hex")
    .slice(0, SETUP_DIGITS);
}
const SETUP_DIGITS = 16;

/** Who an approval lets be asked: a tier that is moved to another place by a reload needs another one. */
export const providerName = ({ provider: { kind, baseUrl, model } }: Pick<Tier, "provider">): string =>
  [kind, baseUrl, ...(model === null ? [] : [model])].join(" ");
