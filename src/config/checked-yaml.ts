import { hash } from "node:crypto";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import type { z } from "zod";
import type { Env } from "../contract/resolve-config.ts";
import type { FieldPath } from "../contract/schema-fields.ts";
import { formatPath } from "./config-problem.ts";
import type { ConfigProblem } from "./config-problem.ts";
import { describeFound, describeIssue, valueAt } from "./describe-issue.ts";
import type { Finding } from "./finding.ts";
import { parseYaml } from "./yaml-tree.ts";
import type { Position, YamlTree } from "./yaml-tree.ts";

/** A YAML text against its schema and what its keys mean together: everything wrong with it at once, each with its place. */
export interface YamlRules<Schema extends z.ZodType> {
  readonly schema: Schema;
  /** Null: the text may not refer to environment variables. */
  readonly env: Env | null;
  readonly findingsOf: (raw: unknown) => readonly Finding[];
  readonly bytesMax: number;
  /** What is wrong with a text without content. */
  readonly emptyMessage: string;
}

export interface InvalidYaml {
  readonly kind: "invalid";
  readonly problems: readonly ConfigProblem[];
}

export type CheckedYaml<T> =
  | {
      readonly kind: "valid";
      readonly data: T;
      readonly warnings: readonly string[];
      /** SHA-256 of the text. */
      readonly digest: string;
    }
  | InvalidYaml;

const TOP: Position = { line: 1, column: 1 };

/** No environment variable's value and no secret is in any message. */
export function checkYaml<Schema extends z.ZodType>(
  text: string,
  source: string,
  rules: YamlRules<Schema>,
): CheckedYaml<z.output<Schema>> {
  if (Buffer.byteLength(text) > rules.bytesMax)
    return refuseFile(source, `the file is larger than ${rules.bytesMax} bytes`);
  const parsed = parseYaml(text.startsWith("\uFEFF") ? text.slice(1) : text, rules.env);
  if (parsed.kind === "broken") {
    return {
      kind: "invalid",
      problems: inOrder(
        parsed.problems.map((problem) =>
          toProblem(source, problem.path, problem.position, "", problem.message, problem.hint),
        ),
      ),
    };
  }
  const { tree } = parsed;
  if (tree.value === null) return refuseFile(source, rules.emptyMessage);

  const problems = tree.problems.map((problem) =>
    toProblem(source, problem.path, problem.position, "", problem.message, problem.hint),
  );
  const reported = new Set(problems.map((problem) => problem.path));
  const add = (problem: ConfigProblem): void => {
    if (reported.has(problem.path)) return;
    reported.add(problem.path);
    problems.push(problem);
  };
  const findings = rules.findingsOf(tree.value);
  const checked = rules.schema.safeParse(tree.value);
  const addIssue = (issue: z.core.$ZodIssue): void => {
    const fromEnv = tree.fromEnv.has(formatPath(pathOf(issue)));
    for (const described of describeIssue(issue, rules.schema, tree.value, fromEnv)) {
      const at = tree.locate(described.path, described.at === "key" ? "key" : undefined);
      add(toProblem(source, described.path, at, described.found, described.message, described.hint));
    }
  };
  const issues = Object.groupBy(checked.error?.issues ?? [], (issue) =>
    issue.code === "invalid_type" && valueAt(tree.value, pathOf(issue)) !== undefined ? "first" : "last",
  );
  // A text where a list is wanted is no empty list: what the value as a whole is decides what can be said of it.
  issues.first?.forEach(addIssue);
  for (const finding of findings) if (finding.severity === "mistake") add(findingToProblem(source, finding, tree));
  issues.last?.forEach(addIssue);
  if (problems.length > 0 || !checked.success) return { kind: "invalid", problems: inOrder(problems) };
  const warnings = findings
    .filter((finding) => finding.severity === "warning")
    .map((finding) => findingToWarning(source, finding, tree));
  return { kind: "valid", data: checked.data, warnings, digest: hash("sha256", text, "hex") };
}

const pathOf = (issue: z.core.$ZodIssue): FieldPath =>
  issue.path.map((step) => (typeof step === "number" ? step : String(step)));

export function refuseFile(file: string, message: string): InvalidYaml {
  return { kind: "invalid", problems: [toProblem(file, [], TOP, "", message, undefined)] };
}

function toProblem(
  file: string,
  path: FieldPath,
  at: Position,
  found: string,
  message: string,
  hint: string | undefined,
): ConfigProblem {
  const problem = { file, line: at.line, column: at.column, path: formatPath(path), found, message };
  return hint === undefined ? problem : { ...problem, hint };
}

function findingToProblem(source: string, finding: Finding, tree: YamlTree): ConfigProblem {
  const found =
    finding.first === undefined
      ? ""
      : describeFound(valueAt(tree.value, finding.path), finding.path, tree.fromEnv.has(formatPath(finding.path)));
  return toProblem(source, finding.path, tree.locate(finding.path), found, withFirst(finding, tree), finding.hint);
}

function findingToWarning(source: string, finding: Finding, tree: YamlTree): string {
  const at = tree.locate(finding.path);
  return `${source}:${at.line}:${at.column}: ${formatPath(finding.path)}: ${withFirst(finding, tree)}`;
}

const withFirst = (finding: Finding, tree: YamlTree): string =>
  finding.first === undefined ? finding.message : `${finding.message} (line ${tree.locate(finding.first).line})`;

/** One slip in a generated file can be one in each of its entries. */
const MISTAKES_MAX = 1_000;

function inOrder(problems: readonly ConfigProblem[]): ConfigProblem[] {
  const sorted = problems.toSorted((a, b) => a.line - b.line || a.column - b.column);
  const [first] = sorted.splice(MISTAKES_MAX);
  const more = problems.length - MISTAKES_MAX;
  return first === undefined
    ? sorted
    : [...sorted, toProblem(first.file, [], first, "", `${more} more mistakes from here on are not listed`, undefined)];
}

/** To open a pipe waits for its writer, and whoever waits for the file waits with it: a reload, and all reloads behind it. */
const READ_WITHOUT_WAITING = constants.O_RDONLY | constants.O_NONBLOCK;

/** The whole file as text. One that can't be read is a mistake like another. `mode` is its permission bits. */
export async function readTextFile(
  path: string,
  bytesMax: number,
): Promise<{ readonly kind: "text"; readonly text: string; readonly mode: number } | InvalidYaml> {
  let bytes: Buffer;
  let mode: number;
  try {
    await using file = await open(path, READ_WITHOUT_WAITING);
    const info = await file.stat();
    if (!info.isFile()) return refuseFile(path, "is not a file");
    if (info.size > bytesMax) return refuseFile(path, `the file is larger than ${bytesMax} bytes`);
    mode = info.mode;
    bytes = await file.readFile();
  } catch (err) {
    const code = err instanceof Error && "code" in err ? String(err.code) : "unknown";
    return refuseFile(path, code === "ENOENT" ? "there is no such file" : `the file can't be read (${code})`);
  }
  try {
    return { kind: "text", text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), mode };
  } catch {
    return refuseFile(path, "the file is not UTF-8 text");
  }
}
