import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { TierRules } from "../../contract/overflow-settings.ts";
import { judgeCard, judgeTier, type TierView } from "./decide-overflow.ts";
import type { SignalReading } from "./judge-signal.ts";

const reading = (state: SignalReading["state"], change: Partial<SignalReading> = {}): SignalReading => ({
  kind: "comfyui_vram",
  state,
  reachable: true,
  value: 42.4,
  threshold: 1,
  reason: "vram 42.4% ≥ 1.0%",
  ofCard: true,
  ...change,
});
const rules: TierRules = {
  id: "t",
  approved: true,
  approval: "tier",
  twoPerson: false,
  budget: { dayMicros: 1, monthMicros: 1 },
  priceMicrosMax: null,
  inFlightMax: 1,
};
const aTier = (change: Partial<TierView> = {}): TierView => ({
  rules,
  keyPresent: true,
  externalAllowed: true,
  breakerClosed: true,
  priceMicros: 1,
  inFlight: 0,
  controlAway: false,
  ...change,
});
const UP = { unreachable: null, brake: null };

test("a free card keeps its work, whatever else is there [50.V3]", () => {
  const view = judgeCard([reading("not_busy"), reading("broken")], UP, "overflow");
  assert.deepEqual(view, { card: "free", why: "", cardBusy: false, wanted: false });
});

test("one busy signal is enough, also a semaphore alone, and its reason is told [50.V1 50.V3]", () => {
  const semaphore = reading("busy", { kind: "semaphore", reason: "busy: the card holds 1 ≥ 1 job" });
  const view = judgeCard([reading("not_busy"), semaphore], UP, "overflow");
  assert.deepEqual(view, { card: "loaded", why: "busy: the card holds 1 ≥ 1 job", cardBusy: true, wanted: true });
});

test("a queue that is long is reason to go elsewhere, and none to keep the card idle [50.V3]", () => {
  const view = judgeCard([reading("busy", { kind: "queue_depth", ofCard: false })], UP, "overflow");
  assert.deepEqual([view.card, view.wanted, view.cardBusy], ["loaded", true, false]);
});

test("an upstream that can't be reached goes elsewhere where that is wanted, and says so where it is not [50.V3]", () => {
  const away = { unreachable: "no endpoint answers", brake: null };
  assert.deepEqual(judgeCard([], away, "overflow").wanted, true);
  assert.deepEqual(judgeCard([], away, "stay"), {
    card: "unreachable",
    why: "no endpoint answers",
    cardBusy: false,
    wanted: false,
  });
});

test("with most of the fleet bad or unknown nothing goes anywhere, and the reason is told [80.A14 50.V3]", () => {
  const brake = "3 of 4 hosts are bad or unknown";
  const away = judgeCard([], { unreachable: "no endpoint answers", brake }, "overflow");
  assert.deepEqual([away.card, away.wanted], ["unreachable", false]);
  assert.match(away.why, /no endpoint answers; nothing goes elsewhere: 3 of 4 hosts/);
  const loaded = judgeCard([reading("busy")], { unreachable: null, brake }, "overflow");
  assert.deepEqual([loaded.card, loaded.wanted, loaded.cardBusy], ["loaded", false, true]);
  assert.equal(judgeCard([reading("not_busy")], { unreachable: null, brake }, "overflow").why, "");
});

test("signals that are all broken send nothing anywhere [50.V2]", () => {
  const view = judgeCard([reading("broken", { reachable: false }), reading("broken")], UP, "overflow");
  assert.equal(view.wanted, false);
});

const lacking: readonly [Partial<TierView>, string][] = [
  [{ rules: { ...rules, approved: false } }, "not_approved"],
  [{ keyPresent: false }, "no_key"],
  [{ externalAllowed: false }, "key_forbids_external"],
  [{ breakerClosed: false }, "breaker_open"],
  [{ priceMicros: null }, "unpriced"],
  [{ rules: { ...rules, priceMicrosMax: 1 }, priceMicros: 2 }, "over_max_price"],
  [{ inFlight: 1 }, "in_flight"],
  [{ controlAway: true }, "control_away"],
];
for (const [change, lack] of lacking)
  test(`a tier that lacks one thing takes nothing, and names it: ${lack} [50.V4 80.O3]`, () => {
    assert.deepEqual(judgeTier(aTier(change)).lacks, [lack]);
  });

test("a tier takes work only if it lacks nothing at all, and names all that it lacks [50.V4]", () => {
  assert.deepEqual(judgeTier(aTier()).lacks, []);
  fc.assert(
    fc.property(fc.subarray(lacking.filter(([, lack]) => lack !== "over_max_price")), (some) => {
      const changes = some.map(([change]) => change);
      const merged = aTier(Object.assign({}, ...changes) as Partial<TierView>);
      const withRules = changes.reduce<TierRules>((sum, { rules: own }) => mix(sum, own), rules);
      const { lacks } = judgeTier({ ...merged, rules: withRules });
      assert.deepEqual(new Set(lacks), new Set(some.map(([, lack]) => lack)));
    }),
  );
});

/** What differs from the plain rules is what the row is about. */
const mix = (sum: TierRules, own: TierRules | undefined): TierRules =>
  own === undefined
    ? sum
    : {
        ...sum,
        approved: sum.approved && own.approved,
        priceMicrosMax: own.priceMicrosMax ?? sum.priceMicrosMax,
      };
