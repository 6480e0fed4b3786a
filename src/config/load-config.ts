import { hash } from "node:crypto";
import { open } from "node:fs/promises";
import { configFile } from "../contract/config-schema.ts";
import type { ConfigFile } from "../contract/config-schema.ts";
import { resolveConfig } from "../contract/resolve-config.ts";
import type { ConfigOverrides, Env, GatewayConfig } from "../contract/resolve-config.ts";
import type { FieldPath } from "../contract/schema-fields.ts";
import { formatPath } from "./config-problem.ts";
import type { ConfigProblem } from "./config-problem.ts";
import { crossCheck } from "./cross-check.ts";
import type { Finding } from "./cross-check.ts";
import { describeFound, describeIssue, valueAt } from "./describe-issue.ts";
import { parseYaml } from "./yaml-tree.ts";
import type { Position, YamlTree } from "./yaml-tree.ts";

/** `digest` names the text: the same text in the same environment is the same configuration. */
export type LoadedConfig =
  | {
      readonly kind: "valid";
      readonly config: GatewayConfig;
      readonly file: ConfigFile;
      readonly warnings: readonly string[];
      readonly digest: string;
    }
  | { readonly kind: "invalid"; readonly problems: readonly ConfigProblem[] };

export const CONFIG_BYTES_MAX = 1_048_576;

const TOP: Position = { line: 1, column: 1 };

/** All mistakes at once. No environment variable's value and no secret is in any message. */
export function parseConfigText(text: string, source: string, env: Env, overrides: ConfigOverrides = {}): LoadedConfig {
  if (Buffer.byteLength(text) > CONFIG_BYTES_MAX)
    return refuse(source, `the file is larger than ${CONFIG_BYTES_MAX} bytes`);
  const parsed = parseYaml(text.startsWith("\uFEFF") ? text.slice(1) : text, env);
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
  if (tree.value === null) return refuse(source, "the file is empty: `upstreams` is missing");

  const problems = tree.problems.map((problem) =>
    toProblem(source, problem.path, problem.position, "", problem.message, problem.hint),
  );
  const reported = new Set(problems.map((problem) => problem.path));
  const add = (problem: ConfigProblem): void => {
    if (reported.has(problem.path)) return;
    reported.add(problem.path);
    problems.push(problem);
  };
  const findings = crossCheck(tree.value, env, overrides);
  for (const finding of findings) if (finding.severity === "mistake") add(findingToProblem(source, finding, tree));
  const checked = configFile.safeParse(tree.value);
  for (const issue of checked.error?.issues ?? []) {
    const fromEnv = tree.fromEnv.has(
      formatPath(issue.path.map((step) => (typeof step === "number" ? step : String(step)))),
    );
    for (const described of describeIssue(issue, configFile, tree.value, fromEnv)) {
      add(
        toProblem(
          source,
          described.path,
          tree.locate(described.path, described.at === "key" ? "key" : undefined),
          described.found,
          described.message,
          described.hint,
        ),
      );
    }
  }
  if (problems.length > 0 || !checked.success) return { kind: "invalid", problems: inOrder(problems) };
  const warnings = findings
    .filter((finding) => finding.severity === "warning")
    .map((finding) => findingToWarning(source, finding, tree));
  return {
    kind: "valid",
    config: resolveConfig(checked.data, env, overrides),
    file: checked.data,
    warnings,
    digest: hash("sha256", text, "hex"),
  };
}

function refuse(file: string, message: string): LoadedConfig {
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

const inOrder = (problems: readonly ConfigProblem[]): ConfigProblem[] =>
  problems.toSorted((a, b) => a.line - b.line || a.column - b.column);

/** Group or others may read. */
const SHARED_READ = 0o044;
/** scheme://user:password@ or scheme://:password@ in the text itself; one that comes from the environment is not in the file. */
const PASSWORD_IN_URL = /^\s*(?:redis_url|database_url)\s*:\s*["']?[a-z]+:\/\/[^\s@/]*:(?!\$\{)[^\s@/]+@/m;

/** Reads the file and parses it. A file that can't be read is a mistake like another. */
export async function loadConfigFile(path: string, env: Env, overrides: ConfigOverrides = {}): Promise<LoadedConfig> {
  let bytes: Buffer;
  let mode: number;
  try {
    await using file = await open(path, "r");
    const info = await file.stat();
    if (!info.isFile()) return refuse(path, "is not a file");
    if (info.size > CONFIG_BYTES_MAX) return refuse(path, `the file is larger than ${CONFIG_BYTES_MAX} bytes`);
    mode = info.mode;
    bytes = await file.readFile();
  } catch (err) {
    const code = err instanceof Error && "code" in err ? String(err.code) : "unknown";
    return refuse(path, code === "ENOENT" ? "there is no such file" : `the file can't be read (${code})`);
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return refuse(path, "the file is not UTF-8 text");
  }
  const loaded = parseConfigText(text, path, env, overrides);
  if (loaded.kind === "invalid" || (mode & SHARED_READ) === 0 || !PASSWORD_IN_URL.test(text)) return loaded;
  return {
    ...loaded,
    warnings: [
      ...loaded.warnings,
      `${path}: holds a password and can be read by others; run chmod 600, or put the URL in an environment variable`,
    ],
  };
}
