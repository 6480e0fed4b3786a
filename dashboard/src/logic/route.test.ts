import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { placeHref, readOnce, readPlace, VIEWS } from "./route.ts";

const rows = [
  { hash: "", place: { view: "fleet", item: null } },
  { hash: "#/jobs", place: { view: "jobs", item: null } },
  { hash: "#/jobs/job_1", place: { view: "jobs", item: "job_1" } },
  { hash: "#/nowhere/x", place: { view: "fleet", item: null } },
  { hash: "#/models/%E0%A4%A", place: { view: "models", item: null } },
  { hash: "#once=abcdefghijklmnop1234", place: { view: "fleet", item: null } },
] as const;
for (const { hash, place } of rows)
  test(`${hash === "" ? "no address" : hash} leads to ${place.view}${place.item === null ? "" : ` and ${place.item}`}`, () =>
    assert.deepEqual(readPlace(hash), place));

test("every name has an address of its own that leads back to it", () => {
  fc.assert(
    fc.property(fc.constantFrom(...VIEWS), fc.string({ minLength: 1 }), (view, item) => {
      assert.deepEqual(readPlace(placeHref(view, item)), { view, item });
    }),
  );
});

test("only the whole form of a one-time link is taken for one", () => {
  assert.equal(readOnce("#once=abcdefghijklmnop1234"), "abcdefghijklmnop1234");
  for (const hash of ["#once=short", "#/fleet", "#once=abcdefghijklmnop1234&x", "#once=<script>aaaaaaaaaaaa"])
    assert.equal(readOnce(hash), null);
});
