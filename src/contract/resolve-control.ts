import { controlSection, type ControlSection } from "./control-schema.ts";
import type { ListenAddress } from "./gateway-config.ts";
import { parseListen } from "./listen-address.ts";
import { bareControlUrl } from "./resolve-agent.ts";

/** Paths of PEM files. */
export interface ServerTlsFiles {
  readonly cert: string;
  readonly key: string;
  /** Who vouches for agents and gateways; null: they need no certificate. */
  readonly clientCa: string | null;
}

/** The control plane's part of the configuration in its own words: nothing optional, times in milliseconds. */
export interface ControlSettings {
  readonly listen: ListenAddress;
  readonly tls: ServerTlsFiles | null;
  readonly catalogFile: string | null;
  readonly leaseMs: number;
  readonly renewMs: number;
  readonly blindMsMax: number;
  /** Where agents can dial all control planes, without a path. */
  readonly advertise: readonly string[];
  readonly unreachableAfterMs: number;
  readonly lostAfterMs: number;
  readonly settleMs: number;
  readonly startStallMs: number;
  readonly stopGraceMs: number;
  readonly drainGraceMs: number;
  readonly minRunMs: number;
  readonly parkAfter: number;
  /** Further names under which the board is asked for. */
  readonly boardHosts: readonly string[];
}

const RENEWALS_PER_LEASE = 5;

/** The section is taken to be checked. `listen` is what the command line says over the file. */
export function resolveControl(section: ControlSection | undefined, listen?: string): ControlSettings {
  const file = section ?? controlSection.parse({});
  const address = parseListen(listen ?? file.listen);
  if (address === undefined) throw new Error("control.listen: not HOST:PORT");
  const ms = (seconds: number): number => Math.round(seconds * 1000);
  const leaseMs = ms(file.lease_s);
  return {
    listen: address,
    tls:
      file.tls === undefined
        ? null
        : { cert: file.tls.cert_file, key: file.tls.key_file, clientCa: file.tls.client_ca_file ?? null },
    catalogFile: file.catalog.file ?? null,
    leaseMs,
    renewMs: Math.round(leaseMs / RENEWALS_PER_LEASE),
    blindMsMax: file.lease_max_blind_s === undefined ? leaseMs : ms(file.lease_max_blind_s),
    advertise: [...new Set(file.advertise.map(bareControlUrl))],
    unreachableAfterMs: ms(file.unreachable_after_s),
    // Lost before unreachable makes no sense; what is said of the earlier state rules.
    lostAfterMs: Math.max(ms(file.lost_after_s), ms(file.unreachable_after_s)),
    settleMs: ms(file.settle_s),
    startStallMs: ms(file.start_stall_s),
    stopGraceMs: ms(file.stop_grace_s),
    drainGraceMs: ms(file.drain_grace_s),
    minRunMs: ms(file.min_run_s),
    parkAfter: file.park_after,
    boardHosts: file.board.hosts,
  };
}
