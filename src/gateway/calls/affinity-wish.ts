import type { RoutingSettings } from "../../contract/gateway-config.ts";
import type { AffinityWish } from "../../decide/routing/affinity-table.ts";
import { hashText, prefixBlocks } from "../../decide/routing/prefix-blocks.ts";
import { headerValue } from "./answer-headers.ts";

export interface WishFacts {
  readonly keyId: string;
  readonly rawHeaders: readonly string[];
  readonly model: string;
  /** Of a JSON body as it came; null for any other. */
  readonly chunks: readonly Buffer[] | null;
}

/** Null where the upstream asks for none, or the request gives nothing to go by. */
export function affinityWish(
  { prefixAffinity, sessionHeader }: RoutingSettings,
  { keyId, rawHeaders, model, chunks }: WishFacts,
): AffinityWish | null {
  if (!prefixAffinity && sessionHeader === null) return null;
  const name = sessionHeader === null ? undefined : headerValue(rawHeaders, sessionHeader);
  // Two keys may give their sessions the same names.
  const session = name === undefined || name === "" ? null : hashText(`${keyId}\n${name}`);
  const prefix = prefixAffinity && chunks !== null ? (prefixBlocks(chunks, model) ?? null) : null;
  return session === null && prefix === null ? null : { session, prefix };
}
