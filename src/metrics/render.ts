import type { AnySeries, Family } from "./family.ts";
import { HistogramSeries } from "./series.ts";

export type MetricsFormat = "prometheus" | "openmetrics";

export const CONTENT_TYPE: Readonly<Record<MetricsFormat, string>> = {
  prometheus: "text/plain; version=0.0.4; charset=utf-8",
  openmetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8",
};

/** NUL ends the page for some scrapers, and half a surrogate pair is no UTF-8. */
const printable = (text: string): string => text.toWellFormed().replaceAll("\u0000", "\ufffd");

const escapeHelp = (text: string, format: MetricsFormat): string => {
  const escaped = printable(text).replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
  return format === "openmetrics" ? escaped.replaceAll('"', '\\"') : escaped;
};

const escapeLabel = (text: string): string =>
  printable(text).replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");

const number = (value: number): string => (value === Infinity ? "+Inf" : value === -Infinity ? "-Inf" : String(value));

/** OpenMetrics wants bounds as floats, so that a series keeps its name whoever writes it. */
const bound = (value: number, format: MetricsFormat): string =>
  format === "openmetrics" && Number.isInteger(value) ? value.toFixed(1) : String(value);

function labelText(names: readonly string[], values: readonly string[], extra = ""): string {
  const parts = names.map((name, i) => `${name}="${escapeLabel(values[i] ?? "")}"`);
  if (extra !== "") parts.push(extra);
  return parts.length === 0 ? "" : `{${parts.join(",")}}`;
}

function histogramLines(
  out: string[],
  name: string,
  names: readonly string[],
  values: readonly string[],
  series: HistogramSeries,
  format: MetricsFormat,
): void {
  let total = 0;
  for (let i = 0; i < series.bounds.length; i += 1) {
    total += series.counts[i] as number;
    out.push(`${name}_bucket${labelText(names, values, `le="${bound(series.bounds[i] as number, format)}"`)} ${total}`);
  }
  total += series.counts[series.bounds.length] as number;
  out.push(`${name}_bucket${labelText(names, values, 'le="+Inf"')} ${total}`);
  out.push(`${name}_sum${labelText(names, values)} ${number(series.sum)}`);
  out.push(`${name}_count${labelText(names, values)} ${total}`);
}

/** Appends one family. A family without series is left out. */
export function renderFamily(out: string[], family: Family<AnySeries>, type: string, format: MetricsFormat): void {
  const { name, help, labelNames } = family.info;
  let first = true;
  for (const { values, series } of family.entries()) {
    if (first) {
      // OpenMetrics names a counter's family without the ending that its samples have.
      const familyName = format === "openmetrics" && type === "counter" ? name.slice(0, -"_total".length) : name;
      out.push(`# HELP ${familyName} ${escapeHelp(help, format)}`, `# TYPE ${familyName} ${type}`);
      first = false;
    }
    if (series instanceof HistogramSeries) histogramLines(out, name, labelNames, values, series, format);
    else out.push(`${name}${labelText(labelNames, values)} ${number(series.value)}`);
  }
}

/** Which format a scraper's `Accept` prefers. Without a clear wish for OpenMetrics it is the text format. */
export function negotiateFormat(accept: string | undefined): MetricsFormat {
  let openmetrics = 0;
  let text = 0;
  for (const part of (accept ?? "").split(",")) {
    const [type = "", ...params] = part.split(";").map((piece) => piece.trim().toLowerCase());
    const q = params.find((param) => param.startsWith("q="));
    const weight = q === undefined ? 1 : Number(q.slice(2));
    if (!(weight > 0 && weight <= 1)) continue;
    if (type === "application/openmetrics-text") openmetrics = Math.max(openmetrics, weight);
    else if (type === "text/plain") text = Math.max(text, weight);
  }
  return openmetrics > 0 && openmetrics >= text ? "openmetrics" : "prometheus";
}
