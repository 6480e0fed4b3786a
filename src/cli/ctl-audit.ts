import type { AuditGap, AuditPage, AuditRecord } from "../contract/audit-event.ts";
import { AUDIT_LIMIT_MAX, AUDIT_TIME_HINT, parseAuditTime } from "../contract/audit-params.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import { AuditTable, csvHead, csvRow, describeGap } from "./audit-format.ts";
import { type CliIo, type Command, EXIT } from "./cli-io.ts";
import { CTL_CHAIN_COMMANDS } from "./ctl-audit-chain.ts";
import {
  CTL_OPTIONS,
  CTL_OPTIONS_HELP,
  type CtlAnswer,
  type CtlClient,
  openCtlClient,
  reportFailure,
} from "./ctl-client.ts";

type Format = "json" | "csv" | "table";

const FILTER_OPTIONS = {
  key: { type: "string" },
  model: { type: "string" },
  upstream: { type: "string" },
  outcome: { type: "string" },
  request: { type: "string" },
  limit: { type: "string", short: "n" },
  output: { type: "string", short: "o", default: "table" },
} as const;

const FILTER_HELP = `  --key ID --model NAME --upstream ID --outcome NAME --request ID
                          only events with this value
`;

const FOLLOW_MS = 1_000;

interface FilterValues {
  readonly key?: string | undefined;
  readonly model?: string | undefined;
  readonly upstream?: string | undefined;
  readonly outcome?: string | undefined;
  readonly request?: string | undefined;
  readonly limit?: string | undefined;
  readonly output: string;
  readonly json: boolean;
}

function readFormat(values: FilterValues, allowed: readonly Format[]): Format {
  if (values.json) return "json";
  const format = allowed.find((name) => name === values.output);
  if (format === undefined) throw usageError(`-o: use one of ${allowed.join(", ")}`);
  return format;
}

function readLimit(values: FilterValues, limitDefault: number): number {
  const limit = values.limit === undefined ? limitDefault : Number(values.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > AUDIT_LIMIT_MAX)
    throw usageError(`--limit: use 1 to ${AUDIT_LIMIT_MAX}`);
  return limit;
}

function filterParams(values: FilterValues, limit: number): URLSearchParams {
  const params = new URLSearchParams();
  const filters = {
    key_id: values.key,
    model: values.model,
    upstream: values.upstream,
    outcome: values.outcome,
    request_id: values.request,
  };
  for (const [name, value] of Object.entries(filters)) {
    if (value === "") throw usageError(`--${name.split("_")[0]}: is empty`);
    if (value !== undefined) params.set(name, value);
  }
  params.set("limit", String(limit));
  return params;
}

type PageAnswer = { readonly kind: "page"; readonly page: AuditPage } | Exclude<CtlAnswer, { kind: "done" }>;

async function fetchPage(client: CtlClient, params: URLSearchParams): Promise<PageAnswer> {
  const answer = await client.request("GET", `/admin/audit?${params.toString()}`);
  if (answer.kind !== "done") return answer;
  if (!isPage(answer.body))
    return {
      kind: "refused",
      status: answer.status,
      code: "NOT_AUDIT",
      message: "the answer is no page of audit events: is this a Yardmaster gateway?",
    };
  return { kind: "page", page: answer.body };
}

/** The shape as far as this file relies on it; single values are only ever printed. */
function isPage(body: unknown): body is AuditPage {
  if (typeof body !== "object" || body === null) return false;
  const { records, gaps, lastSeq } = body as Partial<Record<keyof AuditPage, unknown>>;
  return (
    Array.isArray(records) &&
    Array.isArray(gaps) &&
    Number.isSafeInteger(lastSeq) &&
    [...records, ...gaps].every((item) => typeof item === "object" && item !== null)
  );
}

