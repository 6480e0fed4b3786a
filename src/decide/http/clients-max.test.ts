import assert from "node:assert/strict";
import { test } from "node:test";
import { clientsMax } from "./clients-max.ts";

const rows = [
  { configured: 16_000, filesMax: 1_048_576, max: 16_000 },
  { configured: 16_000, filesMax: 20_000, max: 16_000 },
  { configured: 16_000, filesMax: 4_096, max: 3_584 },
  { configured: 16_000, filesMax: 256, max: 128 },
  { configured: 5, filesMax: 256, max: 5 },
  { configured: 16_000, filesMax: undefined, max: 16_000 },
];
for (const { configured, filesMax, max } of rows)
  test(`of ${filesMax ?? "an unknown number of"} files ${max} of ${configured} clients get one [80.C48]`, () =>
    assert.equal(clientsMax(configured, filesMax), max));
