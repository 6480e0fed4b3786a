import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { parse, stringify } from "yaml";
import type { RequestOutcome } from "../../src/contract/audit-event.ts";
import type { FleetEventKind, NodeState } from "../../src/contract/fleet.ts";
import { JOB_STATES } from "../../src/contract/job.ts";
import { REQUEST_CLASSES } from "../../src/contract/request-class.ts";
import { SOURCE_STATES } from "../../src/decide/gpu/gpu-book.ts";
import { ENDPOINT_STATES } from "../../src/gateway/upstreams/endpoint.ts";
import { ERRORS } from "../../src/kernel/errors.ts";
import { ALERT_CASES } from "./alert-cases.ts";
import { selectorsOf, unknownIn } from "./support/promql.ts";
import { distributionTool, ran, read, ROOT, temporaryFolder } from "./support/tools.ts";

// The alerts and the Grafana board that are shipped: read by Prometheus' own tool, and held against the metrics of the code.

interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook_url: string };
}

const FOLDER = join(ROOT, "deploy/monitoring");
const alerts = (parse(read("deploy/monitoring/alerts.yaml")) as { groups: { rules: Alert[] }[] }).groups.flatMap(
  ({ rules }) => rules,
);
const home = temporaryFolder("monitoring");
after(() => rmSync(home, { recursive: true, force: true }));

interface Board {
  readonly panels: readonly {
    readonly title: string;
    readonly type: string;
    readonly targets?: readonly { readonly expr: string }[];
  }[];
}
const panels = (JSON.parse(read("deploy/monitoring/grafana.json")) as Board).panels.flatMap(
  ({ title, type, targets = [] }) => (type === "row" ? [] : targets.map(({ expr }) => ({ title, expr }))),
);

const promtool = (...args: string[]): string => {
  const { code, text } = ran(distributionTool("promtool", "prometheus"), args, { cwd: FOLDER });
  assert.equal(code, 0, text);
  return text;
};

/** What labels may hold, of those that the shipped files ask for by value. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  "yardmaster_requests_total.outcome": [
    "upstream_failed",
    "upstream_truncated",
    "upstream_timeout",
    "internal_error",
  ] satisfies RequestOutcome[],
  "yardmaster_endpoint_state.state": ENDPOINT_STATES,
  "yardmaster_queue_seconds_bucket.class": REQUEST_CLASSES,
  "yardmaster_refusals_total.code": Object.keys(ERRORS),
  "yardmaster_event_loop_delay_seconds.stat": ["p50", "p99", "max"],
  "yardmaster_jobs.state": JOB_STATES,
  "yardmaster_jobs_ended_total.state": JOB_STATES,
  "yardmaster_gpu_source_state.state": SOURCE_STATES,
  "yardmaster_nodes.state": ["unreachable", "lost"] satisfies NodeState[],
  "yardmaster_gpus.state": ["used", "free", "sick", "unknown"],
  "yardmaster_models.state": ["ready", "starting", "waiting", "parked", "stopped", "removed"],
  "yardmaster_restarts.state": ["queued", "replacing", "inPlace", "refused"],
  "yardmaster_fleet_events_total.kind": [
    "replicaFailed",
    "replicaVanished",
    "fleetSilent",
    "zoneSilent",
  ] satisfies FleetEventKind[],
};
/** Of the scrape jobs, and of a variable of the board. */
const ANY = new Set(["job", "upstream"]);

test("promtool reads the rules and the scrape configuration that are shipped", () => {
  promtool("check", "rules", "alerts.yaml");
  const config = parse(read("deploy/monitoring/prometheus.yaml")) as {
    scrape_configs: { job_name: string; authorization: { credentials_file: string } }[];
  };
  // The key is the operator's to make; promtool asks for the file.
  for (const { authorization } of config.scrape_configs)
    writeFileSync(join(home, authorization.credentials_file), "ym_of-no-use");
  writeFileSync(join(home, "alerts.yaml"), read("deploy/monitoring/alerts.yaml"));
  writeFileSync(join(home, "prometheus.yaml"), read("deploy/monitoring/prometheus.yaml"));
  promtool("check", "config", join(home, "prometheus.yaml"));
  const jobs = config.scrape_configs.map(({ job_name }) => job_name);
  for (const { expr } of [...alerts, ...panels])
    for (const { matchers } of selectorsOf(expr))
      for (const { label, values } of matchers)
        if (label === "job")
          assert.deepEqual(
            values.filter((value) => !jobs.includes(value)),
            [],
            expr,
          );
});

