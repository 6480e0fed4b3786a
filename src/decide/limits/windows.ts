import { asEpoch, formatIsoTime, parseIsoTime } from "../../kernel/clock.ts";

/**
 * The windows that limits are counted in, by a store's clock in epoch milliseconds. A minute is counted in pieces of five seconds: all that
 * is looked at together spans more than sixty seconds, so no sixty seconds, wherever they begin, hold more than the limit. Days and
 * months are those of UTC, as numbers.
 */
export const PIECE_MS = 5_000;
/** Pieces that count: those of a whole minute, and the one that has just begun. */
export const PIECES = 13;
const DAY_MS = 86_400_000;

export const pieceOf = (now: number): number => Math.floor(now / PIECE_MS);
/** When a piece counts no more. */
export const pieceEnds = (piece: number): number => (piece + PIECES) * PIECE_MS;
export const dayOf = (now: number): number => Math.floor(now / DAY_MS);
export const dayEnds = (now: number): number => (dayOf(now) + 1) * DAY_MS;

/** Months since year 0. */
export function monthOf(now: number): number {
  const text = formatIsoTime(asEpoch(now));
  return Number(text.slice(0, 4)) * 12 + Number(text.slice(5, 7)) - 1;
}

export function monthEnds(now: number): number {
  const next = monthOf(now) + 1;
  const year = Math.floor(next / 12);
  return parseIsoTime(`${year}-${String((next % 12) + 1).padStart(2, "0")}-01T00:00:00Z`) ?? now;
}
