import { readFile } from "node:fs/promises";
import { z } from "zod";
import { formatProblems } from "../config/config-problem.ts";
import { CATALOG_BYTES_MAX, loadCatalogFile } from "../config/load-catalog.ts";
import {
  appliedView,
  catalogView,
  CONTROL_ROUTES,
  type DiffAnswer,
  diffView,
  refusalDetails,
  revisionView,
} from "../contract/control-api.ts";
import { escapeControls } from "../kernel/log.ts";
import { readArgs, usageError } from "./args.ts";
import { type CliIo, type Command, EXIT } from "./cli-io.ts";
import { type CtlAnswer, reportFailure, TextBody } from "./ctl-client.ts";
import { type ControlCall, controlCommand, show, showAnswer } from "./ctl-control.ts";
import { formatTable } from "./table.ts";

async function readCatalogFile(path: string): Promise<TextBody> {
  try {
    const text = await readFile(path, "utf8");
    if (text.length > CATALOG_BYTES_MAX) throw usageError(`${path}: is larger than ${CATALOG_BYTES_MAX} bytes`);
    return new TextBody("application/yaml", text);
  } catch (err) {
    if (err instanceof Error && "code" in err && err.code !== "USAGE")
      throw usageError(`${path}: can't be read (${String(err.code)})`);
    throw err;
  }
}

function formatDiff(diff: DiffAnswer): string {
  const rows = [
    ...diff.added.map((model) => ["+", model, ""]),
    ...diff.removed.map((model) => ["-", model, ""]),
    ...diff.changed.map(({ model, fields }) => ["~", model, fields.join(", ")]),
  ];
  const warnings = diff.warnings.map((line) => `warning: ${escapeControls(line)}\n`).join("");
  if (rows.length === 0) return `no model differs from revision ${diff.base}\n${warnings}`;
  const harm = diff.lost === 0 ? "" : `takes away ${diff.lost} of ${diff.replicas} replicas\n`;
  return `${formatTable(["", "MODEL", "CHANGED"], rows)}${harm}${warnings}`;
}

/** A refusal with what it says beside its message: each mistake, or the change that waits and how to confirm it. */
function reportRefusal(
  answer: Exclude<CtlAnswer, { kind: "done" }>,
  io: CliIo,
  source: string,
  confirm: string,
): number {
  const details = answer.kind === "refused" ? refusalDetails.safeParse(answer.details) : undefined;
  const { problems, diff } = details?.data ?? {};
  if (problems !== undefined) {
    const placed = problems.map(({ hint, ...problem }) => ({
      ...problem,
      file: source,
      ...(hint === undefined ? {} : { hint }),
    }));
    io.err(`${formatProblems(placed)}\n`);
    return EXIT.failed;
  }
  const code = reportFailure(answer, io, "control plane");
  if (diff !== undefined)
    io.err(`${formatDiff(diff)}to do it all the same: ${confirm} --confirm ${escapeControls(diff.token)}\n`);
  return code;
}

const showApplied = (call: ControlCall<unknown>, answer: CtlAnswer): number =>
  showAnswer(call, answer, appliedView, ({ revision, changed, diff }) =>
    changed
      ? `applied as revision ${revision}\n${diff === null ? "" : formatDiff(diff)}`
      : `revision ${revision} is the same text: nothing changed\n`,
  );

const ifMatch = (revision: string | undefined): Record<string, string> => {
  if (revision === undefined) return {};
  if (!/^\d{1,15}$/.test(revision)) throw usageError("--if-revision: use the number of a revision");
  return { "if-match": `"${revision}"` };
};

const CHANGE_OPTIONS = { confirm: { type: "string" }, "if-revision": { type: "string" } } as const;
const CHANGE_HELP = `  --confirm TOKEN         do what was refused because it takes much away
  --if-revision N         only if the catalog still is revision N
`;

const apply = controlCommand({
  words: ["ctl", "catalog", "apply"],
  names: ["FILE"],
  summary: "put a catalog in force",
  about:
    "Checked whole and taken whole, or refused with every mistake. A change that takes much away asks for a confirmation.",
  optionsHelp: CHANGE_HELP,
  options: CHANGE_OPTIONS,
  act: async (call) => {
    const { client, io, values, positionals } = call;
    const [path = ""] = positionals;
    const query = values.confirm === undefined ? "" : `?${new URLSearchParams({ confirm: values.confirm }).toString()}`;
    const body = await readCatalogFile(path);
    const answer = await client.request(
      "PUT",
      `${CONTROL_ROUTES.catalog}${query}`,
      body,
      ifMatch(values["if-revision"]),
    );
    if (answer.kind !== "done") return reportRefusal(answer, io, path, `yardmaster ctl catalog apply ${path}`);
    return showApplied(call, answer);
  },
});

