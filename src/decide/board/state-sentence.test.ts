import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type StateView, stateSentence } from "./state-sentence.ts";

const well: StateView = {
  led: true,
  storeSilentS: null,
  restored: false,
  catalogHeld: null,
  catalogRefused: null,
  nodes: [aNode("gpu-01"), aNode("gpu-02")],
  sickGpus: [],
  models: [aModel("qwen", "ready", 2, 2)],
  starting: 0,
  upstreams: [anUpstream("u", 0)],
  gateways: [{ id: "g", name: "gw-a", silentS: 0.4 }],
  approvalsAsked: [],
  haltedTiers: [],
  overflowStopped: null,
  gpus: { cards: 16, used: 9 },
};

function aNode(name: string, over: Partial<StateView["nodes"][number]> = {}): StateView["nodes"][number] {
  return { id: `node-${name}`, name, state: "ready", silentS: 0.5, diskFreeMib: 500_000, replicas: 2, ...over };
}
function aModel(
  name: string,
  state: StateView["models"][number]["state"],
  wanted: number,
  ready: number,
  why: string | null = null,
): StateView["models"][number] {
  return { name, state, wanted, ready, why };
}
function anUpstream(
  id: string,
  waiting: number,
  over: Partial<StateView["upstreams"][number]> = {},
): StateView["upstreams"][number] {
  return { id, waiting, waitedBefore: waiting, oldestWaitMs: null, away: null, isOfCatalog: false, ...over };
}

const rows: readonly {
  readonly name: string;
  readonly view: Partial<StateView>;
  readonly severity: string;
  readonly says: RegExp;
  readonly links?: readonly [view: string, id: string | null, does?: string];
}[] = [
  {
    name: "all well, with its numbers",
    view: {},
    severity: "ok",
    says: /^All is well: 2 nodes are heard, 1 of 1 model is ready, 9 of 16 GPUs in use, nobody waits\.$/,
  },
  {
    name: "a short wait is no trouble, and is told",
    view: { upstreams: [anUpstream("u", 1, { oldestWaitMs: 1_200 })] },
    severity: "ok",
    says: /nobody waits longer than 1\.2 s\.$/,
  },
  {
    name: "without a gateway nobody knows how long requests wait",
    view: { gateways: [], upstreams: [] },
    severity: "ok",
    says: /is not known, since no gateway is connected/,
  },
  {
    name: "no leader, above all else",
    view: { led: false, storeSilentS: 40, models: [aModel("qwen", "parked", 1, 0, "5 failures: gpuOom")] },
    severity: "critical",
    says: /^No control plane leads, and the store has not answered for 40 s/,
    links: ["events", null],
  },
  {
    name: "the store is silent while somebody leads",
    view: { storeSilentS: 3.04 },
    severity: "critical",
    says: /^The store has not answered for 3 s: what runs goes on/,
  },
  {
    name: "an old copy of the store waits for a person",
    view: { restored: true },
    severity: "critical",
    says: /old copy/,
    links: ["fleet", null, "restoredConfirm"],
  },
  {
    name: "a lost node, and what is being rebuilt",
    view: {
      nodes: [aNode("gpu-03", { state: "lost", silentS: 40.2 }), aNode("gpu-01")],
      starting: 2,
      upstreams: [anUpstream("u", 1, { oldestWaitMs: 1_200 })],
    },
    severity: "critical",
    says: /^gpu-03 has been silent for 40 s: 2 replicas are being rebuilt elsewhere; nobody waits longer than 1\.2 s\.$/,
    links: ["fleet", "node-gpu-03"],
  },
  {
    name: "a node that is only silent so far",
    view: { nodes: [aNode("gpu-03", { state: "unreachable", silentS: 12, replicas: 1 }), aNode("gpu-01")] },
    severity: "warning",
    says: /^gpu-03 has been silent for 12 s: 1 replica is left as they are until it is lost/,
  },
  {
    name: "several silent nodes",
    view: {
      nodes: [
        aNode("a", { state: "lost", silentS: 90 }),
        aNode("b", { state: "unreachable", silentS: 20, replicas: 5 }),
      ],
    },
    severity: "critical",
    says: /^2 nodes are silent, b for 20 s/,
  },
  {
    name: "all replicas of a model are down for good",
    view: { models: [aModel("qwen", "parked", 2, 0, "5 failures: gpuOom")] },
    severity: "critical",
    says: /^qwen is parked and nothing of it runs: 5 failures: gpuOom\.$/,
    links: ["models", "qwen", "retry"],
  },
  {
    name: "a parked model of which something still runs is worth a warning",
    view: { models: [aModel("qwen", "parked", 2, 1, "5 failures")] },
    severity: "warning",
    says: /^qwen is parked: /,
  },
  {
    name: "a model without room, with the numbers of why",
    view: { models: [aModel("llama", "waiting", 2, 0, "needs 70.0 GiB on each of 2 cards; 1 have that")] },
    severity: "critical",
    says: /^llama has 0 of 2 replicas: needs 70\.0 GiB/,
    links: ["models", "llama"],
  },
  {
    name: "an upstream of a file that takes nothing",
    view: { upstreams: [anUpstream("vllm", 3, { away: "a1b2: refused connections" })] },
    severity: "critical",
    says: /^vllm takes no requests: a1b2: refused connections; 3 requests wait\.$/,
    links: ["queues", "vllm"],
  },
  {
    name: "a sick card with its cause",
    view: { sickGpus: [{ nodeId: "n", node: "gpu-07", index: 3, why: "XID 79" }] },
    severity: "warning",
    says: /^GPU 3 of gpu-07 is sick: XID 79/,
    links: ["fleet", "n"],
  },
  {
    name: "a disk that is nearly full",
    view: { nodes: [aNode("gpu-01", { diskFreeMib: 900 })] },
    severity: "warning",
    says: /disk of gpu-01 is nearly full: 0\.9 GiB/,
  },
  {
    name: "a disk that nobody measured is no trouble",
    view: { nodes: [aNode("gpu-01", { diskFreeMib: null })] },
    severity: "ok",
    says: /^All is well/,
  },
  {
    name: "a gateway that is silent",
    view: { gateways: [{ id: "g", name: "gw-b", silentS: 31 }] },
    severity: "warning",
    says: /^Gateway gw-b has not reported for 31 s/,
  },
  {
    name: "a queue that grows and in which somebody waits long",
    view: { upstreams: [anUpstream("u", 42, { waitedBefore: 2, oldestWaitMs: 15_000 })] },
    severity: "warning",
    says: /^42 requests wait for u, 40 more than a minute ago, the longest for 15 s\.$/,
    links: ["queues", "u"],
  },
  {
    name: "a queue of which nobody knows how it was before",
    view: { upstreams: [anUpstream("u", 42, { waitedBefore: null, oldestWaitMs: 2_000 })] },
    severity: "ok",
    says: /^All is well/,
  },
  {
    name: "jobs that wait for an approval",
    view: { approvalsAsked: [{ job: "job_1", tier: "kling" }] },
    severity: "notice",
    says: /^1 job waits for an approval to go to kling\.$/,
    links: ["overflow", null, "overflowApprove"],
  },
  {
    name: "a tier that has halted",
    view: { haltedTiers: [{ tier: "kling", why: "an outcome is not known" }] },
    severity: "warning",
    says: /^Tier kling has halted/,
    links: ["overflow", null, "overflowResume"],
  },
  {
    name: "a catalog that waits for a confirmation",
    view: { catalogHeld: "it takes away 2 of 3 replicas" },
    severity: "warning",
    says: /waits for a confirmation: it takes away/,
    links: ["models", null, "catalogConfirm"],
  },
];
for (const { name, view, severity, says, links } of rows)
  test(`the state in one sentence: ${name}`, () => {
    const said = stateSentence({ ...well, ...view });
    assert.equal(said.severity, severity);
    assert.match(said.sentence, says);
    if (links === undefined) return;
    const [where, id, does] = links;
    assert.deepEqual([said.action?.view, said.action?.id, said.action?.does], [where, id, does ?? null]);
  });

