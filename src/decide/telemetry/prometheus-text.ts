import { parseMetricValue, parseTimestampMs } from "./metric-value.ts";

// Our own reader rather than a library's: each exporter in the field breaks the grammar in its own way (unescaped quotes, repeated
// families, pages that are cut), and a library that is right about the grammar refuses the whole page for one bad line.

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** NaN and infinities are values: what they mean is for the reader of the metric. */
  readonly value: number;
  readonly timestampMs: number | undefined;
}

export type MetricsPage =
  | {
      readonly kind: "parsed";
      readonly samples: readonly Sample[];
      /** Lines that are neither comment nor sample, a cut last line included. */
      readonly skippedLines: number;
      /** The page was not cut: its last line ends, and an OpenMetrics page has its end mark. */
      readonly complete: boolean;
    }
  | { readonly kind: "rejected"; readonly why: "tooLarge" | "notMetrics" | "tooManySeries" };

export interface MetricsOptions {
  readonly maxBytes?: number;
  /** Of the wanted samples and of bad lines together: each costs time. */
  readonly maxSeries?: number;
  /** Names to keep; all by default. */
  readonly want?: ReadonlySet<string> | ((name: string) => boolean);
  /** The page's Content-Type, if known: tells OpenMetrics apart where the end mark is missing. */
  readonly contentType?: string;
}

const METRICS_BYTES_MAX = 8 * 1024 * 1024;
const METRICS_SERIES_MAX = 100_000;
const LINE_CHARS_MAX = 65_536;

const END_MARK = /(?:^|\n)# EOF\r?\n?$/;
const BARE_NAME = /[a-zA-Z_:][a-zA-Z0-9_:]*/y;
const BLANKS = /[ \t]*/y;

/** Reads a page in the Prometheus text format or in OpenMetrics. A bad line is skipped and counted. Never throws. */
export function parseMetricsText(page: string | Buffer, options: MetricsOptions = {}): MetricsPage {
  const maxBytes = options.maxBytes ?? METRICS_BYTES_MAX;
  if (page.length > maxBytes) return { kind: "rejected", why: "tooLarge" };
  const text = (typeof page === "string" ? page : page.toString("utf8")).replace(/^\uFEFF/, "");
  const marked = END_MARK.test(text.slice(-16));
  const openMetrics = marked || /openmetrics/i.test(options.contentType ?? "");
  const maxSeries = options.maxSeries ?? METRICS_SERIES_MAX;
  const wants = wantsName(options.want);
  const samples: Sample[] = [];
  let skippedLines = 0;
  let first = true;
  for (let at = 0; at < text.length;) {
    const newline = text.indexOf("\n", at);
    const end = newline === -1 ? text.length : newline;
    const line = end - at > LINE_CHARS_MAX ? TOO_LONG : readLine(text.slice(at, end), wants, openMetrics);
    if (first && line.kind !== "blank") {
      if (line.kind === "bad" && !line.looksLikeSample) return { kind: "rejected", why: "notMetrics" };
      first = false;
    }
    if (line.kind === "end") break;
    // A line without its end may be cut inside a number.
    if (newline === -1 && line.kind !== "blank") skippedLines += line.kind === "comment" ? 0 : 1;
    else if (line.kind === "bad") skippedLines += 1;
    else if (line.kind === "sample") {
      samples.push(line.sample);
    }
    if (samples.length + skippedLines > maxSeries) return { kind: "rejected", why: "tooManySeries" };
    at = end + 1;
  }
  return {
    kind: "parsed",
    samples,
    skippedLines,
    complete: marked || (!openMetrics && (text === "" || text.endsWith("\n"))),
  };
}

function wantsName(want: MetricsOptions["want"]): (name: string) => boolean {
  if (want === undefined) return () => true;
  return typeof want === "function" ? want : (name) => want.has(name);
}

type Line =
  | { readonly kind: "blank" | "comment" | "end" | "unwanted" }
  | { readonly kind: "bad"; readonly looksLikeSample: boolean }
  | { readonly kind: "sample"; readonly sample: Sample };

const TOO_LONG: Line = { kind: "bad", looksLikeSample: true };

