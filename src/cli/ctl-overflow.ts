import {
  approvalsView,
  approvalView,
  overflowStateView,
  spendView,
  type ApprovalView,
  type OverflowStateView,
  type SpendView,
} from "../contract/overflow-view.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import { EXIT } from "./cli-io.ts";
import type { Command } from "./cli-io.ts";
import { CTL_OPTIONS, CTL_OPTIONS_HELP, openCtlClient, reportFailure, showAnswer } from "./ctl-client.ts";
import { formatTable, orDash } from "./table.ts";

const APPROVE_OPTIONS = {
  ...CTL_OPTIONS,
  tier: { type: "string" },
  "max-price": { type: "string" },
  "expires-s": { type: "string", default: "3600" },
  hash: { type: "string" },
  revoke: { type: "boolean", default: false },
  list: { type: "boolean", default: false },
} as const;

const SPEND_OPTIONS = {
  ...CTL_OPTIONS,
  why: { type: "string", default: "" },
  charged: { type: "string" },
  nothing: { type: "boolean", default: false },
} as const;

const overflow: Command = {
  words: ["ctl", "overflow"],
  summary: "show why an upstream's work would or would not go elsewhere now",
  help: `usage: yardmaster ctl overflow UPSTREAM [options]\n\nReads every signal now, and shows what each tier lacks. Nothing is sent or spent.\n\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, CTL_OPTIONS, { names: ["UPSTREAM"] });
    const client = await openCtlClient(values, io);
    const answer = await client.request("GET", `/overflow/${encodeURIComponent(positionals[0] ?? "")}`);
    return showAnswer(answer, overflowStateView, values, io, formatState);
  },
};

const approve: Command = {
  words: ["ctl", "approve"],
  summary: "approve that a job goes to a tier, for so much money",
  help: `usage: yardmaster ctl approve [JOB --tier TIER (--max-price N | --revoke)] [--list] [options]\n\nApproves one job for one tier (\`approval: per_job\`): once, for what it asks for now, up to a price, for a time.\n\n  --tier TIER             the tier\n  --max-price N           at most this much, in the tier's currency\n  --expires-s N           how long the approval counts (default 3600)\n  --hash HASH             approve only this content, as \`--list\` and earlier answers show it\n  --revoke                take the approval back\n  --list                  list the approvals there are\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, APPROVE_OPTIONS, { names: ["JOB"], optional: true });
    const client = await openCtlClient(values, io);
    if (values.list) {
      const answer = await client.request("GET", "/admin/overflow/approvals");
      return showAnswer(answer, approvalsView, values, io, ({ data }) => formatApprovals(data));
    }
    const job = idIn(positionals[0], "JOB");
    const tier = idIn(values.tier, "--tier");
    if (values.revoke) {
      const answer = await client.request("DELETE", `/admin/overflow/approvals/${tier}/${job}`);
      return showAnswer(answer, approvalView, values, io, (view) => formatApprovals([view]));
    }
    const body = {
      job,
      tier,
      max_price: amountIn(values["max-price"], "--max-price"),
      expires_s: amountIn(values["expires-s"], "--expires-s"),
      ...(values.hash === undefined ? {} : { content_hash: values.hash }),
    };
    const answer = await client.request("POST", "/admin/overflow/approvals", body);
    return showAnswer(answer, approvalView, values, io, (view) => formatApprovals([view]));
  },
};

const spend: Command = {
  words: ["ctl", "spend"],
  summary: "show what was spent, stop spending, or settle what nobody knows",
  help: `usage: yardmaster ctl spend [show | stop | go | resume TIER | settle ID | accept] [options]\n\n  show                    what each tier has cost, and what is held (the default)\n  stop                    nothing more is spent from now on, by any gateway\n  go                      takes the stop back\n  resume TIER             lets a tier go on that was halted: its price has changed, or it refuses the account\n  settle ID               says what became of a reservation whose outcome nobody knew: --charged N or --nothing\n  accept                  takes the ledger for the right one after it was emptied; say it to each gateway\n\n  --why TEXT              of a stop\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, SPEND_OPTIONS, { names: ["WHAT", "ID"], optional: true });
    const client = await openCtlClient(values, io);
    const [what = "show", id] = positionals;
    const act = async (path: string, body?: unknown): Promise<number> => {
      const answer = await client.request("POST", `/admin/overflow/${path}`, body);
      if (answer.kind !== "done") return reportFailure(answer, io);
      io.out(values.json ? `${JSON.stringify(answer.body)}\n` : "done\n");
      return EXIT.done;
    };
    switch (what) {
      case "show":
        return showAnswer(await client.request("GET", "/admin/overflow/spend"), spendView, values, io, formatSpend);
      case "stop":
        return act("stop", { why: values.why });
      case "go":
      case "accept":
        return act(what);
      case "resume":
        return act(`tiers/${idIn(id, "TIER")}/resume`);
      case "settle": {
        if (values.nothing === (values.charged !== undefined)) throw usageError("say either --charged N or --nothing");
        const charged = values.nothing ? null : amountIn(values.charged, "--charged");
        if (id === undefined || id === "") throw usageError("ID: is missing");
        return act(`reservations/${encodeURIComponent(id)}`, { charged });
      }
      default:
        throw usageError("ctl spend: use show, stop, go, resume, settle or accept");
    }
  },
};

