import { isPublicAddress, parseIp } from "../jobs/ip-address.ts";
import { bareHost } from "./source.ts";

/**
 * Where a server may send a download on to. The operator has named the first server; whoever answers there names the others.
 *
 * Invariants:
 *   H1. A credential goes to the origin that it was set up for and to no other.
 *   H2. Nothing leads from https:// to plain text.
 *   H3. Another origin is used only at public addresses, unless the node's configuration lists it: a redirect is no way into
 *       the house.
 */
export const REDIRECTS_MAX = 8;

export type HopVerdict =
  | {
      readonly kind: "go";
      readonly url: URL;
      /** Whether credentials go along. */
      readonly isOwn: boolean;
      /** Whether the address is to be judged when the name has been looked up (`isPublicAddress`). */
      readonly guarded: boolean;
    }
  | { readonly kind: "refused"; readonly why: string };

/** `listed` holds hosts and HOST:PORT of the node's configuration, in lower case. */
export function judgeHop(first: URL, from: URL, location: string, hops: number, listed: readonly string[]): HopVerdict {
  const refused = (why: string): HopVerdict => ({ kind: "refused", why });
  if (hops >= REDIRECTS_MAX) return refused(`the server redirects more than ${REDIRECTS_MAX} times`);
  const url = URL.parse(location, from.href);
  if (url === null) return refused("the server redirects to what is no URL");
  if (url.protocol !== "https:" && url.protocol !== "http:")
    return refused(`the server redirects to ${url.protocol}//`);
  if (url.username !== "" || url.password !== "") return refused("the server redirects to a URL with a user");
  if (url.protocol === "http:" && from.protocol === "https:")
    return refused("the server redirects from https:// to plain text");
  const isOwn = url.origin === first.origin;
  const host = bareHost(url).toLowerCase();
  const guarded = !isOwn && !listed.includes(host) && !listed.includes(`${host}:${portOf(url)}`);
  if (guarded && parseIp(host) !== undefined && !isPublicAddress(host))
    return refused("the server redirects to an address that is not public");
  if (guarded && url.protocol === "http:") return refused("the server redirects to another server in plain text");
  return { kind: "go", url, isOwn, guarded };
}

export const portOf = (url: URL): number =>
  url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
