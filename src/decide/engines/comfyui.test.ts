import assert from "node:assert/strict";
import { test } from "node:test";
import { comfyUi } from "./comfyui.ts";

test("ComfyUI's line is one that runs and others that wait, of everybody; a page that says nothing is no zero [20.F3]", () => {
  const load = (remaining: unknown) => {
    const read = comfyUi.readLoadPage?.(JSON.stringify({ exec_info: { queue_remaining: remaining } }));
    return read === undefined ? undefined : [read.running, read.waiting];
  };
  assert.deepEqual(
    [load(0), load(1), load(4)],
    [
      [0, 0],
      [1, 0],
      [1, 3],
    ],
  );
  for (const remaining of [-1, 1.5, "3", null, undefined]) assert.equal(load(remaining), undefined);
  assert.equal(comfyUi.readLoadPage?.("<html>"), undefined);
  assert.equal(comfyUi.busyProbe?.read('{"exec_info":{"queue_remaining":2}}'), 2);
});

test("its card's memory is told by the first device's figures, and figures that can't be are none [20.F3]", () => {
  const use = (...devices: unknown[]) => comfyUi.readMemoryUse?.(JSON.stringify({ system: {}, devices }));
  assert.equal(use({ vram_total: 100, vram_free: 25 }, { vram_total: 1, vram_free: 1 }), 0.75);
  for (const device of [
    {},
    { vram_total: 0, vram_free: 0 },
    { vram_total: 10, vram_free: 11 },
    { vram_total: 10, vram_free: -1 },
    { vram_total: "10", vram_free: 1 },
    null,
  ])
    assert.equal(use(device), undefined, JSON.stringify(device));
  assert.equal(use(), undefined);
});
