import assert from "node:assert/strict";
import { test } from "node:test";
import { VLLM_MARKERS } from "./launch/vllm.ts";
import { observeStart, progressAt, type StartSigns } from "./start-progress.ts";

const signs = (over: Partial<StartSigns>): StartSigns => ({ newLines: [], memoryMib: null, health: "none", ...over });

/** Each step's signs, one second apart; tells which of them were progress. */
function moves(steps: readonly Partial<StartSigns>[]): boolean[] {
  let progress = progressAt(0);
  return steps.map((step, at) => {
    const before = progress.lastAtMs;
    progress = observeStart(progress, signs(step), VLLM_MARKERS, (at + 1) * 1_000);
    return progress.lastAtMs > before;
  });
}
const lines = (...newLines: string[]): Partial<StartSigns> => ({ newLines });

test("later markers, higher percentages, filling memory and a health page that changes are progress [40.N6]", () => {
  assert.deepEqual(
    moves([
      lines("INFO Starting to load model"),
      lines("Loading safetensors checkpoint shards: 10% Completed"),
      lines("Loading safetensors checkpoint shards: 35% Completed"),
      { memoryMib: 900 },
      { memoryMib: 2_000 },
      lines("Model loading took 3.2 GiB memory and 11 seconds"),
      lines("capturing 5%"),
      { health: "refused" },
      { health: "answering" },
      { health: "healthy" },
    ]),
    Array.from({ length: 10 }, () => true),
  );
});

test("the same line, an earlier marker, memory that stands still and a page that falls back are none [40.N6]", () => {
  assert.deepEqual(
    moves([
      { ...lines("Model loading took 3 GiB"), memoryMib: 1_000, health: "answering" },
      lines("Model loading took 3 GiB"),
      lines("Starting to load model"),
      lines("retrying …", "still alive", "120% sure"),
      { memoryMib: 1_050 },
      { memoryMib: 200, health: "refused" },
    ]),
    [true, false, false, false, false, false],
  );
});