test("each alert is told when what it is for happens, with the words that are promised, and is silent otherwise", () => {
  for (const { alert } of alerts) {
    const cases = ALERT_CASES.filter((one) => one.alert === alert);
    assert.ok(cases.some(({ told }) => told.length > 0) && cases.some(({ told }) => told.length === 0), alert);
  }
  const tests = ALERT_CASES.map(({ alert, series, at, told }) => {
    const rule = alerts.find((one) => one.alert === alert);
    assert.ok(rule !== undefined, `no alert ${alert}`);
    return {
      interval: "1m",
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      alert_rule_test: [
        {
          eval_time: at,
          alertname: alert,
          exp_alerts: told.map(({ labels, summary }) => ({
            exp_labels: labels,
            exp_annotations: { summary, runbook_url: rule.annotations.runbook_url },
          })),
        },
      ],
    };
  });
  const file = join(home, "alerts.test.yaml");
  writeFileSync(file, stringify({ rule_files: [join(FOLDER, "alerts.yaml")], evaluation_interval: "1m", tests }));
  promtool("test", "rules", file);
});

test("no alert and no panel names a metric, a label or a value that the product does not expose", () => {
  for (const { expr, name } of [
    ...alerts.map(({ alert, expr }) => ({ name: alert, expr })),
    ...panels.map(({ title, expr }) => ({ name: title, expr })),
  ]) {
    assert.deepEqual(unknownIn(expr), [], name);
    for (const { metric, matchers } of selectorsOf(expr)) {
      for (const { label, values } of matchers) {
        if (ANY.has(label)) continue;
        const known = VALUES[`${metric}.${label}`];
        assert.ok(known !== undefined, `${name}: which values ${metric} has for ${label} is not known here`);
        assert.deepEqual(
          values.filter((value) => !known.includes(value)),
          [],
          `${name}: ${metric} ${label}`,
        );
      }
    }
  }
});

test("a metric, a label or a value that is made up is found out", () => {
  assert.deepEqual(unknownIn("yardmaster_made_up == 1"), ["yardmaster_made_up is not exposed"]);
  assert.deepEqual(unknownIn('yardmaster_slots{class="batch"}'), ["yardmaster_slots has no label class"]);
  assert.equal(unknownIn("sum by (model) (yardmaster_slots)").length, 1);
  assert.deepEqual(unknownIn("yardmaster_queue_seconds > 1"), ["yardmaster_queue_seconds is not exposed"]);
  assert.deepEqual(unknownIn("sum by (le) (rate(yardmaster_queue_seconds_bucket[5m]))"), []);
});

test("every panel of the board asks what Prometheus can read", () => {
  assert.ok(panels.length >= 30);
  const rules = panels.map(({ expr }, index) => ({
    record: `panel:${index}`,
    // What Grafana puts in before it asks.
    expr: expr.replaceAll("$__rate_interval", "5m").replaceAll("$upstream", ".*"),
  }));
  const file = join(home, "panels.yaml");
  writeFileSync(file, stringify({ groups: [{ name: "panels", rules }] }));
  promtool("check", "rules", file);
});

test("the runbook has a section for each alert, which says what it means, where to look and what to do, and for no other", () => {
  const page = "docs/operating/runbook.md";
  const sections = new Map(
    read(page)
      .split(/^### /m)
      .slice(1)
      .map((text) => [text.slice(0, text.indexOf("\n")), text] as const),
  );
  assert.deepEqual([...sections.keys()].toSorted(), alerts.map(({ alert }) => alert).toSorted());
  for (const { alert, annotations, labels } of alerts) {
    assert.equal(annotations.runbook_url, `${page}#${alert.toLowerCase()}`);
    assert.ok(["page", "ticket"].includes(labels.severity), alert);
    for (const part of ["Means", "Look", "Do"])
      assert.match(sections.get(alert) ?? "", new RegExp(`^\\*\\*${part}\\*\\*: `, "m"), `${alert}: ${part}`);
  }
});
