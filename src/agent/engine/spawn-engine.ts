import { spawn, type ChildProcess } from "node:child_process";
import { rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { PASSED_ON, PROOF_VARIABLE } from "../../decide/agent/launch/environment.ts";
import type { Launch } from "../../decide/agent/launch/launch-plan.ts";
import type { Secret } from "../../kernel/secret.ts";
import { makeFolder } from "../../kernel/make-folder.ts";
import type { EngineLog } from "./engine-log.ts";

export type Spawned =
  | { readonly kind: "spawned"; readonly child: ChildProcess; readonly pid: number }
  | { readonly kind: "failed"; readonly why: string };

/**
 * Starts an engine in a session and group of its own, with its output in its own file and nothing of the agent's environment
 * but what `PASSED_ON` names: it needs the agent for nothing, and a signal meant for the agent does not reach it.
 */
export async function spawnEngine(
  launch: Launch,
  options: {
    readonly agentEnv: Readonly<Record<string, string | undefined>>;
    readonly proof: string;
    readonly log: EngineLog;
    /** Its working folder. */
    readonly folder: string;
  },
): Promise<Spawned> {
  const passed = PASSED_ON.flatMap((name) => {
    const value = options.agentEnv[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  const env = { ...Object.fromEntries(passed), ...launch.env, [PROOF_VARIABLE]: options.proof };
  await makeFolder(options.folder);
  const [program = "", ...args] = launch.argv;
  const output = options.log.openForWriting();
  try {
    const child = spawn(program, args, {
      cwd: options.folder,
      env,
      detached: true,
      stdio: ["ignore", output.fd, output.fd],
    });
    const { pid } = child;
    if (pid === undefined) {
      const error = await new Promise<Error>((resolve) => child.once("error", resolve));
      return { kind: "failed", why: `${program} can't be started: ${codeOf(error)}` };
    }
    child.on("error", () => {}); // A signal that could not be sent: the process table tells.
    child.unref();
    return { kind: "spawned", child, pid };
  } catch (error) {
    return { kind: "failed", why: `${program} can't be started: ${codeOf(error)}` };
  } finally {
    output.close();
  }
}

const codeOf = (error: unknown): string =>
  error instanceof Error ? ("code" in error ? String(error.code) : error.message) : String(error);

/** For engines that read their key from a file. */
export async function writeKeyFile(path: string, key: Secret): Promise<void> {
  await makeFolder(dirname(path));
  await writeFile(path, `${key.reveal()}\n`, { mode: 0o600 });
}

export const keyFileIn = (folder: string): string => join(folder, "key");

export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
}
