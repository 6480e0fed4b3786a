import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { parseConfigText } from "./load-config.ts";

const SOURCES = [
  { dcgm_url: "http://a01:9400", host: "a01" },
  { dcgm_url: "http://b02:9400/own/metrics", host: "b02" },
];

const read = (
  gpuHealth: Record<string, unknown> | undefined,
  upstream: Record<string, unknown> = {},
  gpus?: unknown,
  more: Record<string, unknown> = {},
) =>
  parseConfigText(
    stringify({
      ...more,
      ...(gpuHealth === undefined ? {} : { gpu_health: gpuHealth }),
      upstreams: [
        {
          id: "u",
          models: ["m"],
          slots: 2,
          endpoints: [{ url: "http://c:5000", ...(gpus === undefined ? {} : { gpus }) }],
          ...upstream,
        },
      ],
    }),
    "test.yaml",
    {},
  );

test("without the section nothing of it is there; with an empty one agents' readings alone count [30.T1]", () => {
  const without = read(undefined);
  assert.ok(without.kind === "valid");
  assert.equal(without.config.gpuHealth, null);
  const empty = read({});
  assert.ok(empty.kind === "valid" && empty.warnings.length === 0);
  const { sources, pollMs, stalenessMs, faultTempC, clearAfterMs, coupleFaults, coupleXid, shedBatch, dryRun } =
    empty.config.gpuHealth!;
  assert.deepEqual([sources, pollMs, stalenessMs, faultTempC, clearAfterMs], [[], 15_000, 60_000, 90, 60_000]);
  assert.deepEqual([coupleFaults, coupleXid, shedBatch, dryRun], [false, false, false, false]);
});

test("several exporters with their hosts, or a single one without [30.T1]", () => {
  const several = read({ sources: SOURCES, xid: { "109": "drain" } });
  assert.ok(several.kind === "valid");
  assert.deepEqual(
    several.config.gpuHealth?.sources.map(({ name, host }) => [name, host]),
    [
      ["http://a01:9400/metrics", "a01"],
      ["http://b02:9400/own/metrics", "b02"],
    ],
  );
  assert.deepEqual([...several.config.gpuHealth!.xidOverrides], [[109, "drain"]]);
  const single = read({ dcgm_url: "http://[::1]:9400/metrics" }, { gpu_ids: [0, 1] });
  assert.ok(single.kind === "valid" && single.warnings.length === 0);
  assert.deepEqual(
    [single.config.gpuHealth?.sources[0]?.hostname, single.config.gpuHealth?.sources[0]?.host],
    ["::1", null],
  );
  assert.deepEqual(single.config.upstreams[0]?.gpuIds, [0, 1]);
});

const mistakes: readonly (readonly [
  name: string,
  gpuHealth: Record<string, unknown>,
  upstream: Record<string, unknown>,
  gpus: unknown,
  says: RegExp,
])[] = [
  [
    "gpu_ids with several sources",
    { sources: SOURCES },
    { gpu_ids: [0] },
    undefined,
    /does not tell which of the 2 sources' hosts/,
  ],
  ["gpu_ids without a source", {}, { gpu_ids: [0] }, undefined, /needs one source/],
  ["an index twice", { dcgm_url: "http://a:9400" }, { gpu_ids: [0, 0] }, undefined, /stands here twice/],
  ["a negative index", { dcgm_url: "http://a:9400" }, { gpu_ids: [-1] }, undefined, /-1|0/],
  ["a bare index under an endpoint", { sources: SOURCES }, {}, ["0"], /is an index without a host/],
  ["a negative index under an endpoint", { sources: SOURCES }, {}, ["a01/-1"], /is no name of a card/],
  ["a host that no source is of", { sources: SOURCES }, {}, ["a02/0"], /names a host of which no source is/],
  ["a card twice", { sources: SOURCES }, {}, ["a01/0", "A01/0"], /stands here twice/],
  ["both forms of sources", { sources: SOURCES, dcgm_url: "http://c:9400" }, {}, undefined, /beside `sources`/],
  [
    "one host twice",
    { sources: [SOURCES[0], { dcgm_url: "http://x:1", host: "A01" }] },
    {},
    undefined,
    /another source is of this host/,
  ],
  [
    "one exporter twice",
    { sources: [SOURCES[0], { dcgm_url: "http://a01:9400", host: "x" }] },
    {},
    undefined,
    /is a source already/,
  ],
  ["staleness below the interval", { staleness_s: 10 }, {}, undefined, /is not longer than poll_s/],
  ["a source without a host", { sources: [{ dcgm_url: "http://a01:9400" }] }, {}, undefined, /is missing/],
  ["an XID that is none", { xid: { abc: "drain" } }, {}, undefined, /XID|abc/],
];
for (const [name, gpuHealth, upstream, gpus, says] of mistakes)
  test(`a mistake with its place: ${name} [30.G3]`, () => {
    const loaded = read(gpuHealth, upstream, gpus);
    assert.ok(loaded.kind === "invalid");
    assert.match(loaded.problems.map(({ message }) => message).join("\n"), says);
  });

const warnings: readonly (readonly [
  gpuHealth: Record<string, unknown> | undefined,
  upstream: Record<string, unknown>,
  says: RegExp,
])[] = [
  [undefined, { gpu_ids: [0] }, /has no effect without `gpu_health`/],
  [{ couple_xid: true }, {}, /has no effect on endpoints/],
  [{ dry_run: true }, {}, /has nothing to try/],
];
for (const [gpuHealth, upstream, says] of warnings)
  test(`a warning: ${says.source} [30.G3]`, () => {
    const loaded = read(gpuHealth, upstream);
    assert.ok(loaded.kind === "valid");
    assert.match(loaded.warnings.join("\n"), says);
  });

test("cards under an endpoint that nobody watches are warned of [30.G3]", () => {
  const loaded = read(undefined, {}, ["a01/0"]);
  assert.ok(loaded.kind === "valid");
  assert.match(loaded.warnings.join(), /endpoints\[0\]\.gpus: has no effect without `gpu_health`/);
});

test("a host of which no source is may be a node where there is a control plane, whose agents tell of its cards [30.G3 30.T1]", () => {
  const gateway = { control: ["ws://127.0.0.1:8300"] };
  const loaded = read({ sources: SOURCES }, {}, ["node-a/0"], { gateway });
  assert.ok(loaded.kind === "valid", JSON.stringify(loaded));
  assert.equal(read({ sources: SOURCES }, {}, ["node-a/0"]).kind, "invalid");
});

test("cards by UUID, by host and index, and by instance are taken [30.G1 30.G2]", () => {
  const gpus = ["GPU-8ea17be8-6bac-6558-c8ed-e3c5b423323a", "MIG-8ea1", "a01/0", "B02/7", "GPU-1/gi7"];
  const loaded = read({ sources: SOURCES }, {}, gpus);
  assert.ok(loaded.kind === "valid");
  assert.deepEqual(loaded.config.upstreams[0]?.endpoints[0]?.gpus, gpus);
});
