import { connect as connectPlain, isIP, type LookupFunction, type Socket, type TcpNetConnectOpts } from "node:net";
import { loadTls } from "../../kernel/node-builtins.ts";
import type { UpstreamTarget } from "./port.ts";

/** Time for one address before the next is tried beside it; the engines are near. */
const ADDRESS_ATTEMPT_MS = 250;
/** Lets a connection whose peer vanished without a word (power, network) end at last. */
const KEEP_ALIVE_PROBE_MS = 30_000;

export interface ConnectOptions {
  /** Certificates to trust instead of the built-in ones, PEM. */
  readonly ca?: string | Buffer;
  /** How names are resolved; the system's resolver by default. */
  readonly lookup?: LookupFunction;
}

interface ReadInto {
  /** Where the next read lands. */
  readonly buffer: () => Uint8Array;
  readonly callback: (length: number) => boolean;
}

const LOOPBACKS = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
] as const;

/** `localhost` is both loopbacks, whatever the machine's table says: an engine may listen on either alone. */
const lookupLocalhost: LookupFunction = (_hostname, options, callback) => {
  // Not at once: who opened the socket has yet to listen to what happens on it.
  queueMicrotask(() => {
    if (options.all === true) callback(null, [...LOOPBACKS]);
    else callback(null, LOOPBACKS[0].address, LOOPBACKS[0].family);
  });
};

/** Begins a connection; the name is resolved anew each time, and all its addresses are tried. */
export function openSocket(target: UpstreamTarget, { ca, lookup: given }: ConnectOptions, onread?: ReadInto): Socket {
  const lookup = given ?? (target.hostname.toLowerCase() === "localhost" ? lookupLocalhost : undefined);
  const options: TcpNetConnectOpts = {
    host: target.hostname,
    port: target.port,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_ATTEMPT_MS,
    ...(lookup === undefined ? {} : { lookup }),
    ...(onread === undefined ? {} : { onread }),
  };
  if (target.protocol === "http:") return connectPlain(options);
  return loadTls().connect({
    ...options,
    ALPNProtocols: ["http/1.1"],
    ...(isIP(target.hostname) === 0 ? { servername: target.hostname } : {}),
    ...(ca === undefined ? {} : { ca }),
  });
}

export function formatAddress(ip: string, port: number): string {
  return ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`;
}

/** Why no connection came about, in words without stack or secrets. */
export function describeConnectError(
  error: Error | undefined,
  target: UpstreamTarget,
  attempts: readonly string[],
): string {
  const tried = attempts.length > 0 ? ` (tried ${attempts.join(", ")})` : "";
  return `cannot connect to ${target.hostname} port ${target.port}: ${reasonOf(error)}${tried}`;
}

const OUR_OWN: ReadonlySet<string> = new Set(["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS"]);

/** No connection came about for want of something of ours, whichever address was tried. */
export function lacksMeans(error: Error | undefined): boolean {
  if (error instanceof AggregateError) return error.errors.length > 0 && error.errors.every(lacksMeans);
  return error !== undefined && "code" in error && typeof error.code === "string" && OUR_OWN.has(error.code);
}

function reasonOf(error: Error | undefined): string {
  if (error === undefined) return "the connection closed before it was ready";
  if (error instanceof AggregateError) return [...new Set(error.errors.map((one: Error) => reasonOf(one)))].join(", ");
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return code ?? error.message;
}
