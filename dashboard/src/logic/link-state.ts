import { BOARD_SILENT_MS } from "../../../src/contract/board.ts";

/** How the page stands to the server. What it shows is only called live while news comes. */
export type LinkState =
  | { readonly kind: "connecting" }
  | { readonly kind: "live" }
  /** What is shown was true so long ago. */
  | { readonly kind: "lost"; readonly ageS: number };

export function judgeLink(lastNewsMs: number | null, nowMs: number, isOpen: boolean): LinkState {
  if (lastNewsMs === null) return { kind: "connecting" };
  const silentMs = Math.max(0, nowMs - lastNewsMs);
  if (silentMs <= BOARD_SILENT_MS && (isOpen || silentMs <= 1_000)) return { kind: "live" };
  return { kind: "lost", ageS: Math.floor(silentMs / 1_000) };
}

const PAUSE_MS_MIN = 500;
const PAUSE_MS_MAX = 8_000;

/** The pause before another try: it doubles, and a part of it is chance, so that boards that lost one server don't return as one. */
export function reconnectMs(tries: number, chance: number): number {
  const full = Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** Math.min(tries, 10));
  return Math.round(full * (0.5 + chance / 2));
}
