import { classOfAddress, inRange, parseIp, parseIpRange, type IpRange } from "./ip-address.ts";

/**
 * Where the gateway may send the word of a job's end. A client names the address, so it is judged as an attacker's: when the
 * job is submitted, when the message is sent, for each address that the name then has, and for each redirect.
 *
 * Invariants:
 *   G1. Only hosts of the list; an empty list allows none.
 *   G2. An address that is not public is used only where the list names the address, or a range that holds it.
 *   G3. An entry allows its own scheme and port and no other one, also where it names an address or a range.
 *   G4. The text is read once, by the WHATWG parser, and what it made of it is what is judged and used.
 */
export interface CallbackRules {
  readonly hosts: readonly HostRule[];
  readonly ranges: readonly RangeRule[];
}

interface RangeRule {
  readonly range: IpRange;
  /** Null: the scheme's own. */
  readonly port: number | null;
  readonly plain: boolean;
}

interface HostRule {
  /** Lower case; `*.` in front stands for any one or more labels. */
  readonly host: string;
  /** Null: the scheme's own. */
  readonly port: number | null;
  readonly plain: boolean;
}

export type CallbackVerdict =
  | { readonly kind: "ok"; readonly url: string; readonly host: string; readonly port: number; readonly plain: boolean }
  /** `why` is for the client: it says nothing of what lies behind a name. */
  | { readonly kind: "refused"; readonly why: string };

const refused = (why: string): CallbackVerdict => ({ kind: "refused", why });
const URL_CHARS_MAX = 2_048;
/** Blanks, controls and backslashes are dropped or turned by URL parsers, each in its own way. */
const ODD = /[^\x21-\x7e]|\\/;

/**
 * Entries of `jobs.callback_allow`: `host`, `host:port`, `*.host`, an address, a range such as `10.1.0.0/16`, each with
 * `http://` in front where plain HTTP is meant. Returns the first entry that can't be read as `bad`.
 */
export function parseCallbackAllow(
  entries: readonly string[],
): { readonly kind: "ok"; readonly rules: CallbackRules } | { readonly kind: "bad"; readonly entry: string } {
  const hosts: HostRule[] = [];
  const ranges: RangeRule[] = [];
  for (const entry of entries) {
    const plain = entry.startsWith("http://");
    const text = entry.replace(/^https?:\/\//, "").toLowerCase();
    const asRange = parseIpRange(text.replace(/^\[|\]$/g, ""));
    if (asRange !== undefined) {
      ranges.push({ range: asRange, port: null, plain });
      continue;
    }
    const found = /^(\*\.)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?$/.exec(text);
    const port = found?.[3] === undefined ? null : Number(found[3]);
    if (found?.[2] === undefined || (port !== null && (port < 1 || port > 65_535))) return { kind: "bad", entry };
    const host = found[2].replace(/^\[|\]$/g, "");
    const address = parseIpRange(host);
    if (address === undefined) hosts.push({ host: `${found[1] ?? ""}${host}`, port, plain });
    else ranges.push({ range: address, port, plain });
  }
  return { kind: "ok", rules: { hosts, ranges } };
}

/** Judges the text of a URL. The addresses behind a name are judged when they are known (`judgeAddress`). */
export function judgeCallbackUrl(text: string, rules: CallbackRules): CallbackVerdict {
  if (text.length > URL_CHARS_MAX) return refused(`the URL is longer than ${URL_CHARS_MAX} characters`);
  if (ODD.test(text)) return refused("the URL has a character that is not visible ASCII, or a backslash");
  const url = URL.parse(text);
  if (url === null) return refused("the URL can't be read");
  if (url.protocol !== "https:" && url.protocol !== "http:") return refused("only https:// URLs are called");
  if (url.username !== "" || url.password !== "" || /^[a-z]+:\/\/[^/?#]*@/i.test(text))
    return refused("the URL names a user");
  const plain = url.protocol === "http:";
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const port = url.port === "" ? (plain ? 80 : 443) : Number(url.port);
  const address = parseIp(host);
  const fits = (rule: HostRule | RangeRule): boolean =>
    rule.plain === plain && (rule.port ?? (plain ? 80 : 443)) === port;
  const listed =
    address === undefined
      ? rules.hosts.some((rule) => fits(rule) && hostMatches(host, rule.host))
      : rules.ranges.some((rule) => fits(rule) && inRange(address, rule.range));
  if (!listed) return refused("the host is not one that jobs.callback_allow lists");
  url.hash = "";
  return { kind: "ok", url: url.href, host, port, plain };
}

/** Whether a connection to this address may be made. */
export function judgeAddress(address: string, rules: CallbackRules): boolean {
  const bytes = parseIp(address);
  if (bytes === undefined) return false;
  return classOfAddress(bytes) === "public" || rules.ranges.some(({ range }) => inRange(bytes, range));
}

function hostMatches(host: string, allowed: string): boolean {
  return allowed.startsWith("*.")
    ? host.endsWith(allowed.slice(1)) && host.length > allowed.length - 1
    : host === allowed;
}
