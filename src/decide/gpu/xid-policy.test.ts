import assert from "node:assert/strict";
import { test } from "node:test";
import { classOfXid, type XidClass } from "./xid-policy.ts";

const NONE = new Map<number, XidClass>();
const expected: Readonly<Record<Exclude<XidClass, never>, readonly number[]>> = {
  ignore: [8, 13, 31, 37, 43, 45, 63, 68, 78, 92, 94, 109, 121, 126, 135, 137, 141, 152, 161],
  drain: [46, 62, 74, 110, 120, 136, 140, 143, 155, 156, 158],
  isolate: [48, 54, 64, 79, 95, 119],
  warn: [1, 144, 149, 150, 151, 154, 167, 169, 999],
};
for (const [xidClass, codes] of Object.entries(expected))
  test(`XIDs of class ${xidClass}: ${codes.join(", ")} [30.T4]`, () => {
    for (const code of codes) assert.equal(classOfXid(code, 1, NONE), xidClass, String(code));
  });

test("109, about which NVIDIA's own sources differ, wants a reset only when it repeats [30.T4]", () => {
  assert.deepEqual(
    [1, 2, 3].map((times) => classOfXid(109, times, NONE)),
    ["ignore", "drain", "drain"],
  );
  assert.equal(classOfXid(109, 1, new Map([[109, "drain"]])), "drain");
});
