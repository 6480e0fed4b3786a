import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { asMono } from "../../kernel/clock.ts";
import { Breaker } from "./breaker.ts";
import { effectiveState, ejectedEndpoints, type OutlierView } from "./outlier.ts";

const NOW = asMono(50_000);
type Kind = "well" | "failing" | "halfFailing" | "dead" | "stalled";

function anEndpoint(id: string, kind: Kind): OutlierView {
  const breaker = new Breaker(NOW);
  if (kind === "failing") for (let i = 0; i < 10; i++) breaker.onResult("failed", NOW);
  if (kind === "halfFailing") for (let i = 0; i < 10; i++) breaker.onResult(i < 5 ? "ok" : "failed", NOW);
  if (kind === "dead") for (let i = 0; i < 3; i++) breaker.onResult("connectFailed", NOW);
  return { id, breaker, stalled: kind === "stalled" };
}
const pool = (...kinds: Kind[]): OutlierView[] => kinds.map((kind, index) => anEndpoint(`e${index}`, kind));
const ejected = (...kinds: Kind[]): string[] => [...ejectedEndpoints(pool(...kinds), NOW)].toSorted();

const rows: { readonly name: string; readonly kinds: Kind[]; readonly expect: string[] }[] = [
  { name: "of one endpoint none is ejected", kinds: ["failing"], expect: [] },
  { name: "of two endpoints one is ejected", kinds: ["failing", "failing"], expect: ["e0"] },
  { name: "of three endpoints one is ejected", kinds: ["failing", "failing", "failing"], expect: ["e0"] },
  { name: "the worse of two is ejected", kinds: ["halfFailing", "failing"], expect: ["e1"] },
  { name: "an endpoint that is well stays", kinds: ["well", "failing"], expect: ["e1"] },
  { name: "beside a dead endpoint the other of two stays", kinds: ["dead", "failing"], expect: [] },
  { name: "a stalled endpoint uses up the allowance too", kinds: ["stalled", "failing", "well"], expect: [] },
  { name: "of four with one dead, one is ejected", kinds: ["dead", "failing", "failing", "well"], expect: ["e1"] },
];
for (const row of rows) test(`${row.name} [10.R5 80.C23]`, () => assert.deepEqual(ejected(...row.kinds), row.expect));

test("a breaker that opened for errors counts only while its endpoint is ejected, a dead endpoint's always", () => {
  const [failing, dead] = pool("failing", "dead");
  assert.equal(effectiveState(failing!.breaker, false, NOW), "closed");
  assert.equal(effectiveState(failing!.breaker, true, NOW), "open");
  assert.equal(effectiveState(dead!.breaker, false, NOW), "open");
});

test("ejection for errors never takes more than half, nor the last endpoint that answers [10.R5]", () => {
  const kind = fc.constantFrom<Kind>("well", "failing", "halfFailing", "dead", "stalled");
  fc.assert(
    fc.property(fc.array(kind, { minLength: 1, maxLength: 9 }), (kinds) => {
      const out = ejected(...kinds);
      const certain = kinds.filter((each) => each === "dead" || each === "stalled").length;
      assert.ok(out.length <= kinds.length / 2);
      assert.ok(certain === kinds.length || certain + out.length < kinds.length);
      assert.ok(out.every((id) => ["failing", "halfFailing"].includes(kinds[Number(id.slice(1))]!)));
    }),
    { numRuns: 300 },
  );
});
