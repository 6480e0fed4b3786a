import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import type { RequestOutcome } from "../../contract/audit-event.ts";
import type { MetricDefinition } from "../../contract/metric-definition.ts";
import { METRICS } from "../../contract/metric-names.ts";
import { renderMetricsReference } from "../../contract/metrics-reference.ts";
import { REQUEST_CLASSES } from "../../contract/request-class.ts";
import { parseOpenMetrics, parsePrometheus } from "../../testing/exposition-parser.ts";
import { VirtualClock } from "../../testing/virtual-clock.ts";
import { createGatewayMetrics, type GatewayMetrics } from "./gateway-metrics.ts";
import { collectProcessMetrics } from "../../metrics/process-metrics.ts";
import { Registry } from "../../metrics/registry.ts";

const OUTCOMES: readonly RequestOutcome[] = [
  "ok",
  "engine_error",
  "refused",
  "queue_timeout",
  "client_aborted_queued",
  "client_aborted",
  "upstream_failed",
  "upstream_truncated",
  "upstream_timeout",
  "client_stalled",
  "drain_aborted",
  "internal_error",
];

/** Touches everything that a request on this upstream can touch. */
function useAll(metrics: GatewayMetrics, id: string, routes: readonly string[]): void {
  const upstream = metrics.forUpstream(id);
  for (const requestClass of REQUEST_CLASSES) {
    const handles = upstream.class[requestClass];
    for (const series of [
      handles.durationSeconds,
      handles.queueSeconds,
      handles.firstByteSeconds,
      handles.tokenGapSeconds,
    ])
      series.observe(0.02);
    for (const route of routes) for (const outcome of OUTCOMES) handles.ended(route, outcome);
  }
  for (const kind of ["connect", "reset", "truncated", "protocol"]) upstream.endpointFailed("http://127.0.0.1:1", kind);
  for (const to of ["closed", "open", "half_open"] as const) upstream.breakerMoved("http://127.0.0.1:1", to);
  for (const code of ["QUEUE_FULL", "QUEUE_TIMEOUT", "UPSTREAM_ERROR"] as const) upstream.refused(code);
  upstream.retried("connect");
  upstream.promptTokens.inc(10);
}

test("a page with every metric in use is valid in both formats and names only yardmaster metrics [10.O2]", () => {
  const registry = new Registry();
  const metrics = createGatewayMetrics(registry, "1.2.3");
  using processMetrics = collectProcessMetrics(metrics.collected, new VirtualClock());
  void processMetrics;
  useAll(metrics, "chat", ["/v1/chat/completions"]);
  metrics.forUpstream(null).endedUnclassed("/v1/models", "ok");
  metrics.authFailed("unknown");
  metrics.configReloaded("refused");
  metrics.collected.draining.collectWith((set) => set([], 0));
  metrics.collected.auditDropped.collectWith((set) => set([], 7));
  const text = parsePrometheus(registry.render("prometheus"));
  const open = parseOpenMetrics(registry.render("openmetrics"));
  assert.ok(text.every(({ name }) => name.startsWith("yardmaster_")));
  assert.equal(text.length, open.length);
  const value = (name: string): number | undefined => text.find((family) => family.name === name)?.samples[0]?.value;
  assert.equal(value("yardmaster_audit_dropped_total"), 7);
  assert.equal(value("yardmaster_config_last_reload_success"), 0);
  assert.ok((value("yardmaster_process_resident_memory_bytes") ?? 0) > 1e6);
});

test("promtool, where it is installed, has no complaint about the page", (t) => {
  const registry = new Registry();
  useAll(createGatewayMetrics(registry, "1.2.3"), "chat", ["/v1/chat/completions"]);
  const result = spawnSync("promtool", ["check", "metrics"], {
    input: registry.render("prometheus"),
    encoding: "utf8",
    timeout: 20_000,
  });
  if (result.error !== undefined) return t.diagnostic("promtool is not installed: the page was not checked with it");
  assert.equal(result.status, 0, result.stdout + result.stderr);
});

test("labels are configured ids and closed sets: no key, model, path, prompt or request id", () => {
  const allowed = new Set([
    "route",
    "upstream",
    "class",
    "outcome",
    "code",
    "why",
    "endpoint",
    "state",
    "kind",
    "direction",
    "stage",
    "stat",
    "mode",
    "result",
    "version",
    "metric",
    "to",
    "script",
    "purpose",
    "verdict",
    "control",
    "site",
    "fault",
    "what",
    "limit",
    "decision",
    "tier",
    "lack",
    "place",
    "signal",
    "field",
    "source",
    // Of cards, as sources of telemetry name them; bounded by the number of cards that are kept.
    "host",
    "gpu",
  ]);
  for (const definition of Object.values<MetricDefinition>(METRICS))
    for (const label of definition.labels) assert.ok(allowed.has(label), `${definition.name} ${label}`);
});

test("four upstreams with every class, eight routes and every outcome stay below two thousand series [80.D38]", () => {
  const registry = new Registry();
  const metrics = createGatewayMetrics(registry, "1.2.3");
  // Whatever the number of keys: a key is nowhere in the interface that counts.
  for (let i = 0; i < 4; i += 1) {
    const upstream = metrics.forUpstream(`upstream-${i}`);
    for (const requestClass of REQUEST_CLASSES) {
      for (let route = 0; route < 8; route += 1)
        for (const outcome of OUTCOMES) upstream.class[requestClass].ended(`/v1/route-${route}`, outcome);
      upstream.class[requestClass].queueSeconds.observe(0);
    }
  }
  const lines = registry
    .render("prometheus")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"));
  assert.ok(lines.length <= 2_000, `${lines.length} series`);
});

test("an upstream that left the configuration is on no later page", () => {
  const registry = new Registry();
  const metrics = createGatewayMetrics(registry, "1.2.3");
  useAll(metrics, "gone", ["/v1/embeddings"]);
  metrics.forgetUpstream("gone");
  assert.ok(!registry.render("prometheus").includes('"gone"'));
  metrics.forUpstream("gone").class.batch.ended("/v1/embeddings", "ok");
  assert.match(
    registry.render("prometheus"),
    /yardmaster_requests_total\{route="\/v1\/embeddings",upstream="gone",class="batch",outcome="ok"\} 1/,
  );
});

test("handles of an upstream are the same at each call, so a request looks nothing up", () => {
  const metrics = createGatewayMetrics(new Registry(), "1.2.3");
  assert.equal(metrics.forUpstream("a"), metrics.forUpstream("a"));
  assert.equal(metrics.forUpstream("a").class.batch.queueSeconds, metrics.forUpstream("a").class.batch.queueSeconds);
});

test("every metric of the table is registered, and its names carry base units", () => {
  const registry = new Registry();
  createGatewayMetrics(registry, "1.2.3");
  for (const { name, type } of Object.values<MetricDefinition>(METRICS)) {
    assert.throws(
      () => (type === "counter" ? registry.counter(name, "again", []) : registry.gauge(name, "again", [])),
      /exists already/,
    );
    assert.ok(!/_(ms|millis|milliseconds|kb|mb|percent)(_|$)/.test(name), name);
    assert.equal(name.endsWith("_total"), type === "counter", name);
  }
});

test("the reference page lists every metric with its labels", () => {
  const text = renderMetricsReference();
  for (const { name, labels } of Object.values<MetricDefinition>(METRICS)) {
    const line = text.split("\n").find((row) => row.startsWith(`| \`${name}\` |`)) ?? "";
    assert.ok(
      labels.every((label) => line.includes(`\`${label}\``)),
      name,
    );
  }
});
