import type { RequestClass } from "../../contract/request-class.ts";

/** A class as an index, 0 the most urgent. */
export type Rank = 0 | 1 | 2;
export const RANK: Readonly<Record<RequestClass, Rank>> = { interactive: 0, system: 1, batch: 2 };
export const RANKS = [0, 1, 2] as const;
export const BATCH: Rank = 2;
