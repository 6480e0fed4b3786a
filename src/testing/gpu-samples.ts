import type { GpuPolicy } from "../decide/gpu/gpu-policy.ts";
import type { GpuSample } from "../decide/gpu/gpu-sample.ts";

/** A cool, busy, faultless card of an exporter that tells of no XID while there is none. */
export const aGpuSample = (part: Partial<GpuSample> = {}): GpuSample => ({
  teller: "exporter",
  host: "h",
  index: 0,
  uuid: "GPU-0",
  instance: null,
  utilization: 50,
  memoryUsedMib: 1_000,
  memoryFreeMib: 9_000,
  temperatureC: 60,
  powerW: 300,
  energyMj: null,
  eccDoubleBit: null,
  rowRemapFailed: null,
  throttleReasons: null,
  xids: null,
  xidsOfWindow: null,
  xidsInTotal: null,
  sick: null,
  stampMs: null,
  ...part,
});

/** The defaults of the configuration, with everything coupled. */
export const aGpuPolicy = (part: Partial<GpuPolicy> = {}): GpuPolicy => ({
  stalenessMs: 60_000,
  faultTempC: 90,
  clearAfterMs: 60_000,
  coupleXid: true,
  xidOverrides: new Map(),
  shedUtilization: 95,
  sustainedSamples: 4,
  ...part,
});
