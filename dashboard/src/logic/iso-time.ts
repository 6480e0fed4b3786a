/** Reads and writes times; what time it is now comes in from outside. NaN: it is none. */
export const readIso = (iso: string): number => Date.parse(iso);
export const writeIso = (ms: number): string => new Date(ms).toISOString();
