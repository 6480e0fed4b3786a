import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { FeedMark, GatewayReport } from "../../contract/feed.ts";
import { asMono } from "../../kernel/clock.ts";
import { GATEWAY_RULES, GatewayReports, type GatewayRules } from "./gateway-reports.ts";

const LEAD = { clusterId: "c", epoch: 3, holder: "h" };
const RULES: GatewayRules = { ...GATEWAY_RULES, gatherMs: 35_000 };
const OLD_TERM = 3_600_000;

const report = (part: Partial<GatewayReport> = {}): GatewayReport => ({
  seq: 1,
  upForMs: 60_000,
  have: { ...LEAD, version: 7 },
  demand: {},
  used: {},
  ...part,
});

const none = { inFlight: 0, idleMs: 4_000 };
const DRAINING = new Map([["r1", 7]]);

function idleOf(
  gateways: Readonly<Record<string, GatewayReport | null>>,
  over: { reportedAt?: number; now?: number; termAgeMs?: number; left?: readonly string[] } = {},
): readonly string[] {
  const { reportedAt = 0, now = 1_000, termAgeMs = OLD_TERM, left = [] } = over;
  const reports = new GatewayReports(RULES);
  for (const [id, said] of Object.entries(gateways)) {
    reports.connected(id, null);
    if (said !== null) reports.reported(id, said, asMono(reportedAt));
  }
  for (const id of left) reports.left(id, "broken", asMono(now));
  return [...reports.idle(DRAINING, LEAD, termAgeMs, asMono(now))];
}

const rows: readonly { readonly name: string; readonly idle: readonly string[]; readonly expect: readonly string[] }[] =
  [
    {
      name: "every gateway tells of no call",
      idle: idleOf({ a: report({ used: { r1: none } }), b: report() }),
      expect: ["r1"],
    },
    {
      name: "one has a call",
      idle: idleOf({ a: report({ used: { r1: { inFlight: 1, idleMs: 0 } } }), b: report() }),
      expect: [],
    },
    { name: "one has not reported yet", idle: idleOf({ a: report(), b: null }), expect: [] },
    { name: "one has fallen silent", idle: idleOf({ a: report() }, { now: RULES.freshMs }), expect: [] },
    { name: "one has left without a word", idle: idleOf({ a: report(), b: report() }, { left: ["b"] }), expect: [] },
    {
      name: "one goes by a version before the drain",
      idle: idleOf({ a: report({ have: { ...LEAD, version: 6 } }) }),
      expect: [],
    },
    {
      name: "one goes by another leader's word",
      idle: idleOf({ a: report({ have: { ...LEAD, epoch: 2, version: 9 } }) }),
      expect: [],
    },
    { name: "one has nothing yet", idle: idleOf({ a: report({ have: null }) }), expect: [] },
    {
      name: "the term has just begun",
      idle: idleOf({ a: report() }, { termAgeMs: RULES.gatherMs - 1 }),
      expect: [],
    },
    { name: "there is no gateway", idle: idleOf({}), expect: [] },
  ];
for (const { name, idle, expect } of rows)
  test(`a draining replica where ${name} is ${expect.length > 0 ? "" : "not "}idle [80.C16 40.C2]`, () =>
    assert.deepEqual(idle, expect));

const useOf = (
  gateways: Readonly<Record<string, GatewayReport | null>>,
  over: { now?: number; termAgeMs?: number; left?: readonly string[] } = {},
): { readonly inFlight: number; readonly idleMs: number | null } | undefined => {
  const { now = 1_000, termAgeMs = OLD_TERM, left = [] } = over;
  const reports = new GatewayReports(RULES);
  for (const [id, said] of Object.entries(gateways)) {
    reports.connected(id, null);
    if (said !== null) reports.reported(id, said, asMono(0));
  }
  for (const id of left) reports.left(id, "broken", asMono(now));
  return reports.use(LEAD, termAgeMs, asMono(now)).get("r1");
};
const using = (inFlight: number, idleMs: number | null, part: Partial<GatewayReport> = {}): GatewayReport =>
  report({ used: { r1: { inFlight, idleMs } }, ...part });
const uses: readonly (readonly [name: string, found: ReturnType<typeof useOf>, expect: ReturnType<typeof useOf>])[] = [
  [
    "the shortest of what gateways say",
    useOf({ a: using(0, 9_000), b: using(0, 4_000) }),
    { inFlight: 0, idleMs: 4_000 },
  ],
  ["none while one has calls", useOf({ a: using(0, 9_000), b: using(2, 4_000) }), { inFlight: 2, idleMs: 0 }],
  [
    "as long as a gateway is up that never asked",
    useOf({ a: using(0, 9e6), b: using(0, null) }),
    { inFlight: 0, idleMs: 60_000 },
  ],
  ["unknown where one does not name it", useOf({ a: using(0, 9_000), b: report() }), undefined],
  ["unknown where one has not reported", useOf({ a: using(0, 9_000), b: null }), undefined],
  ["unknown where one has fallen silent", useOf({ a: using(0, 9_000) }, { now: RULES.freshMs }), undefined],
  ["unknown where one left without a word", useOf({ a: using(0, 9_000), b: report() }, { left: ["b"] }), undefined],
  ["unknown where one goes by another word", useOf({ a: using(0, 9_000, { have: null }) }), undefined],
  ["unknown when the term has just begun", useOf({ a: using(0, 9_000) }, { termAgeMs: RULES.gatherMs - 1 }), undefined],
  ["unknown without a gateway", useOf({}), undefined],
];
test("one that left without a word keeps the use of replicas unknown for its time, and not for ever [40.P6]", () => {
  const reports = new GatewayReports(RULES);
  for (const id of ["a", "b"]) reports.connected(id, null);
  reports.left("b", "broken", asMono(0));
  const known = (ms: number): boolean => {
    reports.reported("a", using(0, 9_000), asMono(ms));
    return reports.use(LEAD, OLD_TERM, asMono(ms)).has("r1");
  };
  assert.deepEqual([known(RULES.rememberMs - 1), known(RULES.rememberMs)], [false, true]);
});
for (const [name, found, expect] of uses)
  test(`for how long a replica has been idle: ${name} [40.P6]`, () => assert.deepEqual(found, expect));

