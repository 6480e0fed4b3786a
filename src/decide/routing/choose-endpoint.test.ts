import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { seededRandom } from "../../kernel/random.ts";
import { anEndpointView } from "../../testing/an-endpoint-view.ts";
import {
  chooseEndpoint,
  LOAD_STALE_MS,
  type ChoiceView,
  type EndpointChoice,
  type EndpointView,
  type ExclusionReason,
  type LoadView,
  type RoutingPolicy,
} from "./choose-endpoint.ts";

const aLoad = (part: Partial<LoadView> = {}): LoadView => ({ running: 0, waiting: 0, kvUse: 0, ageMs: 0, ...part });
const POLICIES: readonly RoutingPolicy[] = ["least_loaded", "round_robin", "random_two"];

function choose(endpoints: readonly EndpointView[], part: Partial<ChoiceView> = {}): EndpointChoice {
  return chooseEndpoint({
    endpoints,
    policy: "least_loaded",
    exclude: new Set(),
    cursor: 0,
    random: seededRandom(1),
    ...part,
  });
}
const chosen = (endpoints: readonly EndpointView[], part: Partial<ChoiceView> = {}): string | undefined => {
  const choice = choose(endpoints, part);
  return choice.kind === "chosen" ? choice.id : undefined;
};

const excluded: readonly [string, Partial<EndpointView>, ExclusionReason][] = [
  ["drains", { draining: true }, "draining"],
  ["fails its guard", { guard: "fail" }, "guard"],
  ["is stalled", { stalled: true }, "stalled"],
  ["has an open breaker", { breaker: "open" }, "breakerOpen"],
  ["is half-open with a probe under way", { breaker: "halfOpen", probeFree: false }, "probing"],
  ["is unhealthy", { health: "unhealthy" }, "unhealthy"],
  ["still loads its model", { health: "loading" }, "loading"],
  ["does not serve the model", { serves: false }, "modelNotServed"],
  ["has no free slot", { inFlight: 8 }, "noSlot"],
  ["works for others in its last slots", { inFlight: 5, external: 3 }, "noSlot"],
];
for (const [name, part, why] of excluded) {
  test(`an endpoint that ${name} gets nothing, and the reason is told [10.R1]`, () => {
    for (const policy of POLICIES) {
      assert.deepEqual(choose([anEndpointView("a", part)], { policy }), { kind: "none", why: [{ id: "a", why }] });
      assert.equal(chosen([anEndpointView("a", part), anEndpointView("b", { inFlight: 7 })], { policy }), "b");
    }
  });
}

test("a half-open endpoint whose probe is free, and one of unknown health, may be used [10.R1]", () => {
  assert.equal(chosen([anEndpointView("a", { breaker: "halfOpen" })]), "a");
  assert.equal(chosen([anEndpointView("a", { health: "unknown" })]), "a");
  assert.deepEqual(choose([]), { kind: "none", why: [] });
});

test("an endpoint that the request has tried is not tried again [10.R4]", () => {
  assert.equal(chosen([anEndpointView("a"), anEndpointView("b", { inFlight: 7 })], { exclude: new Set(["a"]) }), "b");
  assert.deepEqual(choose([anEndpointView("a")], { exclude: new Set(["a"]) }), {
    kind: "none",
    why: [{ id: "a", why: "tried" }],
  });
});

test("least_loaded takes the smallest part of slots in use, not the smallest count [10.R2]", () => {
  assert.equal(
    chosen([anEndpointView("a", { slots: 4, inFlight: 2 }), anEndpointView("b", { slots: 16, inFlight: 4 })]),
    "b",
  );
});

test("the engine's queue, its work for others and a full cache speak against an endpoint [10.R2]", () => {
  for (const part of [{ waiting: 4 }, { running: 5 }, { kvUse: 0.9 }]) {
    assert.equal(
      chosen([
        anEndpointView("a", { load: aLoad(part) }),
        anEndpointView("b", { inFlight: 1, load: aLoad({ running: 1 }) }),
      ]),
      "b",
      JSON.stringify(part),
    );
  }
});

test("a report weighs less as it ages and nothing when stale [10.R2]", () => {
  const pair = (ageMs: number): EndpointView[] => [
    anEndpointView("a", { load: aLoad({ waiting: 6, ageMs }) }),
    anEndpointView("b", { inFlight: 2, load: aLoad({ running: 2 }) }),
  ];
  assert.equal(chosen(pair(0)), "b");
  assert.equal(chosen(pair(LOAD_STALE_MS)), "a");
  assert.equal(chosen(pair(LOAD_STALE_MS * 50)), "a");
  const weights = [0, 2_500, 5_000, 10_000, 20_000].map((ageMs) => {
    const choice = choose([anEndpointView("a", { load: aLoad({ ageMs }) })], { explain: true });
    return choice.kind === "chosen" ? choice.scores?.[0]?.weight : undefined;
  });
  assert.deepEqual(weights, [1, 0.75, 0.5, 0, 0]);
});

