import { CONTROL_METRICS } from "../../../src/contract/control-metric-names.ts";
import type { MetricDefinition } from "../../../src/contract/metric-definition.ts";
import { METRICS } from "../../../src/contract/metric-names.ts";

/** What Prometheus itself adds to whatever it scrapes. */
const OF_THE_SCRAPE = ["job", "instance"];
const ITS_OWN = new Set(["up"]);
const SUFFIX = /_(?:bucket|sum|count)$/;

const exposed = new Map<string, readonly MetricDefinition[]>();
for (const metric of [...Object.values<MetricDefinition>(METRICS), ...Object.values<MetricDefinition>(CONTROL_METRICS)])
  exposed.set(metric.name, [...(exposed.get(metric.name) ?? []), metric]);

export interface Selector {
  readonly metric: string;
  readonly matchers: readonly { readonly label: string; readonly values: readonly string[] }[];
}

/** Every series that an expression selects. Strings hold no braces here, which keeps this to two patterns. */
export function selectorsOf(expr: string): Selector[] {
  const found: Selector[] = [];
  for (const [, metric = "", inner = ""] of expr.matchAll(/\b(up|yardmaster_[a-z0-9_]+)\b(?:\{([^}]*)\})?/g)) {
    const matchers = [...inner.matchAll(/([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"/g)].map(
      ([, label = "", , text = ""]) => ({
        label,
        values: text.split("|"),
      }),
    );
    found.push({ metric, matchers });
  }
  return found;
}

/** Labels that an expression groups by. */
export const groupedBy = (expr: string): string[] =>
  [...expr.matchAll(/\b(?:by|without|on|ignoring)\s*\(([^)]*)\)/g)].flatMap(([, names = ""]) =>
    names
      .split(",")
      .map((name) => name.trim())
      .filter((name) => name !== ""),
  );

/** What of an expression the product does not expose, in words. */
export function unknownIn(expr: string): string[] {
  const problems: string[] = [];
  const all = new Set(OF_THE_SCRAPE);
  const selectors = selectorsOf(expr);
  if (selectors.length === 0) problems.push(`selects nothing of the product: ${expr}`);
  for (const { metric, matchers } of selectors) {
    const labels = labelsOf(metric);
    if (labels === undefined) {
      problems.push(`${metric} is not exposed`);
      continue;
    }
    labels.forEach((label) => all.add(label));
    for (const { label } of matchers)
      if (!labels.includes(label) && !OF_THE_SCRAPE.includes(label)) problems.push(`${metric} has no label ${label}`);
  }
  for (const label of groupedBy(expr))
    if (!all.has(label)) problems.push(`nothing in it has a label ${label}: ${expr}`);
  return problems;
}

function labelsOf(name: string): readonly string[] | undefined {
  if (ITS_OWN.has(name)) return [];
  const whole = exposed.get(name);
  // A histogram's own name is no series.
  if (whole !== undefined && whole.every(({ type }) => type !== "histogram"))
    return whole.flatMap(({ labels }) => labels);
  const base = exposed.get(name.replace(SUFFIX, ""));
  if (!SUFFIX.test(name) || base === undefined || base.some(({ type }) => type !== "histogram")) return undefined;
  return [...base.flatMap(({ labels }) => labels), ...(name.endsWith("_bucket") ? ["le"] : [])];
}
