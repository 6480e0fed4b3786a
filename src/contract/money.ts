/** Money is counted in whole millionths of a currency, so that sums are exact. */
export const MICROS = 1_000_000;

/** A product such as 0.1 * 3 lies a hair above or below the whole number that it stands for. */
const HAIR = 1e-6;

/** What costs something is not counted as less, and never as nothing. */
export const microsUp = (micros: number): number => (micros > 0 ? Math.max(1, Math.ceil(micros - HAIR)) : 0);

/** A cap is not exceeded by rounding. */
export const microsDown = (micros: number): number => Math.floor(micros + HAIR);
