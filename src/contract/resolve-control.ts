import { controlSection, type ControlSection } from "./control-schema.ts";
import type { ListenAddress } from "./gateway-config.ts";
import { parseListen } from "./listen-address.ts";

/** The control plane's part of the configuration in its own words: nothing optional, times in milliseconds. */
export interface ControlSettings {
  readonly listen: ListenAddress;
  readonly catalogFile: string | null;
  readonly leaseMs: number;
  readonly renewMs: number;
  readonly blindMsMax: number;
}

const RENEWALS_PER_LEASE = 5;

/** The section is taken to be checked. `listen` is what the command line says over the file. */
export function resolveControl(section: ControlSection | undefined, listen?: string): ControlSettings {
  const file = section ?? controlSection.parse({});
  const address = parseListen(listen ?? file.listen);
  if (address === undefined) throw new Error("control.listen: not HOST:PORT");
  const leaseMs = Math.round(file.lease_s * 1000);
  return {
    listen: address,
    catalogFile: file.catalog.file ?? null,
    leaseMs,
    renewMs: Math.round(leaseMs / RENEWALS_PER_LEASE),
    blindMsMax: file.lease_max_blind_s === undefined ? leaseMs : Math.round(file.lease_max_blind_s * 1000),
  };
}