test("a missing signal is unknown and never 0: the endpoint without it gains nothing by it [10.R2]", () => {
  const silent = aLoad({ running: undefined, waiting: undefined, kvUse: undefined });
  const loaded = aLoad({ running: 2, waiting: 1, kvUse: 0.5 });
  for (const load of [null, silent]) {
    const shares = [0, 1].map((cursor) =>
      chosen([anEndpointView("a", { load }), anEndpointView("b", { load: loaded })], { cursor }),
    );
    assert.deepEqual(shares, ["a", "b"]);
    assert.equal(chosen([anEndpointView("a", { load, inFlight: 1 }), anEndpointView("b", { load: loaded })]), "b");
  }
});

test("equal endpoints share: the first choice moves on with each request [10.R2]", () => {
  const endpoints = ["a", "b", "c"].map((id) => anEndpointView(id));
  for (const policy of ["least_loaded", "round_robin"] as const) {
    assert.deepEqual(
      [0, 1, 2, 3].map((cursor) => chosen(endpoints, { policy, cursor })),
      ["a", "b", "c", "a"],
    );
  }
});

test("random_two takes the better of two and reaches every endpoint [10.R2]", () => {
  const random = seededRandom(3);
  const endpoints = [anEndpointView("a"), anEndpointView("b"), anEndpointView("c", { inFlight: 7 })];
  const counts = new Map<string | undefined, number>();
  for (let i = 0; i < 300; i++) {
    const id = chosen(endpoints, { policy: "random_two", random });
    counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  assert.equal(counts.get("c"), undefined);
  assert.ok(counts.get("a")! > 100 && counts.get("b")! > 100);
  assert.equal(chosen([anEndpointView("x")], { policy: "random_two" }), "x");
});

test("the choice can be explained as plain data, the chosen one having the lowest total [10.R2]", () => {
  const choice = choose(
    [
      anEndpointView("a", { inFlight: 4, load: aLoad({ running: 6, waiting: 2, kvUse: 0.5 }) }),
      anEndpointView("b"),
      anEndpointView("c", { stalled: true }),
    ],
    { explain: true },
  );
  assert.ok(choice.kind === "chosen" && choice.id === "b");
  assert.deepEqual(choice.scores?.[0], {
    id: "a",
    own: 0.5,
    others: 0.5,
    waiting: 0.25,
    kvUse: 0.5,
    weight: 1,
    total: 1.5,
  });
  assert.deepEqual(choice.scores?.[1], {
    id: "b",
    own: 0,
    others: null,
    waiting: null,
    kvUse: null,
    weight: 0,
    total: 1,
  });
  assert.deepEqual(choice.excluded, [{ id: "c", why: "stalled" }]);
  assert.deepEqual(JSON.parse(JSON.stringify(choice)), choice);
});

const anyEndpoint = fc.record({
  slots: fc.integer({ min: 1, max: 4 }),
  inFlight: fc.nat(4),
  external: fc.nat(1),
  draining: fc.boolean(),
  breaker: fc.constantFrom("closed" as const, "closed" as const, "halfOpen" as const, "open" as const),
  probeFree: fc.boolean(),
  stalled: fc.constantFrom(false, false, true),
  load: fc.option(
    fc.record({
      running: fc.option(fc.nat(9), { nil: undefined }),
      waiting: fc.option(fc.nat(9), { nil: undefined }),
      kvUse: fc.option(fc.double({ min: 0, max: 1, noNaN: true }), { nil: undefined }),
      ageMs: fc.nat(20_000),
    }),
  ),
});

test("what is chosen is eligible, something is chosen when anything is, and the same view gives the same choice [10.R1]", () => {
  fc.assert(
    fc.property(
      fc.array(anyEndpoint, { maxLength: 6 }),
      fc.nat(100),
      fc.constantFrom(...POLICIES),
      fc.array(fc.nat(5)),
      (parts, cursor, policy, tried) => {
        const endpoints = parts.map((part, index) => anEndpointView(String(index), part));
        const view = { policy, cursor, exclude: new Set(tried.map(String)) };
        const eligible = endpoints.filter(
          (each) =>
            !view.exclude.has(each.id) &&
            !each.draining &&
            !each.stalled &&
            each.breaker !== "open" &&
            (each.breaker === "closed" || each.probeFree) &&
            each.inFlight + each.external < each.slots,
        );
        const choice = choose(endpoints, view);
        assert.deepEqual(choose(endpoints, view), choice);
        if (choice.kind === "none") {
          assert.equal(eligible.length, 0);
          assert.equal(choice.why.length, endpoints.length);
        } else {
          assert.ok(eligible.some(({ id }) => id === choice.id));
        }
      },
    ),
    { numRuns: 500 },
  );
});
