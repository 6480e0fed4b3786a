import { CONTROL_METRICS } from "./control-metric-names.ts";
import type { MetricDefinition } from "./metric-definition.ts";
import { METRICS } from "./metric-names.ts";

type Metrics = Readonly<Record<string, MetricDefinition>>;

const plain = (text: string): string => text.replaceAll("|", "\\|");

/** The text of docs/reference/metrics.md. */
export function renderMetricsReference(gateway: Metrics = METRICS, control: Metrics = CONTROL_METRICS): string {
  const lines = [
    "# Metrics",
    "",
    "`GET /metrics` answers in the Prometheus text format 0.0.4, or in OpenMetrics 1.0 where `Accept` asks for it. Units are",
    "seconds and bytes. Labels are configured ids and closed sets; model names and keys are never labels. A gauge whose value is",
    "unknown is absent: do not read an absent value as zero.",
    "",
    "## A gateway's",
    "",
    ...tables(gateway),
    "",
    "## A control plane's",
    "",
    "On `control.listen`. One of them is enough for a whole cluster: the leader's page has the nodes, cards, models and replicas of all.",
    "",
    ...tables(control),
  ];
  return `${lines.join("\n")}\n`;
}

function tables(metrics: Metrics): readonly string[] {
  const lines = ["| name | type | labels | meaning |", "| --- | --- | --- | --- |"];
  for (const { name, type, labels, help } of Object.values(metrics)) {
    const names = labels.map((label) => `\`${label}\``).join(", ") || "–";
    lines.push(`| \`${name}\` | ${type} | ${names} | ${plain(help)} |`);
  }
  lines.push("", "Histograms have these upper bounds, in seconds:", "", "| name | bounds |", "| --- | --- |");
  for (const { name, type, buckets } of Object.values(metrics)) {
    if (type === "histogram") lines.push(`| \`${name}\` | ${(buckets ?? []).join(", ")} |`);
  }
  return lines;
}
