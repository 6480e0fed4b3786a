import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type DiskNeed, judgeDiskRoom } from "./disk-room.ts";
import { FetchMeter } from "./fetch-meter.ts";

const MB = 1_000_000;
const disk = { bytes: 1_000 * MB, freeBytes: 600 * MB, freeFiles: 10 };

test("two downloads that fit alone and not together are not both begun, and the reserve stays free [80.A15]", () => {
  const big: DiskNeed = { bytes: 400 * MB, files: 1 };
  assert.deepEqual(judgeDiskRoom(disk, big, [], 0.1), { kind: "enough" });
  assert.deepEqual(judgeDiskRoom(disk, big, [big], 0.1), {
    kind: "short",
    why: "no space: 400.0 MB are needed, 100.0 MB can be used, after 400.0 MB that other downloads will take",
  });
  assert.equal(judgeDiskRoom(disk, { bytes: 501 * MB, files: 1 }, [], 0.1).kind, "short");
  assert.equal(judgeDiskRoom(disk, { bytes: 500 * MB, files: 1 }, [], 0.1).kind, "enough");
});

test("a disk that takes no more files is full, whatever room it has [80.A15]", () => {
  assert.equal(judgeDiskRoom(disk, { bytes: 1, files: 11 }, [], 0).kind, "short");
  assert.equal(judgeDiskRoom(disk, { bytes: 1, files: 6 }, [{ bytes: 0, files: 5 }], 0).kind, "short");
  assert.equal(judgeDiskRoom({ ...disk, freeFiles: null }, { bytes: 1, files: 11 }, [], 0).kind, "enough");
});

test("what was promised never exceeds what is free above the reserve [80.A15]", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(400)), fc.double({ min: 0, max: 0.9, noNaN: true }), (sizes, reserve) => {
      const promised: DiskNeed[] = [];
      for (const size of sizes) {
        const need = { bytes: size * MB, files: 0 };
        if (judgeDiskRoom(disk, need, promised, reserve).kind === "enough") promised.push(need);
      }
      const sum = promised.reduce((all, { bytes }) => all + bytes, 0);
      assert.ok(sum === 0 || sum <= disk.freeBytes - disk.bytes * reserve);
    }),
  );
});

test("the pace is that of the last seconds, and is not known before two looks", () => {
  const meter = new FetchMeter();
  meter.note(0, 0);
  assert.deepEqual(meter.pace(0, 100, 0), { bytesPerS: null, leftS: null });
  for (let second = 1; second <= 60; second += 1)
    meter.note(second < 30 ? second : 30 + (second - 30) * 5, second * 1_000);
  assert.deepEqual(meter.pace(180, 380, 60_000), { bytesPerS: 5, leftS: 40 });
  meter.note(10, 61_000);
  assert.deepEqual(meter.pace(10, null, 62_000), { bytesPerS: 0, leftS: null });
});
