import type { Markers } from "./launch/launch-plan.ts";

/**
 * Whether a start gets anywhere. Lines alone are no progress: a program can say the same for ever. What counts is a later
 * marker, a higher percentage of the same step, memory that fills up, a port that opens, and a health page that changes.
 */
export interface StartProgress {
  readonly lastAtMs: number;
  /** Index of the latest marker seen; -1 before the first. */
  readonly marker: number;
  /** Highest percentage told since that marker. */
  readonly percent: number;
  /** Highest memory on host and cards. */
  readonly memoryMib: number;
  readonly health: HealthStage;
}

/** In the order of a start. */
export const HEALTH_STAGES = ["none", "refused", "answering", "healthy"] as const;
export type HealthStage = (typeof HEALTH_STAGES)[number];

export const progressAt = (nowMs: number): StartProgress => ({
  lastAtMs: nowMs,
  marker: -1,
  percent: -1,
  memoryMib: 0,
  health: "none",
});

/** Smaller steps are noise. */
const MEMORY_STEP_MIB = 64;

export interface StartSigns {
  readonly newLines: readonly string[];
  readonly memoryMib: number | null;
  readonly health: HealthStage;
}

export function observeStart(before: StartProgress, signs: StartSigns, markers: Markers, nowMs: number): StartProgress {
  let { marker, percent, memoryMib, health } = before;
  let moved = false;
  for (const line of signs.newLines) {
    const found = markers.findLastIndex((pattern) => pattern.test(line));
    if (found > marker) {
      marker = found;
      percent = -1;
      moved = true;
    }
    const told = percentageIn(line);
    if (told !== null && told > percent) {
      percent = told;
      moved = true;
    }
  }
  if (signs.memoryMib !== null && signs.memoryMib >= memoryMib + MEMORY_STEP_MIB) {
    memoryMib = signs.memoryMib;
    moved = true;
  }
  if (HEALTH_STAGES.indexOf(signs.health) > HEALTH_STAGES.indexOf(health)) {
    ({ health } = signs);
    moved = true;
  }
  return moved ? { lastAtMs: nowMs, marker, percent, memoryMib, health } : before;
}

function percentageIn(line: string): number | null {
  const match = /(?:^|[^\d.])(\d{1,3}(?:\.\d{1,3})?)\s?%/.exec(line);
  const value = Number(match?.[1]);
  return match === null || value > 100 ? null : value;
}
