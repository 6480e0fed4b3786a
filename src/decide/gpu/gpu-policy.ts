import type { XidClass } from "./xid-policy.ts";

/** What the operator chose. Times in milliseconds. */
export interface GpuPolicy {
  readonly stalenessMs: number;
  readonly faultTempC: number;
  readonly clearAfterMs: number;
  /** Whether what says that a card is broken (XID, ECC, remapping, gone) counts as a fault, and not heat alone. */
  readonly coupleXid: boolean;
  readonly xidOverrides: ReadonlyMap<number, XidClass>;
  /** 0 to 100. */
  readonly shedUtilization: number;
  readonly sustainedSamples: number;
}
