import {
  currenciesOf,
  parseDay,
  USAGE_DAY_HINT,
  USAGE_DAYS_SHOWN,
  USAGE_GROUPS,
  USAGE_LIMIT_MAX,
  usageCsvHead,
  usageCsvLine,
  usageView,
  type UsageGroup,
  type UsageRowView,
  type UsageView,
} from "../contract/usage-view.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, splitList, usageError } from "./args.ts";
import { type CliIo, type Command, EXIT } from "./cli-io.ts";
import {
  CTL_OPTIONS,
  CTL_OPTIONS_HELP,
  openCtlClient,
  reportFailure,
  reportShape,
  type CtlClient,
} from "./ctl-client.ts";
import { formatTable, orDash } from "./table.ts";

const OPTIONS = {
  ...CTL_OPTIONS,
  from: { type: "string" },
  to: { type: "string" },
  key: { type: "string" },
  model: { type: "string" },
  by: { type: "string", default: "day,key,model" },
  output: { type: "string", short: "o", default: "table" },
} as const;

const FORMATS = ["table", "json", "csv"] as const;
/** A million rows are for another program than a terminal. */
const PAGES_MAX = 100;
const NAME_CHARS_MAX = 60;

export const ctlUsage: Command = {
  words: ["ctl", "usage"],
  summary: "show what keys have used: requests, tokens, GPU seconds, cost",
  help: `usage: yardmaster ctl usage [options]

Shows what keys have used, by day of UTC, key and model. A client's key is shown its own alone.

  --from DAY, --to DAY    days of UTC such as 2026-01-31, both included (default: the last ${USAGE_DAYS_SHOWN})
  --key ID --model NAME   only this one
  --by LIST               add up by these alone: ${USAGE_GROUPS.join(", ")} or several of them, parted by commas (default all)
  --output FORMAT, -o FORMAT
                          table (default), json or csv
${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(args, OPTIONS, { names: [] });
    const format = values.json ? "json" : FORMATS.find((name) => name === values.output);
    if (format === undefined) throw usageError(`-o: use one of ${FORMATS.join(", ")}`);
    const params = new URLSearchParams({ group: readGroups(values.by).join(","), limit: String(USAGE_LIMIT_MAX) });
    for (const name of ["from", "to"] as const) {
      const day = values[name];
      if (day === undefined) continue;
      if (parseDay(day) === undefined) throw usageError(`--${name}: use ${USAGE_DAY_HINT}`);
      params.set(name, day);
    }
    if (values.key !== undefined) params.set("key_id", values.key);
    if (values.model !== undefined) params.set("model", values.model);
    return printAll(await openCtlClient(values, io), params, format, io);
  },
};

function readGroups(text: string): UsageGroup[] {
  const names = splitList("by", text);
  const groups = USAGE_GROUPS.filter((name) => names.includes(name));
  if (groups.length !== names.length) throw usageError(`--by: use ${USAGE_GROUPS.join(", ")}, each once`);
  return groups;
}

async function printAll(
  client: CtlClient,
  params: URLSearchParams,
  format: (typeof FORMATS)[number],
  io: CliIo,
): Promise<number> {
  const rows: UsageRowView[] = [];
  for (let pages = 1; ; pages += 1) {
    const answer = await client.request("GET", `/usage?${params.toString()}`);
    if (answer.kind !== "done") return reportFailure(answer, io);
    const parsed = usageView.safeParse(answer.body);
    if (!parsed.success) return reportShape(io);
    const view = parsed.data;
    rows.push(...view.rows);
    if (view.next_cursor !== null && pages < PAGES_MAX) {
      params.set("cursor", view.next_cursor);
      continue;
    }
    print({ ...view, rows }, format, io);
    if (view.unwritten > 0)
      io.err(`the gateway has ${view.unwritten} sums that its store has not taken yet; they are not shown\n`);
    return EXIT.done;
  }
}

function print(view: UsageView, format: (typeof FORMATS)[number], io: CliIo): void {
  const { group, rows, total } = view;
  if (format === "json") return io.out(`${escapeControls(JSON.stringify(view))}\n`);
  if (format === "csv")
    return io.out(usageCsvHead(group, total) + rows.map((row) => usageCsvLine(group, row, total)).join(""));
  io.out(formatUsage(view));
}

function formatUsage({ group, rows, total }: UsageView): string {
  const currencies = currenciesOf(total);
  const head = [
    ...group.map((name) => name.toUpperCase()),
    "REQUESTS",
    "FAILED",
    "REPEATED",
    "PROMPT",
    "ANSWER",
    "CACHED",
    "GPU S",
    ...currencies,
  ];
  const figures = (sums: Omit<UsageRowView, UsageGroup>): string[] => [
    String(sums.requests),
    String(sums.requests - (sums.outcomes.ok ?? 0) - sums.replays - sums.cache_hits),
    String(sums.replays + sums.cache_hits),
    orDash(sums.prompt_tokens),
    orDash(sums.completion_tokens),
    orDash(sums.cached_tokens),
    sums.gpu_seconds.toFixed(1),
    ...currencies.map((code) => (sums.cost[code] ?? 0).toFixed(4)),
  ];
  const lines = rows.map((row) => [...group.map((name) => shortened(orDash(row[name] ?? null))), ...figures(row)]);
  const last = ["total", ...group.slice(1).map(() => ""), ...figures(total)];
  return formatTable(head, [...lines, last]) + remark(total.tokens_unknown);
}

const remark = (unknown: number): string =>
  unknown === 0 ? "" : `of ${unknown} requests no engine has said how many tokens they used\n`;

const shortened = (text: string): string =>
  text.length > NAME_CHARS_MAX ? `${text.slice(0, NAME_CHARS_MAX - 1).toWellFormed()}…` : text;
