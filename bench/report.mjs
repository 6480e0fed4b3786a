// Turns raw results of a benchmark run into the page's tables: each bar with its figure, the median of per-round ratios.

export const median = (values) => {
  const sorted = values
    .filter((value) => value !== null && value !== undefined && Number.isFinite(value))
    .sort((a, b) => a - b);
  return sorted.length === 0 ? null : sorted[sorted.length >> 1];
};

const get = (row, path) => path.split(".").reduce((value, key) => value?.[key], row);

/** Median over the rounds of figure / reference's figure in the same round. */
function ratio(rows, scenario, target, reference, column) {
  const own = rows.filter((row) => row.scenario === scenario && row.target === target);
  return median(
    own.map((row) => {
      const other = rows.find(
        (candidate) => candidate.scenario === scenario && candidate.target === reference && candidate.rep === row.rep,
      );
      return other === undefined ? null : get(row, column) / get(other, column);
    }),
  );
}
const inverse = (value) => (value === null ? null : 1 / value);
const errors = (rows, scenario) =>
  rows.filter((row) => row.scenario === scenario && row.target === "yardmaster").reduce((sum, row) => sum + row.err, 0);
const ours = (rows, scenario, column) =>
  median(rows.filter((row) => row.scenario === scenario && row.target === "yardmaster").map((row) => get(row, column)));

/** `better`: whether the figure must be at most or at least the bar. */
export const BARS = [
  {
    id: "B1",
    what: "1 KB calls per core / nginx",
    first: 0.35,
    goal: 0.6,
    better: "more",
    figure: ({ compare }) => inverse(ratio(compare, "call1k", "yardmaster", "nginx", "cpu_us")),
  },
  {
    id: "B1",
    what: "16 KB calls per core / nginx",
    first: 0.35,
    goal: 0.6,
    better: "more",
    figure: ({ compare }) => inverse(ratio(compare, "call16k", "yardmaster", "nginx", "cpu_us")),
  },
  {
    id: "B2",
    what: "un-bunched chunks per core / nginx",
    first: 0.35,
    goal: 0.6,
    better: "more",
    figure: ({ compare }) => inverse(ratio(compare, "lockstep", "yardmaster", "nginx", "cpu_us")),
  },
  {
    id: "B2",
    what: "bunched chunks per core / nginx",
    first: 0.45,
    goal: 2,
    better: "more",
    figure: ({ compare }) => inverse(ratio(compare, "bunched", "yardmaster", "nginx", "cpu_us")),
  },
  {
    id: "B3",
    what: "1 000 calls/s: median / nginx's",
    first: 1.6,
    goal: 1.1,
    better: "less",
    figure: ({ compare }) => ratio(compare, "rate1000", "yardmaster", "nginx", "lat_us.p50"),
  },
  {
    id: "B3",
    what: "1 000 calls/s: p99 / nginx's",
    first: 4,
    goal: 1.3,
    better: "less",
    figure: ({ compare }) => ratio(compare, "rate1000", "yardmaster", "nginx", "lat_us.p99"),
  },
  {
    id: "B3",
    what: "200 calls/s: CPU per call / vllm-router's",
    first: 2,
    goal: 1.1,
    better: "less",
    figure: ({ peers }) => ratio(peers, "rate200", "yardmaster", "vllm-router", "cpu_us"),
  },
  {
    id: "B4",
    what: "1 000 streams × 20/s: CPU / nginx",
    first: 2,
    goal: 1.4,
    better: "less",
    figure: ({ compare }) => ratio(compare, "streams1000", "yardmaster", "nginx", "cpu_us"),
  },
  {
    id: "B4",
    what: "1 000 streams × 20/s: chunk p50 / nginx",
    first: 2.5,
    goal: 1.4,
    better: "less",
    figure: ({ compare }) => ratio(compare, "streams1000", "yardmaster", "nginx", "chunk_us.p50"),
  },
  {
    id: "B4",
    what: "1 000 streams × 20/s: chunk p99 / nginx",
    first: 4,
    goal: 1.5,
    better: "less",
    figure: ({ compare }) => ratio(compare, "streams1000", "yardmaster", "nginx", "chunk_us.p99"),
  },
  {
    id: "B4",
    what: "1 000 streams × 20/s: errors",
    first: 0,
    goal: 0,
    better: "less",
    figure: ({ compare }) => (ours(compare, "streams1000", "cpu_us") === null ? null : errors(compare, "streams1000")),
  },
  {
    id: "B5",
    what: "5 000 idle streams: KiB each",
    first: 40,
    goal: 18,
    better: "less",
    figure: ({ compare, starts }) => perStream(compare, starts),
  },
  {
    id: "B6",
    what: "image bodies: small calls' p99 rises by, ms",
    first: 20,
    goal: 5,
    better: "less",
    figure: ({ mixed }) => (mixed === null ? null : median(mixed.map((round) => round.besideMs - round.aloneMs))),
  },
  {
    id: "B6",
    what: "image bodies: peak memory, MB",
    first: 400,
    goal: 200,
    better: "less",
    figure: ({ mixed }) => (mixed === null ? null : Math.max(...mixed.map((round) => round.rssMb))),
  },
  {
    id: "B7",
    what: "1 KB call: CPU / vllm-router",
    first: 1,
    goal: 0.6,
    better: "less",
    figure: ({ peers }) => ratio(peers, "sat1k", "yardmaster", "vllm-router", "cpu_us"),
  },
  {
    id: "B7",
    what: "un-bunched chunk: CPU / vllm-router",
    first: 1.8,
    goal: 1.1,
    better: "less",
    figure: ({ peers }) => ratio(peers, "lockstep", "yardmaster", "vllm-router", "cpu_us"),
  },
  {
    id: "B7",
    what: "bunched chunk: CPU / vllm-router",
    first: 0.3,
    goal: 0.08,
    better: "less",
    figure: ({ peers }) => ratio(peers, "blast", "yardmaster", "vllm-router", "cpu_us"),
  },
  {
    id: "B7",
    what: "5 MB body: CPU / vllm-router",
    first: 0.8,
    goal: 0.3,
    better: "less",
    figure: ({ peers }) => ratio(peers, "body5m", "yardmaster", "vllm-router", "cpu_us"),
  },
  {
    id: "B16",
    what: "gateway start to ready, s",
    first: 1,
    goal: 0.3,
    better: "less",
    figure: ({ starts }) => (starts === null ? null : median(starts.gatewayMs) / 1000),
  },
  {
    id: "B16",
    what: "`npm start` to first answer, s",
    first: 6,
    goal: 2,
    better: "less",
    figure: ({ starts }) => (starts === null ? null : median(starts.firstAnswerMs) / 1000),
  },
];

