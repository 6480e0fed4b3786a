import type { GpuHealthSettings, GpuSourceSettings } from "./gateway-config.ts";
import { gpuHealthSection, type GpuHealthSection } from "./gpu-schema.ts";

const milliseconds = (seconds: number): number => Math.round(seconds * 1000);

/** The section is taken to be checked: an address that can't be read throws. */
export function resolveGpuHealth(section: GpuHealthSection | undefined): GpuHealthSettings | null {
  return section === undefined ? null : settingsOf(section);
}

function settingsOf(section: GpuHealthSection): GpuHealthSettings {
  const listed = section.sources.map(({ dcgm_url: url, host }) => source(url, host));
  return {
    placedOnly: false,
    sources: section.dcgm_url === undefined ? listed : [...listed, source(section.dcgm_url, null)],
    pollMs: milliseconds(section.poll_s),
    stalenessMs: milliseconds(section.staleness_s),
    faultTempC: section.fault_temp_c,
    clearAfterMs: milliseconds(section.clear_after_s),
    coupleFaults: section.couple_faults,
    coupleXid: section.couple_xid,
    lastEndpoint: section.last_endpoint ?? null,
    shedBatch: section.shed_batch,
    shedUtilization: section.shed_util_pct,
    sustainedSamples: section.sustained_samples,
    dryRun: section.dry_run,
    xidOverrides: new Map(Object.entries(section.xid).map(([code, xidClass]) => [Number(code), xidClass])),
  };
}

/** Without a word in the file: what agents find takes placed endpoints out, and nothing is shed. */
export const PLACED_GPU_HEALTH: GpuHealthSettings = {
  ...settingsOf(gpuHealthSection.parse({})),
  placedOnly: true,
  coupleFaults: true,
  coupleXid: true,
};

const DEFAULT_PORT = { "http:": 80, "https:": 443 } as const;

function source(text: string, host: string | null): GpuSourceSettings {
  const url = new URL(text);
  const protocol = url.protocol === "https:" ? "https:" : "http:";
  const port = url.port === "" ? DEFAULT_PORT[protocol] : Number(url.port);
  const path = url.pathname === "/" ? "/metrics" : url.pathname;
  return {
    name: `${protocol}//${url.hostname}:${port}${path}`,
    host,
    origin: `${protocol}//${url.hostname}:${port}`,
    protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port,
    path,
  };
}
