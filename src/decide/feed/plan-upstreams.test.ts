import assert from "node:assert/strict";
import { test } from "node:test";
import { upstreamConfig } from "../../contract/config-schema.ts";
import type { FeedEndpoint, FeedModel } from "../../contract/feed.ts";
import type { UpstreamSettings } from "../../contract/gateway-config.ts";
import { resolveUpstream } from "../../contract/resolve-config.ts";
import { aFeedEndpoint, aFeedModel, aMark } from "../../testing/fake-feed.ts";
import { judgeStart, startNews } from "./judge-start.ts";
import { planUpstreams } from "./plan-upstreams.ts";
import { takeWhole, type FeedState } from "./take-feed.ts";

const upstream = (file: Record<string, unknown>): UpstreamSettings => resolveUpstream(upstreamConfig.parse(file), {});

function told(models: FeedModel[], endpoints: FeedEndpoint[] = [], before: FeedState | null = null): FeedState {
  const mark = aMark({ version: (before?.mark.version ?? 0) + 1 });
  const outcome = takeWhole({ state: before, confirmed: true }, { mark, models, endpoints });
  assert.ok(outcome.kind === "taken");
  return outcome.state;
}

const URL_1 = "http://127.0.0.1:18001";
const URL_2 = "http://127.0.0.1:18002";

test("without a word of a control plane the upstreams are those of the file, untouched [40.C3]", () => {
  const file = [upstream({ id: "u", models: ["m"], slots: 2, endpoints: [{ url: URL_1 }] })];
  assert.equal(planUpstreams(file, null, null).upstreams, file);
});

test("a model of the catalog is an upstream by itself: its names, its engine, and the slots of its replicas, draining ones too [40.C3 10.R6]", () => {
  const endpoints = [
    aFeedEndpoint("r1", URL_1),
    aFeedEndpoint("r2", URL_2, { draining: true, slots: 8, engine: "llama.cpp" }),
  ];
  const { upstreams } = planUpstreams([], told([aFeedModel("m", { aliases: ["m-alias"] })], endpoints), null);
  const [found] = upstreams;
  assert.deepEqual(
    [found?.id, found?.models, found?.engine, found?.limits.slots, found?.limits.batchMax],
    ["m", ["m", "m-alias"], "vllm", 12, 9],
  );
  assert.deepEqual(
    found?.endpoints.map(({ id, replica, draining, engine }) => [id, replica?.id, draining, engine]),
    [
      ["127.0.0.1:18001", "r1", false, "vllm"],
      ["127.0.0.1:18002", "r2", true, "llama.cpp"],
    ],
  );
  assert.equal(found?.endpoints[0]?.engineKey?.reveal(), endpoints[0]?.engineKey);
});

test("a model with a slash in its name, and one without replicas, are upstreams too", () => {
  const { upstreams } = planUpstreams([], told([aFeedModel("org/model:7b")]), null);
  assert.deepEqual(
    upstreams.map(({ id, limits }) => [id, limits.slots, limits.batchMax]),
    [["org/model:7b", 0, 0]],
  );
});

test("an upstream of the file that names a model takes its replicas beside its own endpoints, with the file's limits and names [40.C3]", () => {
  const mine = upstream({
    id: "mine",
    model: "m",
    models: ["gpt"],
    slots: 3,
    cold_start_s: 7,
    endpoints: [{ url: URL_2, slots: 1 }],
  });
  const plan = planUpstreams([mine], told([aFeedModel("m", { aliases: ["x"] })], [aFeedEndpoint("r1", URL_1)]), null);
  assert.equal(plan.upstreams.length, 1);
  const [found] = plan.upstreams;
  assert.deepEqual([found?.models, found?.limits.slots, found?.limits.batchMax], [["gpt", "m", "x"], 3, 2]);
  assert.deepEqual([found?.engine, found?.catalog?.coldStartMs], ["vllm", 7_000]);
  assert.deepEqual(
    found?.endpoints.map(({ url, replica }) => [url, replica?.id]),
    [
      [URL_2, undefined],
      [URL_1, "r1"],
    ],
  );
});

test("an upstream whose model the catalog does not have says so, and refuses", () => {
  const plan = planUpstreams([upstream({ id: "mine", model: "gone" })], told([]), null);
  assert.match(plan.warnings.join(), /mine.*gone/);
  const verdict = judgeStart(plan.upstreams[0]?.catalog ?? null, 0);
  assert.ok(verdict.kind === "refused" && verdict.why.includes("gone"));
});

test("an id or a name of the file is the file's: the catalog's goes without and a warning says so [40.C3]", () => {
  const file = [upstream({ id: "a", models: ["b"], slots: 1, endpoints: [{ url: URL_1 }] })];
  const plan = planUpstreams(file, told([aFeedModel("a"), aFeedModel("c", { aliases: ["b", "d"] })]), null);
  assert.deepEqual(
    plan.upstreams.map(({ id, models }) => [id, models]),
    [
      ["a", ["b"]],
      ["c", ["c", "d"]],
    ],
  );
  assert.equal(plan.upstreams[0], file[0]);
  assert.equal(plan.warnings.length, 2);
});

test("what did not change is the same upstream, object for object [10.R6]", () => {
  const first = told([aFeedModel("m"), aFeedModel("n")], [aFeedEndpoint("r1", URL_1)]);
  const plan = planUpstreams([], first, null);
  const second = told([aFeedModel("m", { failedStarts: 1 }), aFeedModel("n")], [aFeedEndpoint("r1", URL_1)], first);
  const next = planUpstreams([], second, plan);
  assert.notEqual(next.upstreams[0], plan.upstreams[0]);
  assert.equal(next.upstreams[1], plan.upstreams[1]);
});

const CATALOG = { model: "m", slots: null, batchMax: null, coldStartMs: 1_000 };
const starts: {
  readonly name: string;
  readonly model: Partial<FeedModel> | null;
  readonly serving: number;
  readonly verdict: string;
}[] = [
  { name: "what runs serves", model: {}, serving: 1, verdict: "serves" },
  { name: "what is stopped may be waited for", model: { settled: "stopped" }, serving: 0, verdict: "waits" },
  { name: "what is starting may be waited for", model: { settled: "starting" }, serving: 0, verdict: "waits" },
  { name: "what is parked is refused", model: { settled: "parked", startable: false }, serving: 0, verdict: "refused" },
  { name: "what has no room is refused", model: { settled: "unplaced" }, serving: 0, verdict: "refused" },
  {
    name: "what may not be started is refused",
    model: { startable: false, settled: "stopped" },
    serving: 0,
    verdict: "refused",
  },
  { name: "what nobody has told of is refused", model: null, serving: 0, verdict: "refused" },
];
for (const { name, model, serving, verdict } of starts)
  test(`${name} [10.L1]`, () => {
    const standing = model === null ? null : aFeedModel("m", model);
    assert.equal(judgeStart({ ...CATALOG, standing }, serving).kind, verdict);
  });

test("those who wait are told of a failed start once, of the end of all hope, and of nothing else [10.L1]", () => {
  const starting = aFeedModel("m", { settled: "starting" });
  const failed = { ...starting, failedStarts: 1, why: "killed by SIGKILL" };
  const waits = { kind: "waits" } as const;
  assert.match(startNews(starting, failed, waits) ?? "", /SIGKILL/);
  assert.equal(startNews(failed, failed, waits), null);
  assert.equal(startNews(failed, starting, waits), null);
  assert.equal(startNews(starting, failed, { kind: "serves" }), null);
  assert.equal(startNews(failed, failed, { kind: "refused", why: "parked" }), "parked");
});
