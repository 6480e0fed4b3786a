/** What a request's head says of where its client sent it; undefined where there is no such header. */
export interface AddressedAs {
  readonly host: string | undefined;
  readonly forwardedHost: string | undefined;
  readonly forwardedProto: string | undefined;
}

/** A host and perhaps a port, as a Host header has them. */
const HOST = /^(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$/;

/**
 * The gateway's address as this client wrote it, with what a proxy before the gateway says of it. It is told to nobody but the
 * client itself, so one that forges it misleads itself alone. `fallback` is for a client that named no host.
 */
export function clientOrigin(as: AddressedAs, fallback: string): string {
  const proto = firstOf(as.forwardedProto)?.toLowerCase();
  const host = [firstOf(as.forwardedHost), as.host].find((name) => name !== undefined && HOST.test(name));
  return `${proto === "https" ? "https" : "http"}://${host ?? fallback}`;
}

/** Each proxy adds its own behind; the first is the client's. */
const firstOf = (list: string | undefined): string | undefined => list?.split(",", 1)[0]?.trim();
