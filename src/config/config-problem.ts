import type { FieldPath } from "../contract/schema-fields.ts";

export interface ConfigProblem {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** From 1, in UTF-16 units. */
  readonly column: number;
  /** "upstreams[0].slots"; empty for the file as a whole. */
  readonly path: string;
  /** What stands there, in words; empty where that adds nothing. Never the text of a secret or of an environment variable. */
  readonly found: string;
  readonly message: string;
  readonly hint?: string;
}

export function formatPath(path: FieldPath): string {
  let out = "";
  for (const step of path) {
    if (typeof step === "number") out += `[${step}]`;
    else out += out === "" ? step : `.${step}`;
  }
  return out;
}

const SHOWN_MAX = 50;

function formatProblem(problem: ConfigProblem): string {
  const path = problem.path === "" ? "" : ` ${problem.path}:`;
  const found = problem.found === "" ? "" : ` (found ${problem.found})`;
  return `${problem.file}:${problem.line}:${problem.column}:${path} ${problem.message}${found}`;
}

/** For a terminal: one line per problem, its hint on a second, and a last line with the count. */
export function formatProblems(problems: readonly ConfigProblem[]): string {
  const lines = problems
    .slice(0, SHOWN_MAX)
    .flatMap((problem) =>
      problem.hint === undefined ? [formatProblem(problem)] : [formatProblem(problem), `    hint: ${problem.hint}`],
    );
  if (problems.length > SHOWN_MAX) lines.push(`… and ${problems.length - SHOWN_MAX} more`);
  lines.push(problems.length === 1 ? "1 mistake" : `${problems.length} mistakes`);
  return lines.join("\n");
}

/** For a log line. */
export function formatProblemsInLine(problems: readonly ConfigProblem[]): string {
  const shown = problems
    .slice(0, SHOWN_MAX)
    .map((problem) =>
      problem.hint === undefined ? formatProblem(problem) : `${formatProblem(problem)} [${problem.hint}]`,
    );
  return problems.length > SHOWN_MAX
    ? `${shown.join("; ")}; and ${problems.length - SHOWN_MAX} more`
    : shown.join("; ");
}
