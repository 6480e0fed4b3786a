import type { MetricDefinition } from "./metric-definition.ts";
import { METRICS } from "./metric-names.ts";

const plain = (text: string): string => text.replaceAll("|", "\\|");

/** The text of docs/reference/metrics.md. */
export function renderMetricsReference(metrics: Readonly<Record<string, MetricDefinition>> = METRICS): string {
  const lines = [
    "# Metrics",
    "",
    "`GET /metrics` answers in the Prometheus text format 0.0.4, or in OpenMetrics 1.0 where `Accept` asks for it. Units are",
    "seconds and bytes. Labels are configured ids and closed sets; model names and keys are never labels. A gauge whose value is",
    "unknown is absent: do not read an absent value as zero.",
    "",
    "| name | type | labels | meaning |",
    "| --- | --- | --- | --- |",
  ];
  for (const { name, type, labels, help } of Object.values(metrics)) {
    const names = labels.map((label) => `\`${label}\``).join(", ") || "–";
    lines.push(`| \`${name}\` | ${type} | ${names} | ${plain(help)} |`);
  }
  lines.push("", "Histograms have these upper bounds, in seconds:", "", "| name | bounds |", "| --- | --- |");
  for (const { name, type, buckets } of Object.values(metrics)) {
    if (type === "histogram") lines.push(`| \`${name}\` | ${(buckets ?? []).join(", ")} |`);
  }
  return `${lines.join("\n")}\n`;
}
