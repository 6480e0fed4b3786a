/** An address as its 16 bytes; IPv4 in the mapped form ::ffff:a.b.c.d. */
export type IpBytes = readonly number[];

const V4_PREFIX = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/** Reads dotted IPv4 with four decimal numbers, and IPv6 without a zone. Undefined for anything else. */
export function parseIp(text: string): IpBytes | undefined {
  return text.includes(":") ? parseV6(text) : parseV4(text);
}

function parseV4(text: string): IpBytes | undefined {
  const parts = text.split(".");
  if (parts.length !== 4 || !parts.every((part) => /^(?:0|[1-9][0-9]{0,2})$/.test(part))) return undefined;
  const bytes = parts.map(Number);
  return bytes.every((byte) => byte <= 255) ? [...V4_PREFIX, ...bytes] : undefined;
}

function parseV6(text: string): IpBytes | undefined {
  const lastColon = text.lastIndexOf(":");
  const tail = text.slice(lastColon + 1);
  if (tail.includes(".")) {
    const v4 = parseV4(tail);
    if (v4 === undefined) return undefined;
    const hex = (at: number): string => (((v4[at] ?? 0) << 8) | (v4[at + 1] ?? 0)).toString(16);
    return parseV6(`${text.slice(0, lastColon + 1)}${hex(12)}:${hex(14)}`);
  }
  const halves = text.split("::");
  if (halves.length > 2) return undefined;
  const groupsOf = (half: string | undefined): string[] => (half === undefined || half === "" ? [] : half.split(":"));
  const [head, rest] = [groupsOf(halves[0]), groupsOf(halves[1])];
  const missing = 8 - head.length - rest.length;
  if (halves.length === 2 ? missing < 1 : missing !== 0) return undefined;
  const groups = [...head, ...Array.from({ length: missing }, () => "0"), ...rest];
  if (!groups.every((group) => /^[0-9a-fA-F]{1,4}$/.test(group))) return undefined;
  return groups.flatMap((group) => {
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}

/** A range of addresses: `10.0.0.0/8`, `fd00::/8`, or one address. */
export interface IpRange {
  readonly bytes: IpBytes;
  readonly bits: number;
}

export function parseIpRange(text: string): IpRange | undefined {
  const [address = "", bits, ...others] = text.split("/");
  const bytes = parseIp(address);
  if (bytes === undefined || others.length > 0) return undefined;
  const v4 = !address.includes(":");
  const most = v4 ? 32 : 128;
  if (bits === undefined) return { bytes, bits: 128 };
  if (!/^(?:0|[1-9][0-9]{0,2})$/.test(bits) || Number(bits) > most) return undefined;
  return { bytes, bits: v4 ? Number(bits) + 96 : Number(bits) };
}

export function inRange(address: IpBytes, range: IpRange): boolean {
  for (let bit = 0; bit < range.bits; bit += 8) {
    const kept = Math.min(8, range.bits - bit);
    const mask = (0xff << (8 - kept)) & 0xff;
    if (((address[bit / 8] ?? 0) & mask) !== ((range.bytes[bit / 8] ?? 0) & mask)) return false;
  }
  return true;
}

export type AddressClass =
  | "public"
  | "unspecified"
  | "loopback"
  | "private"
  | "link_local"
  | "shared"
  | "unique_local"
  | "multicast"
  | "reserved";

const range = (text: string, name: AddressClass): readonly [IpRange, AddressClass] => {
  const parsed = parseIpRange(text);
  if (parsed === undefined) throw new Error(`not a range: ${text}`);
  return [parsed, name];
};

/** Everything that is not the public network, narrower ranges first where they lie in wider ones. */
const SPECIAL: readonly (readonly [IpRange, AddressClass])[] = [
  range("0.0.0.0/8", "unspecified"),
  range("10.0.0.0/8", "private"),
  range("100.64.0.0/10", "shared"),
  range("127.0.0.0/8", "loopback"),
  range("169.254.0.0/16", "link_local"),
  range("172.16.0.0/12", "private"),
  range("192.0.0.0/24", "reserved"),
  range("192.0.2.0/24", "reserved"),
  range("192.88.99.0/24", "reserved"),
  range("192.168.0.0/16", "private"),
  range("198.18.0.0/15", "reserved"),
  range("198.51.100.0/24", "reserved"),
  range("203.0.113.0/24", "reserved"),
  range("224.0.0.0/4", "multicast"),
  range("240.0.0.0/4", "reserved"),
  range("::/128", "unspecified"),
  range("::1/128", "loopback"),
  range("fe80::/10", "link_local"),
  range("fec0::/10", "private"),
  range("fc00::/7", "unique_local"),
  range("ff00::/8", "multicast"),
  range("2001:db8::/32", "reserved"),
  range("2001::/23", "reserved"),
  range("3fff::/20", "reserved"),
];
const MAPPED = range("::ffff:0:0/96", "public")[0];
/** Ranges that carry an IPv4 address inside, and where it begins. */
const CARRIERS: readonly (readonly [IpRange, number])[] = [
  [range("64:ff9b::/96", "public")[0], 12],
  [range("64:ff9b:1::/48", "public")[0], 12],
  [range("2002::/16", "public")[0], 2],
  [range("::/96", "public")[0], 12],
];
const GLOBAL_UNICAST = range("2000::/3", "public")[0];

/** Which kind of network an address belongs to. An IPv4 address inside an IPv6 one is judged as what it is. */
export function classOfAddress(address: IpBytes): AddressClass {
  for (const [special, name] of SPECIAL) if (inRange(address, special)) return name;
  if (inRange(address, MAPPED)) return "public";
  for (const [carrier, at] of CARRIERS)
    if (inRange(address, carrier)) return classOfAddress([...V4_PREFIX, ...address.slice(at, at + 4)]);
  return inRange(address, GLOBAL_UNICAST) ? "public" : "reserved";
}

/** Of text that is no address: false. */
export function isPublicAddress(text: string): boolean {
  const bytes = parseIp(text);
  return bytes !== undefined && classOfAddress(bytes) === "public";
}
