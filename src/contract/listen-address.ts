import type { ListenAddress } from "./gateway-config.ts";

const LISTEN = /^(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})$/;

/** HOST:PORT or [IPv6]:PORT. A host must be named: a bare port would mean all interfaces to some readers and loopback to others. */
export function parseListen(text: string): ListenAddress | undefined {
  const match = LISTEN.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  return host === undefined || !(port <= 65_535) ? undefined : { host, port };
}

export const formatListen = (address: ListenAddress): string =>
  address.host.includes(":") ? `[${address.host}]:${address.port}` : `${address.host}:${address.port}`;

const LOOPBACK_V4 = /^127\.(?:25[0-5]|2[0-4]\d|1?\d?\d)\.(?:25[0-5]|2[0-4]\d|1?\d?\d)\.(?:25[0-5]|2[0-4]\d|1?\d?\d)$/;

/** False when in doubt: an unusual spelling counts as reachable from outside. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  return (
    name === "localhost" ||
    name === "::1" ||
    LOOPBACK_V4.test(name.startsWith("::ffff:") ? name.slice("::ffff:".length) : name)
  );
}
