import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Endpoint } from "./endpoint.ts";
import { groupOf, readGroup } from "./model-groups.ts";

const anEndpoint = (id: string, models: readonly string[] | null): Endpoint =>
  ({ id, models: models === null ? null : new Set(models) }) as unknown as Endpoint;

test("what a group says is read back, whatever models and endpoints are called [10.R1 10.A8]", () => {
  const name = fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("", "m", "t", "t[]", "m\u0000t", "a\u0000b"));
  fc.assert(
    fc.property(
      name,
      fc.uniqueArray(name, { minLength: 2, maxLength: 4 }),
      fc.boolean(),
      fc.nat(4),
      (model, ids, isLacking, count) => {
        const endpoints = ids.map((id, index) => anEndpoint(id, index === 0 ? [model] : isLacking ? [] : null));
        const tried = new Set([...ids.slice(0, count), "one that left"]);
        const read = readGroup(groupOf(endpoints, { model, tried }));
        assert.deepEqual(
          [read.model, [...read.tried].toSorted()],
          [isLacking ? model : null, ids.slice(0, count).toSorted()],
        );
      },
    ),
  );
});
