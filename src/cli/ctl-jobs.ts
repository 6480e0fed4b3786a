import { z } from "zod";
import { JOB_STATES } from "../contract/job.ts";
import { jobView, type JobView } from "../contract/job-view.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import type { Command } from "./cli-io.ts";
import { CTL_OPTIONS, CTL_OPTIONS_HELP, openCtlClient, showAnswer } from "./ctl-client.ts";
import { formatTable, type TableShape } from "./table.ts";

const jobPage = z
  .object({ data: z.array(jobView), next_cursor: z.string().nullable() })
  .transform(({ data, next_cursor }) => ({ jobs: data, next_cursor }));

const LIST_OPTIONS = {
  ...CTL_OPTIONS,
  state: { type: "string" },
  limit: { type: "string", default: "20" },
  cursor: { type: "string" },
} as const;

/** Ids go into the path, where a slash would mean something else. */
function readId(text: string | undefined): string {
  if (text === undefined || !/^[A-Za-z0-9_-]{1,100}$/.test(text)) throw usageError("ID: use the id of a job");
  return text;
}

const list: Command = {
  words: ["ctl", "jobs", "list"],
  summary: "list the jobs of a running gateway",
  help: `usage: yardmaster ctl jobs list [options]\n\nLists jobs, the newest first: all of them for an operator's key, else one's own.\n\n  --state STATE           ${JOB_STATES.join(", ")}\n  --limit N               1 to 100 (default 20)\n  --cursor C              go on behind a page before\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values } = readArgs(args, LIST_OPTIONS, { names: [] });
    const query = new URLSearchParams({ limit: values.limit });
    if (values.state !== undefined) query.set("state", values.state);
    if (values.cursor !== undefined) query.set("cursor", values.cursor);
    const client = await openCtlClient(values, io);
    const answer = await client.request("GET", `/v1/jobs?${query.toString()}`);
    return showAnswer(
      answer,
      jobPage,
      values,
      io,
      ({ jobs, next_cursor }, shape) => formatJobs(jobs, shape) + more(next_cursor),
    );
  },
};

const shown: Command = {
  words: ["ctl", "jobs", "show"],
  summary: "show a job, and what was decided about it",
  help: `usage: yardmaster ctl jobs show ID [options]\n\nShows where a job stands, and each decision with its reason.\n\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, CTL_OPTIONS, { names: ["ID"] });
    const client = await openCtlClient(values, io);
    const answer = await client.request("GET", `/v1/jobs/${readId(positionals[0])}`);
    return showAnswer(answer, jobView, values, io, formatJob);
  },
};

const cancel: Command = {
  words: ["ctl", "jobs", "cancel"],
  summary: "end a job",
  help: `usage: yardmaster ctl jobs cancel ID [options]\n\nEnds a job that has not ended; a running engine call is aborted at once.\n\n${CTL_OPTIONS_HELP}`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, CTL_OPTIONS, { names: ["ID"] });
    const client = await openCtlClient(values, io);
    const answer = await client.request("DELETE", `/v1/jobs/${readId(positionals[0])}`);
    return showAnswer(answer, jobView, values, io, (job) => `job ${escapeControls(job.id)} is ${job.state}\n`);
  },
};

const more = (cursor: string | null): string => (cursor === null ? "" : `more: --cursor ${escapeControls(cursor)}\n`);

function formatJobs(jobs: readonly JobView[], shape: TableShape): string {
  const rows = jobs.map((job) => [
    job.id,
    job.state,
    job.class,
    job.model ?? job.upstream ?? "-",
    job.key,
    job.created_at,
    `${job.progress.done}/${job.progress.total}`,
    `${job.attempts}/${job.max_attempts}`,
    job.error?.code ?? "-",
  ]);
  return formatTable(["ID", "STATE", "CLASS", "FOR", "KEY", "CREATED", "DONE", "ATTEMPTS", "ERROR"], rows, shape);
}

function formatJob(job: JobView): string {
  const facts: readonly (readonly [string, string])[] = [
    ["job", job.id],
    ["state", job.state],
    ["for", `${job.method} ${job.path} of ${job.model ?? job.upstream ?? "-"}, class ${job.class}, key ${job.key}`],
    ["created", job.created_at],
    ["started", job.started_at ?? "-"],
    ["ended", job.ended_at ?? "-"],
    ["done", `${job.progress.done} of ${job.progress.total}`],
    ["attempts", `${job.attempts} of ${job.max_attempts}`],
    ["error", job.error === null ? "-" : `${job.error.code}: ${job.error.message}`],
    ["callback", job.callback === null ? "-" : `${job.callback.state}, ${job.callback.tries} tries`],
  ];
  const plan = job.plan.map(({ at, what, why }) => `  ${at}  ${what}: ${why}`);
  return [...facts.map(([name, value]) => `${name.padEnd(9)} ${value}`), "decided:", ...plan]
    .map((text) => `${escapeControls(text)}\n`)
    .join("");
}

export const ctlJobCommands: readonly Command[] = [list, shown, cancel];