function readLine(raw: string, wants: (name: string) => boolean, openMetrics: boolean): Line {
  const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
  const cursor = new LineCursor(line);
  cursor.skipBlanks();
  if (cursor.done) return { kind: "blank" };
  if (cursor.peek === "#") return line.trim() === "# EOF" ? { kind: "end" } : { kind: "comment" };
  const bareName = cursor.bareName();
  if (bareName !== undefined && !wants(bareName) && (cursor.peek === "{" || cursor.peek === " "))
    return { kind: "unwanted" };
  const bad: Line = { kind: "bad", looksLikeSample: bareName !== undefined && cursor.peek === "{" };
  cursor.skipBlanks();
  const set = cursor.peek === "{" ? readLabels(cursor) : { name: undefined, labels: noLabels() };
  const name = bareName ?? set?.name;
  if (set === undefined || name === undefined || (bareName !== undefined && set.name !== undefined)) return bad;
  const tail = readTail(cursor, openMetrics);
  if (tail === undefined) return bad;
  return wants(name) ? { kind: "sample", sample: { name, labels: set.labels, ...tail } } : { kind: "unwanted" };
}

/** The value, and a timestamp if one follows. What comes behind a `#` is an exemplar and is not read. */
function readTail(cursor: LineCursor, openMetrics: boolean): Pick<Sample, "value" | "timestampMs"> | undefined {
  const tokens = cursor
    .rest()
    .split(/[ \t]+/)
    .filter((token) => token !== "");
  const value = tokens[0] === undefined ? undefined : parseMetricValue(tokens[0]);
  if (value === undefined) return undefined;
  const second = tokens[1];
  if (second === undefined || second.startsWith("#")) return { value, timestampMs: undefined };
  if (tokens[2] !== undefined && !tokens[2].startsWith("#")) return undefined;
  const timestampMs = parseTimestampMs(second, openMetrics);
  return timestampMs === undefined ? undefined : { value, timestampMs };
}

// Without a prototype: a label may have any name.
const noLabels = (): Record<string, string> => Object.create(null) as Record<string, string>;

/** `{a="b", "c.d"="e"}`, with a metric's quoted name first if it has one. The last of two equal labels counts. */
function readLabels(cursor: LineCursor): { name: string | undefined; labels: Record<string, string> } | undefined {
  const labels = noLabels();
  let name: string | undefined;
  cursor.advance();
  for (;;) {
    cursor.skipBlanks();
    if (cursor.take("}")) return { name, labels };
    const quoted = cursor.peek === '"';
    const label = quoted ? cursor.quoted() : cursor.bareName();
    if (label === undefined) return undefined;
    cursor.skipBlanks();
    if (cursor.take("=")) {
      cursor.skipBlanks();
      const value = cursor.quoted();
      if (value === undefined) return undefined;
      labels[label] = value;
    } else if (quoted && name === undefined) {
      name = label;
    } else {
      return undefined;
    }
    cursor.skipBlanks();
    if (!cursor.take(",") && cursor.peek !== "}") return undefined;
  }
}

class LineCursor {
  readonly #line: string;
  #at = 0;

  constructor(line: string) {
    this.#line = line;
  }

  get done(): boolean {
    return this.#at >= this.#line.length;
  }

  get peek(): string {
    return this.#line[this.#at] ?? "";
  }

  advance(): void {
    this.#at += 1;
  }

  take(char: string): boolean {
    if (this.peek !== char) return false;
    this.#at += 1;
    return true;
  }

  skipBlanks(): void {
    BLANKS.lastIndex = this.#at;
    BLANKS.exec(this.#line);
    this.#at = BLANKS.lastIndex;
  }

  bareName(): string | undefined {
    BARE_NAME.lastIndex = this.#at;
    const match = BARE_NAME.exec(this.#line);
    if (match === null) return undefined;
    this.#at = BARE_NAME.lastIndex;
    return match[0];
  }

  /** A quoted text. A backslash before any other character than `\`, `"` and `n` stands for itself. */
  quoted(): string | undefined {
    if (!this.take('"')) return undefined;
    const start = this.#at;
    for (let at = start, escaped = false; at < this.#line.length; at++) {
      if (this.#line[at] === "\\") {
        escaped = true;
        at += 1;
      } else if (this.#line[at] === '"') {
        this.#at = at + 1;
        const text = this.#line.slice(start, at);
        return escaped ? text.replace(/\\([\\"n])/g, (_, char: string) => (char === "n" ? "\n" : char)) : text;
      }
    }
    return undefined;
  }

  rest(): string {
    return this.#line.slice(this.#at);
  }
}