function idIn(text: string | undefined, name: string): string {
  if (text === undefined || !/^[A-Za-z0-9._-]{1,100}$/.test(text)) throw usageError(`${name}: is missing, or no id`);
  return text;
}

function amountIn(text: string | undefined, name: string): number {
  const amount = Number(text ?? "x");
  if (!Number.isFinite(amount) || amount < 0) throw usageError(`${name}: use a number of 0 or more`);
  return amount;
}

function formatState(state: OverflowStateView): string {
  const facts = [
    `upstream ${state.upstream}: ${state.card ?? "-"}${state.why === "" ? "" : ` (${state.why})`}`,
    `a job would go to: ${state.would_go_to ?? "nobody else, it stays here"}`,
  ];
  const signals = state.signals.map(({ kind, state: is, reason }) => [kind, is, reason]);
  const tiers = state.tiers.map((tier) => [
    tier.id,
    tier.provider,
    tier.approved ? tier.approval : "not approved",
    `${tier.in_flight}`,
    tier.breaker,
    orDash(tier.missing.join(", ")),
  ]);
  return [
    facts.map((line) => `${escapeControls(line)}\n`).join(""),
    `\n${formatTable(["SIGNAL", "STATE", "REASON"], signals)}`,
    `\n${formatTable(["TIER", "PROVIDER", "APPROVAL", "IN FLIGHT", "BREAKER", "MISSING"], tiers)}`,
    ...state.tiers.flatMap(({ id, halted }) =>
      halted === null ? [] : [`\n${escapeControls(haltInWords(id, halted))}\n`],
    ),
  ].join("");
}

const haltInWords = (tier: string, { at, why, until }: NonNullable<SpendView["tiers"][number]["halted"]>): string =>
  `tier ${tier} is asked for nothing since ${at}: ${why}; ${
    until === null ? "" : `it is looked at again at ${until}, when its configuration changes, or `
  }\`ctl spend resume ${tier}\` lets it go on`;

const formatApprovals = (approvals: readonly ApprovalView[]): string =>
  formatTable(
    ["TIER", "JOB", "MAX", "BY", "EXPIRES", "STATE", "HASH"],
    approvals.map((each) => [
      each.tier,
      each.job,
      `${each.max_price} ${each.currency}`,
      each.by,
      each.expires_at,
      each.state,
      each.content_hash.slice(0, 12),
    ]),
  );

function formatSpend(view: SpendView): string {
  const { stopped, refuses } = view;
  const allowed = refuses === null ? "spending is allowed" : `nothing is spent: ${refuses}`;
  const head = stopped === null ? allowed : `stopped by ${stopped.by} at ${stopped.at}: ${stopped.why}`;
  const tiers = view.tiers.map((tier) => [
    tier.tier,
    orDash(tier.currency),
    `${tier.spent_today} + ${tier.reserved_today} of ${tier.per_day ?? "-"}`,
    `${tier.spent_this_month} + ${tier.reserved_this_month} of ${tier.per_month ?? "-"}`,
    orDash(tier.halted?.why ?? null),
  ]);
  const open = view.open.map((each) => [each.id, each.state, `${each.reserved} ${each.currency}`, each.at, each.why]);
  return [
    escapeControls(head),
    `\n\n${formatTable(["TIER", "CURRENCY", "TODAY (SPENT + HELD)", "THIS MONTH", "HALTED"], tiers)}`,
    `\n${formatTable(["RESERVATION", "STATE", "HELD", "SINCE", "WHY"], open)}`,
  ].join("");
}

export const ctlOverflowCommands: readonly Command[] = [overflow, approve, spend];