test("a gateway that said goodbye is no longer asked, one that broke off only after its time", () => {
  const reports = new GatewayReports(RULES);
  for (const id of ["a", "b", "c"]) reports.connected(id, null);
  const at = (ms: number): boolean => {
    reports.reported("a", report(), asMono(ms));
    return reports.idle(DRAINING, LEAD, OLD_TERM, asMono(ms)).has("r1");
  };
  reports.left("b", "goodbye", asMono(0));
  reports.left("c", "broken", asMono(0));
  assert.equal(at(RULES.rememberMs - 1), false);
  assert.equal(at(RULES.rememberMs), true);
});

test("a gateway that was killed and started again is asked in the place of its earlier run; another machine's with its credential, or an older run that is still there, is not [40.C2]", () => {
  const idleAfter = (first: string, second: string, left: boolean): boolean => {
    const reports = new GatewayReports(RULES);
    reports.connected("run-1", first);
    if (left) reports.left("run-1", "broken", asMono(0));
    reports.connected("run-2", second);
    reports.reported("run-2", report(), asMono(1));
    return reports.idle(DRAINING, LEAD, OLD_TERM, asMono(2)).has("r1");
  };
  assert.equal(idleAfter("gw/host-a", "gw/host-a", true), true);
  assert.equal(idleAfter("gw/host-a", "gw/host-b", true), false);
  assert.equal(idleAfter("gw/host-a", "gw/host-a", false), false);
});

test("a model is asked for while a gateway that reports has requests waiting for it", () => {
  const reports = new GatewayReports(RULES);
  reports.connected("a", null);
  reports.reported(
    "a",
    report({ demand: { m: { waiting: 2, oldestWaitMs: 10 }, o: { waiting: 0, oldestWaitMs: 0 } } }),
    asMono(0),
  );
  assert.deepEqual([...reports.demanded(asMono(1))], ["m"]);
  assert.deepEqual([...reports.demanded(asMono(RULES.freshMs))], []);
  reports.reported("unheard-of", report({ demand: { p: { waiting: 1, oldestWaitMs: 1 } } }), asMono(2));
  assert.deepEqual([...reports.demanded(asMono(2))], ["m"]);
});

test("whatever gateways do: a replica is idle only if each of them that may have calls said at the right version that it has none", () => {
  const mark = fc.option(fc.record({ epoch: fc.constantFrom(2, 3), version: fc.integer({ min: 5, max: 9 }) }));
  const step = fc.record({
    id: fc.constantFrom("a", "b", "c"),
    what: fc.constantFrom("connect", "report", "goodbye", "break"),
    have: mark,
    inFlight: fc.constantFrom(0, 0, 1, undefined),
    ms: fc.nat(3_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const reports = new GatewayReports(RULES);
      const truth = new Map<string, { clean: boolean; at: number; here: boolean; leftAt: number }>();
      let now = 0;
      for (const { id, what, have, inFlight, ms } of steps) {
        now += ms;
        if (what === "connect") {
          reports.connected(id, null);
          truth.set(id, { ...(truth.get(id) ?? { clean: false, at: 0, leftAt: 0 }), here: true });
        } else if (what === "goodbye") {
          reports.left(id, "goodbye", asMono(now));
          truth.delete(id);
        } else if (what === "break") {
          reports.left(id, "broken", asMono(now));
          const known = truth.get(id);
          if (known !== undefined) truth.set(id, { ...known, here: false, leftAt: now });
        } else if (truth.get(id)?.here === true) {
          const full: FeedMark | null = have === null ? null : { ...LEAD, ...have };
          reports.reported(
            id,
            report({ have: full, used: inFlight === undefined ? {} : { r1: { inFlight, idleMs: 1 } } }),
            asMono(now),
          );
          const clean = full !== null && full.epoch === 3 && full.version >= 7 && (inFlight ?? 0) === 0;
          truth.set(id, { clean, at: now, here: true, leftAt: 0 });
        }
        const all = [...truth.values()];
        const may =
          all.length > 0 && all.every((gateway) => gateway.here && gateway.clean && now - gateway.at < RULES.freshMs);
        assert.equal(reports.idle(DRAINING, LEAD, OLD_TERM, asMono(now)).has("r1"), may);
      }
    }),
  );
});
