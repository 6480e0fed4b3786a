import assert from "node:assert/strict";
import { test } from "node:test";
import { CONTROL_METRICS } from "../../src/contract/control-metric-names.ts";
import { aGpu } from "../../src/testing/fleet-builders.ts";
import { type ParsedFamily, parseOpenMetrics, parsePrometheus } from "../../src/testing/exposition-parser.ts";
import { eventually } from "../../src/testing/wait-for.ts";
import { applyCatalog, enrolledAgent, leadingControl } from "./support/fake-fleet.ts";
import { startTestControl, type TestControl } from "./support/test-control.ts";

const page = async (control: TestControl, accept = "text/plain"): Promise<readonly ParsedFamily[]> => {
  const { body } = await control.ask<{ text: string }>("GET", "/metrics", { role: null, headers: { accept } });
  return accept === "text/plain" ? parsePrometheus(body.text) : parseOpenMetrics(body.text);
};
const valueOf = (
  families: readonly ParsedFamily[],
  name: string,
  labels: Record<string, string> = {},
): number | undefined =>
  families
    .find((family) => family.name === name)
    ?.samples.find((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value))?.value;

test("a leader's page speaks for the whole cluster, a standby's for itself alone, and what is not known is absent [40.V2]", async () => {
  await using control = await leadingControl();
  await using standby = await startTestControl({ dataDir: control.dataDir });
  const agent = await enrolledAgent(control, "node-a");
  agent.part = {
    gpus: [
      aGpu("g1", { usedMib: 1_024, utilization: 0.5 }),
      aGpu("g2", { index: 1, health: "sick", healthWhy: "XID 79", usedMib: null, utilization: null }),
      aGpu("g3", { index: 2, class: "a40", usedMib: null, utilization: null }),
    ],
    weights: [{ name: "a".repeat(64), bytes: 5, inUse: false }],
    leftovers: [
      { name: "b".repeat(64), bytes: 7, kind: "partial" },
      { name: "mine", bytes: 9, kind: "foreign" },
    ],
  };
  agent.report();
  await applyCatalog(control, [
    { name: "m", profiles: [{ engine: "vllm", source: "/w/m", gpu: { class: ["h200"], memory_gb: 20 } }] },
    { name: "none", profiles: [{ engine: "vllm", source: "/w/n", gpu: { class: ["b200"], memory_gb: 20 } }] },
  ]);
  const families = await eventually(
    "the replica",
    () => page(control),
    (seen) => valueOf(seen, "yardmaster_replicas", { state: "ready" }) === 1,
  );
  for (const [name, labels, value] of [
    ["yardmaster_control_leading", {}, 1],
    ["yardmaster_control_epoch", {}, 1],
    ["yardmaster_control_restored", {}, 0],
    ["yardmaster_agents_connected", {}, 1],
    ["yardmaster_nodes", { state: "ready" }, 1],
    ["yardmaster_gpus", { class: "h200", state: "used" }, 1],
    ["yardmaster_gpus", { class: "h200", state: "sick" }, 1],
    ["yardmaster_gpus", { class: "h200", state: "free" }, 0],
    ["yardmaster_weights_bytes", { use: "idle" }, 5],
    ["yardmaster_weights_bytes", { use: "partial" }, 7],
    ["yardmaster_models", { state: "ready" }, 1],
    ["yardmaster_models", { state: "waiting" }, 1],
    ["yardmaster_placement_failures", { reason: "gpuClass" }, 1],
    ["yardmaster_catalog_revision", {}, 1],
    ["yardmaster_fleet_events_total", { kind: "replicaReady" }, 1],
    ["yardmaster_replica_idle_seconds_max", {}, undefined],
    ["yardmaster_model_idle_seconds", {}, undefined],
    ["yardmaster_model_replicas", { model: "m", state: "ready" }, 1],
    ["yardmaster_model_replicas", { model: "none" }, undefined],
    ["yardmaster_node_weights_bytes", { node: "node-a" }, 12],
    ["yardmaster_fabric_free_nodes", { fabric: "none" }, 0],
    ["yardmaster_gpu_memory_bytes", { class: "h200" }, 140 * 1024 ** 3],
    ["yardmaster_gpu_memory_used_bytes", { class: "h200" }, 1024 ** 3],
    ["yardmaster_gpu_utilization_ratio", { class: "h200" }, 0.5],
    ["yardmaster_gpu_utilization_ratio", { class: "a40" }, undefined],
    ["yardmaster_metrics_left_out", { kind: "model" }, 0],
    ["yardmaster_trace_spans_exported_total", {}, undefined],
  ] as const)
    assert.equal(valueOf(families, name, labels), value, `${name} ${JSON.stringify(labels)}`);
  const lag = valueOf(families, "yardmaster_agent_lag_seconds", { node: "node-a" }) ?? Infinity;
  assert.ok(lag < 10, String(lag));
  assert.ok((valueOf(families, "yardmaster_passes_total", { outcome: "changed" }) ?? 0) >= 2);
  const known = new Set(Object.values(CONTROL_METRICS).map(({ name }) => name as string));
  for (const { name } of families) assert.ok(known.has(name), name);
  const other = await page(standby);
  assert.equal(valueOf(other, "yardmaster_control_leading"), 0);
  assert.equal(valueOf(other, "yardmaster_nodes", { state: "ready" }), undefined);
  assert.equal(valueOf(other, "yardmaster_control_epoch"), undefined);
  assert.ok((await page(control, "application/openmetrics-text")).length > 10);
  agent.cut();
});

test("where the metrics are not open they need a key of a role that may have them", async () => {
  await using control = await startTestControl({ metricsPublic: false });
  const status = async (role: Parameters<TestControl["ask"]>[2]): Promise<number> =>
    (await control.ask("GET", "/metrics", role)).status;
  assert.deepEqual(
    [await status({ role: null }), await status({ role: "client" }), await status({ role: "metrics" })],
    [401, 403, 200],
  );
});
