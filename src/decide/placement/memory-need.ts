import type { MemoryDoc } from "../../contract/fleet.ts";

/** What earlier starts of a profile on one class of cards showed. */
export type MemoryTruth = Pick<MemoryDoc, "perGpuMib" | "oomAtMib">;

/** After running out of memory the next try gets this much more. */
const OOM_GROWTH = 1.2;
/** A figure this near to a whole card was as good as all of it: a try with the whole card would be the same try again. */
const WHOLE_CARD_SHARE = 0.95;

/**
 * What to keep free on a card for one more start, in MiB: what starts really took, or the profile's figure before any was
 * measured; more than a figure that ran out of memory. Null: the card is too small for another try.
 */
export function gpuNeedMib(profileMib: number, truth: MemoryTruth | undefined, cardMib: number): number | null {
  const known = truth?.perGpuMib ?? profileMib;
  const oomAtMib = truth?.oomAtMib ?? null;
  if (oomAtMib === null || known > oomAtMib) return known;
  const grown = Math.ceil(oomAtMib * OOM_GROWTH);
  if (grown <= cardMib) return grown;
  return oomAtMib < cardMib * WHOLE_CARD_SHARE ? cardMib : null;
}

/** Whether a measured figure is worth an event: the profile's guess was more than 10 % off. */
export const estimateIsOff = (profileMib: number, measuredMib: number): boolean =>
  Math.abs(measuredMib - profileMib) > profileMib * 0.1;
