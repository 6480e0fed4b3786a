import type { MonoMs } from "../../kernel/clock.ts";
import type { Rank } from "./ranks.ts";

/**
 * A further condition for each admission: a right that must be had from elsewhere, such as a lease of a slot that several
 * gateways share. May not call the pool. Whoever may be permitted more calls `advance`.
 */
export interface Gate {
  permits(rank: Rank, group: string, now: MonoMs): boolean;
}

/** Those of one class that wait. */
export interface GateWaiting {
  readonly waiting: number;
  /** Those of them that wait for nothing but the gate: the pool's own limits and its room let them go at once. */
  readonly count: number;
  /** By the group asked for; the counts may sum up to more than `count`. */
  readonly groups: readonly { readonly name: string; readonly count: number }[];
  /** Since when the first of them waits. */
  readonly since: MonoMs;
  /** By its share's account it goes before the higher classes. */
  readonly goesFirst: boolean;
}

/**
 * Of other pools behind the same gate, by rank: classes that wait there crowd the lower ones here, and a share that is owed
 * to a class once is parted among the pools in which it waits.
 */
export interface Elsewhere {
  /** A higher class waits at another pool. */
  readonly crowded: readonly [boolean, boolean, boolean];
  /** Pools in which the class waits, this one included. */
  readonly sharers: readonly [number, number, number];
}

export const ALONE: Elsewhere = { crowded: [false, false, false], sharers: [1, 1, 1] };