const auditQuery: Command = {
  words: ["ctl", "audit", "query"],
  summary: "print audit events",
  help: `usage: yardmaster ctl audit query [options]

Prints the newest events that match, oldest first, and says on standard error when older ones match too.

  --since T, --until T    ${AUDIT_TIME_HINT}
${FILTER_HELP}  --limit N, -n N         at most N events (default 100)
  --output FORMAT, -o FORMAT
                          table (default), json or csv
${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(
      args,
      { ...CTL_OPTIONS, ...FILTER_OPTIONS, since: { type: "string" }, until: { type: "string" } },
      { names: [] },
    );
    const format = readFormat(values, ["table", "json", "csv"]);
    const limit = readLimit(values, 100);
    // One more than is shown tells whether there are more.
    const params = filterParams(values, Math.min(limit + 1, AUDIT_LIMIT_MAX));
    for (const name of ["since", "until"] as const) {
      const text = values[name];
      if (text === undefined) continue;
      if (parseAuditTime(text, io.clock.wall()) === undefined) throw usageError(`--${name}: use ${AUDIT_TIME_HINT}`);
      params.set(name, text);
    }
    const answer = await fetchPage(await openCtlClient(values, io), params);
    if (answer.kind !== "page") return reportFailure(answer, io);
    const { page } = answer;
    printPage({ ...page, records: page.records.slice(-limit) }, format, io);
    tellOfMore(page.records.length, limit, io);
    return EXIT.done;
  },
};

function printPage(page: AuditPage, format: Format, io: CliIo): void {
  if (format === "json") return io.out(jsonLine(page));
  if (format === "csv") {
    io.out(csvHead() + page.records.map(csvRow).join(""));
  } else {
    const table = new AuditTable();
    table.fit(page.records);
    io.out(table.head() + page.records.map((record) => table.row(record)).join(""));
  }
  const first = page.records[0];
  for (const gap of page.gaps)
    if (first === undefined || gap.afterSeq >= first.seq - 1) io.err(`gap ${describeGap(gap)}\n`);
  if (page.dropped > 0) io.err(`the gateway has dropped ${page.dropped} events since it started\n`);
}

/** `found`: as many as the gateway gave, which may be one more than are shown. */
function tellOfMore(found: number, limit: number, io: CliIo): void {
  if (found > limit) io.err(`only the newest ${limit} of the events that match are shown; ${MORE_HINT}\n`);
  else if (found === AUDIT_LIMIT_MAX)
    io.err(`the newest ${limit} of the events that match are shown, and there may be more; ${MORE_HINT}\n`);
}

const MORE_HINT = `--limit takes up to ${AUDIT_LIMIT_MAX}, --since and --until choose others`;

const auditTail: Command = {
  words: ["ctl", "audit", "tail"],
  summary: "print the last audit events, and new ones as they come",
  help: `usage: yardmaster ctl audit tail [--follow] [options]

Prints the last events that match, oldest first. With --follow it goes on with new ones until it is
interrupted, also over a restart of the gateway.

  --follow, -f            go on with new events
${FILTER_HELP}  --limit N, -n N         begin with at most N events (default 20)
  --output FORMAT, -o FORMAT
                          table (default), or json: one object a line
${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(
      args,
      { ...CTL_OPTIONS, ...FILTER_OPTIONS, follow: { type: "boolean", short: "f", default: false } },
      { names: [] },
    );
    const format = readFormat(values, ["table", "json"]);
    const params = filterParams(values, readLimit(values, 20));
    const client = await openCtlClient(values, io);
    const first = await fetchPage(client, params);
    if (first.kind !== "page") return reportFailure(first, io);
    const printer = new TailPrinter(format, io);
    printer.begin(first.page);
    return values.follow ? follow(client, params, first.page, printer, io) : EXIT.done;
  },
};

async function follow(
  client: CtlClient,
  params: URLSearchParams,
  first: AuditPage,
  printer: TailPrinter,
  io: CliIo,
): Promise<number> {
  params.set("limit", "1000");
  let cursor = cursorAfter(first, 0);
  let away = false;
  for (;;) {
    try {
      await io.clock.sleep(FOLLOW_MS, io.signal);
      for (let full = true; full;) {
        params.set("after_seq", String(cursor));
        const answer = await fetchPage(client, params);
        // A gateway that restarts, or that has the file locked for a moment, comes back; one that refuses the key does not.
        if (answer.kind === "unreachable" || (answer.kind === "refused" && answer.status >= 500)) {
          if (!away) reportFailure(answer, io);
          away = true;
          break;
        }
        if (answer.kind === "refused") return reportFailure(answer, io);
        away = false;
        printer.more(answer.page);
        full = answer.page.records.length >= 1_000;
        cursor = full ? (answer.page.records.at(-1)?.seq ?? cursor) : cursorAfter(answer.page, cursor);
      }
    } catch (err) {
      if (io.signal.aborted) return EXIT.done;
      throw err;
    }
  }
}

/** All up to here was seen. A store that was begun anew has lower numbers: it is followed from its begin. */
function cursorAfter(page: AuditPage, before: number): number {
  const last = page.records.at(-1)?.seq ?? 0;
  return page.lastSeq < before ? 0 : Math.max(page.lastSeq, last);
}

/** Prints pages one after another; a gap is told once, at its place. */
class TailPrinter {
  readonly #format: Format;
  readonly #io: CliIo;
  readonly #table = new AuditTable();
  #told = new Set<string>();

  constructor(format: Format, io: CliIo) {
    this.#format = format;
    this.#io = io;
  }

  begin(page: AuditPage): void {
    this.#table.fit(page.records);
    if (this.#format === "table") this.#io.out(this.#table.head());
    const from = (page.records[0]?.seq ?? Infinity) - 1;
    this.#print(
      page.records,
      page.gaps.filter((gap) => gap.afterSeq >= from),
    );
    this.#told = new Set(page.gaps.map(gapKey));
  }

  more(page: AuditPage): void {
    this.#table.fit(page.records);
    this.#print(
      page.records,
      page.gaps.filter((gap) => !this.#told.has(gapKey(gap))),
    );
    this.#told = new Set(page.gaps.map(gapKey));
  }

  #print(records: readonly AuditRecord[], gaps: readonly AuditGap[]): void {
    let next = 0;
    const tellUpTo = (seq: number): void => {
      for (; next < gaps.length && (gaps[next] as AuditGap).afterSeq < seq; next += 1)
        this.#tell(gaps[next] as AuditGap);
    };
    for (const record of records) {
      tellUpTo(record.seq);
      this.#io.out(this.#format === "json" ? jsonLine(record) : this.#table.row(record));
    }
    tellUpTo(Infinity);
  }

  #tell(gap: AuditGap): void {
    this.#io.out(this.#format === "json" ? jsonLine({ gap }) : `-- gap ${describeGap(gap)}\n`);
  }
}

/** Controls that JSON leaves as they are (C1, bidirectional overrides) become escapes, which JSON reads as the same text. */
const jsonLine = (value: unknown): string => `${escapeControls(JSON.stringify(value))}\n`;

const gapKey = (gap: AuditGap): string => `${gap.why} ${gap.afterSeq} ${gap.time}`;

export const CTL_AUDIT_COMMANDS: readonly Command[] = [auditTail, auditQuery, ...CTL_CHAIN_COMMANDS];