test("the worst comes first, and what is left out is counted", () => {
  const models = Array.from({ length: 9 }, (_, at) => aModel(`m-${at}`, "parked", 1, 0, "failed"));
  const said = stateSentence({ ...well, models, led: false, catalogHeld: "x" });
  assert.match(said.sentence, /^No control plane leads/);
  assert.equal(said.others.length, 5);
  assert.equal(said.more, 5);
  assert.ok(said.others.every(({ severity }) => severity === "critical"));
});

test("whatever the view, there is one sentence with an end, and unknown is never told as 0", () => {
  const unknownOr = fc.option(fc.float({ min: 0, max: 1e6, noNaN: true }));
  fc.assert(
    fc.property(
      fc.boolean(),
      unknownOr,
      fc.array(fc.record({ silentS: unknownOr, state: fc.constantFrom("ready", "lost", "unreachable", "never_seen") })),
      fc.array(fc.record({ waiting: fc.nat(500), waitedBefore: fc.option(fc.nat(500)), oldestWaitMs: unknownOr })),
      (led, storeSilentS, nodes, upstreams) => {
        const view: StateView = {
          ...well,
          led,
          storeSilentS,
          nodes: nodes.map((each, at) => aNode(`n${at}`, each as Partial<StateView["nodes"][number]>)),
          upstreams: upstreams.map((each, at) => anUpstream(`u${at}`, each.waiting, each)),
        };
        const said = stateSentence(view);
        assert.ok(said.sentence.length > 10 && !/null|undefined|NaN/.test(said.sentence), said.sentence);
        assert.deepEqual(stateSentence(view), said);
        assert.equal(said.severity === "ok", said.action === null);
      },
    ),
  );
});
