import type { AdmissionLimits } from "../../contract/gateway-config.ts";

export interface PoolLimits extends AdmissionLimits {
  /** While nothing runs that could serve and something is being started: how long a request waits for that. Else null. */
  readonly startTimeoutMs: number | null;
}

export function checkLimits(limits: PoolLimits): void {
  const { slots, batchMax, batchMinShare, queueMax, queueBytesMax, startTimeoutMs } = limits;
  const times = [...Object.values(limits.queueTimeoutMs), startTimeoutMs ?? 0];
  const counts = [slots, batchMax, queueMax, queueBytesMax, ...times];
  if (counts.every((count) => count >= 0) && batchMinShare >= 0 && batchMinShare <= 1) return;
  throw new RangeError(`admission: limits must not be negative, and the share at most 1: ${JSON.stringify(limits)}`);
}