/** Above the process as it stands when it has just started; without that figure nothing can be said. */
function perStream(rows, starts) {
  const end = ours(rows, "idle5000", "rss_end_mb");
  return end === null || starts === null ? null : ((end - median(starts.idleMb)) * 1024) / 5_000;
}

const show = (value) =>
  value === null
    ? "not measured"
    : Math.abs(value) >= 100
      ? value.toFixed(0)
      : Math.abs(value) >= 10
        ? value.toFixed(1)
        : value.toFixed(2);
const verdict = (bar, value) => {
  if (value === null) return "";
  const meets = (limit) => (bar.better === "more" ? value >= limit : value <= limit);
  return meets(bar.goal) ? "goal" : meets(bar.first) ? "first stage" : "**missed**";
};

export function renderReport(results) {
  const lines = [
    "",
    `Machine: ${results.machine}; Node ${results.node}; medians of per-round ratios.`,
    "",
    "| bar | what | figure | first stage | goal | |",
    "| --- | --- | --- | --- | --- | --- |",
  ];
  for (const bar of BARS) {
    const value = bar.figure(results);
    const sign = bar.better === "more" ? "≥" : "≤";
    lines.push(
      `| ${bar.id} | ${bar.what} | ${show(value)} | ${sign} ${bar.first} | ${sign} ${bar.goal} | ${verdict(bar, value)} |`,
    );
  }
  if (results.mixed !== null) {
    const rise = show(median(results.mixed.map(({ nginx }) => nginx.besideMs - nginx.aloneMs)));
    lines.push("", `B6 in the same rounds through nginx: small calls' p99 rises by ${rise} ms.`);
  }
  lines.push("", ...rawTable(results.compare, "Beside nginx"), ...rawTable(results.peers, "Beside other gateways"));
  return `${lines.join("\n")}\n`;
}

/** CPU time per unit of each target, so that a ratio can be traced to its parts. */
function rawTable(rows, title) {
  if (rows.length === 0) return [];
  const targets = [...new Set(rows.map((row) => row.target))];
  const scenarios = [...new Set(rows.map((row) => row.scenario))];
  const lines = [
    `### ${title}: CPU µs per call or chunk (errors)`,
    "",
    `| | ${targets.join(" | ")} |`,
    `| --- |${" --- |".repeat(targets.length)}`,
  ];
  for (const scenario of scenarios) {
    const cells = targets.map((target) => {
      const own = rows.filter((row) => row.scenario === scenario && row.target === target);
      return own.length === 0
        ? "–"
        : `${show(median(own.map((row) => row.cpu_us)))} (${own.reduce((sum, row) => sum + row.err, 0)})`;
    });
    lines.push(`| ${scenario} | ${cells.join(" | ")} |`);
  }
  return [...lines, ""];
}
