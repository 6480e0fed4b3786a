/**
 * Strict readers of the two exposition grammars, written from the formats' texts alone: whatever a real scraper may
 * refuse, these refuse. They throw with the line that is wrong.
 */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ParsedFamily {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly samples: Sample[];
}

const NUMBER = /^(NaN|[+-]Inf|[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)$/;

function readNumber(text: string): number {
  if (!NUMBER.test(text)) throw new Error(`no number: ${text}`);
  if (text === "+Inf") return Infinity;
  return text === "-Inf" ? -Infinity : Number(text);
}

function unescape(text: string, allowed: string): string {
  return text.replace(/\\(.?)/gs, (_, char: string) => {
    if (char === "" || !allowed.includes(char)) throw new Error(`bad escape in: ${text}`);
    return char === "n" ? "\n" : char;
  });
}

function readSample(line: string): Sample {
  const head = /^([a-zA-Z_:][a-zA-Z0-9_:]*)/.exec(line)?.[1];
  if (head === undefined) throw new Error(`no metric name: ${line}`);
  let at = head.length;
  const labels: Record<string, string> = {};
  if (line[at] === "{") {
    at += 1;
    const label = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[^\n])*)"(,(?=[a-zA-Z_])|\})/y;
    for (;;) {
      label.lastIndex = at;
      const match = label.exec(line);
      if (match === null) throw new Error(`bad labels: ${line}`);
      const [whole, name = "", value = "", end] = match;
      if (Object.hasOwn(labels, name)) throw new Error(`label twice: ${line}`);
      labels[name] = unescape(value, '\\"n');
      at += whole.length;
      if (end === "}") break;
    }
  }
  if (line[at] !== " ") throw new Error(`no space before the value: ${line}`);
  return { name: head, labels, value: readNumber(line.slice(at + 1)) };
}

/** The same text for the same labels in any order. */
const labelKey = (labels: Readonly<Record<string, string>>): string =>
  JSON.stringify(Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1)));

const SUFFIXES: Readonly<Record<string, readonly string[]>> = { histogram: ["_bucket", "_sum", "_count"], gauge: [""] };

function belongs(family: ParsedFamily, sample: Sample, openmetrics: boolean): boolean {
  const suffixes = family.type === "counter" ? [openmetrics ? "_total" : ""] : (SUFFIXES[family.type] ?? []);
  return suffixes.some((suffix) => sample.name === family.name + suffix);
}

function parse(text: string, openmetrics: boolean): ParsedFamily[] {
  if (!text.isWellFormed()) throw new Error("not UTF-8");
  if (text !== "" && !text.endsWith("\n")) throw new Error("the last line does not end");
  if (text.includes("\u0000")) throw new Error("NUL");
  const families: ParsedFamily[] = [];
  const names = new Set<string>();
  const series = new Set<string>();
  const lines = text.split("\n").slice(0, -1);
  if (openmetrics && lines.pop() !== "# EOF") throw new Error("no # EOF at the end");
  for (let i = 0; i < lines.length; i += 1) {
    const line = lines[i] as string;
    if (line.startsWith("#")) {
      const help = /^# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)$/s.exec(line);
      const type = /^# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)$/.exec(lines[i + 1] ?? "");
      if (help === null || type === null || help[1] !== type[1]) throw new Error(`HELP and TYPE do not match: ${line}`);
      const name = help[1] as string;
      if (names.has(name)) throw new Error(`family twice: ${name}`);
      names.add(name);
      families.push({
        name,
        type: type[2] as string,
        help: unescape(help[2] ?? "", openmetrics ? '\\"n' : "\\n"),
        samples: [],
      });
      i += 1;
      continue;
    }
    const sample = readSample(line);
    const family = families.at(-1);
    if (family === undefined || !belongs(family, sample, openmetrics)) throw new Error(`outside its family: ${line}`);
    const id = `${sample.name}${labelKey(sample.labels)}`;
    if (series.has(id)) throw new Error(`series twice: ${line}`);
    series.add(id);
    if (family.type === "counter" && !(sample.value >= 0)) throw new Error(`counter below zero: ${line}`);
    family.samples.push(sample);
  }
  for (const family of families) if (family.type === "histogram") checkHistogram(family);
  return families;
}

function checkHistogram(family: ParsedFamily): void {
  const groups = new Map<string, { buckets: [number, number][]; sum?: number; count?: number }>();
  for (const { name, labels, value } of family.samples) {
    const { le, ...rest } = labels;
    const key = labelKey(rest);
    const group = groups.get(key) ?? { buckets: [] };
    groups.set(key, group);
    if (name.endsWith("_bucket")) group.buckets.push([readNumber(le ?? ""), value]);
    else if (name.endsWith("_sum")) group.sum = value;
    else group.count = value;
  }
  for (const [key, { buckets, sum, count }] of groups) {
    const ascending = buckets.every(
      ([le, value], i) => i === 0 || (le > (buckets[i - 1]?.[0] ?? NaN) && value >= (buckets[i - 1]?.[1] ?? NaN)),
    );
    if (!ascending || buckets.at(-1)?.[0] !== Infinity || buckets.at(-1)?.[1] !== count || sum === undefined)
      throw new Error(`bad histogram ${family.name} ${key}`);
  }
}

/** Prometheus text format 0.0.4, without what our pages never hold (timestamps, comments, untyped and summary). */
export const parsePrometheus = (text: string): ParsedFamily[] => parse(text, false);
/** OpenMetrics 1.0, likewise. */
export const parseOpenMetrics = (text: string): ParsedFamily[] => parse(text, true);