const diff = controlCommand({
  words: ["ctl", "catalog", "diff"],
  names: ["FILE"],
  summary: "show what a catalog would change",
  about: "Changes nothing.",
  options: {},
  act: async (call) => {
    const { client, io, positionals } = call;
    const [path = ""] = positionals;
    const answer = await client.request("POST", CONTROL_ROUTES.catalogDiff, await readCatalogFile(path));
    if (answer.kind !== "done") return reportRefusal(answer, io, path, "");
    return showAnswer(call, answer, diffView, formatDiff);
  },
});

const rollback = controlCommand({
  words: ["ctl", "catalog", "rollback"],
  names: ["REVISION"],
  summary: "bring an earlier catalog back, as a new revision",
  about: "The revisions are listed by `ctl catalog history`.",
  optionsHelp: CHANGE_HELP,
  options: CHANGE_OPTIONS,
  act: async (call) => {
    const { client, io, values, positionals } = call;
    const revision = revisionOf(positionals);
    const body = { revision, ...(values.confirm === undefined ? {} : { confirm: values.confirm }) };
    const answer = await client.request("POST", CONTROL_ROUTES.catalogRollback, body, ifMatch(values["if-revision"]));
    if (answer.kind !== "done")
      return reportRefusal(answer, io, `revision ${revision}`, `yardmaster ctl catalog rollback ${revision}`);
    return showApplied(call, answer);
  },
});

function revisionOf([text = ""]: readonly string[]): number {
  if (!/^[1-9]\d{0,14}$/.test(text)) throw usageError("REVISION: use the number of a revision");
  return Number(text);
}

const confirm = controlCommand({
  words: ["ctl", "catalog", "confirm"],
  names: ["TOKEN"],
  summary: "let the watched file's change through that waits",
  about: "The log, `ctl status` and `ctl events` name the token.",
  options: {},
  act: async (call) => {
    const { client, io, positionals } = call;
    const answer = await client.request("POST", CONTROL_ROUTES.catalogConfirm, { token: positionals[0] });
    if (answer.kind !== "done") return reportRefusal(answer, io, "the file", "");
    return showApplied(call, answer);
  },
});

const history = controlCommand({
  words: ["ctl", "catalog", "history"],
  summary: "list the catalog's revisions",
  about: "Newest first.",
  optionsHelp: "  --limit N, -n N         at most N revisions (default 20)\n",
  options: { limit: { type: "string", short: "n", default: "20" } },
  act: (call) =>
    show(
      call,
      `${CONTROL_ROUTES.catalogHistory}?${new URLSearchParams({ limit: call.values.limit }).toString()}`,
      z.object({ revisions: z.array(revisionView) }),
      ({ revisions }, shape) =>
        formatTable(
          ["REVISION", "TIME", "AUTHOR", "ORIGIN", "DIGEST"],
          revisions.map(({ revision, at, author, origin, digest }) => [
            String(revision),
            at,
            author,
            origin,
            digest.slice(0, 12),
          ]),
          shape,
        ),
    ),
});

const print = controlCommand({
  words: ["ctl", "catalog", "show"],
  summary: "print the catalog in force, or an earlier one",
  about: "Prints the text as it was given.",
  optionsHelp: "  --revision N            an earlier revision\n",
  options: { revision: { type: "string" } },
  act: (call: ControlCall<{ readonly revision?: string | undefined }>) => {
    const { revision } = call.values;
    const path =
      revision === undefined ? CONTROL_ROUTES.catalog : `${CONTROL_ROUTES.catalogRevisions}/${revisionOf([revision])}`;
    return show(call, path, catalogView, ({ text }) => (text.endsWith("\n") ? text : `${text}\n`));
  },
});

/** Asks nobody: for an editor's save, and for CI. */
const check: Command = {
  words: ["ctl", "catalog", "check"],
  summary: "check a catalog file without a control plane",
  help: `usage: yardmaster ctl catalog check FILE [options]

Reports every mistake with its place. Nothing is asked or changed.

  --output json, -o json  JSON on standard output, and nothing else there
  --help                  this text

exit codes: 0 valid (warnings are on standard error), 2 not valid
`,
  async run(args, io) {
    const { values, positionals } = readArgs(args, { json: { type: "boolean", default: false } }, { names: ["FILE"] });
    const [path = ""] = positionals;
    const loaded = await loadCatalogFile(path);
    if (loaded.kind === "invalid") {
      if (values.json) io.out(`${JSON.stringify({ valid: false, problems: loaded.problems, warnings: [] })}\n`);
      io.err(`${formatProblems(loaded.problems)}\n`);
      return EXIT.usage;
    }
    for (const line of loaded.warnings) io.err(`warning: ${line}\n`);
    const { models } = loaded.data;
    io.out(
      values.json
        ? `${JSON.stringify({ valid: true, problems: [], warnings: loaded.warnings })}\n`
        : `${path}: valid; models: ${models.length}\n`,
    );
    return EXIT.done;
  },
};

export const ctlCatalogCommands: readonly Command[] = [apply, diff, history, rollback, print, confirm, check];
