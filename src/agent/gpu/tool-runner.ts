import { spawn, type ChildProcess } from "node:child_process";
import type { Clock } from "../../kernel/clock.ts";

export type ToolOutcome =
  | { readonly kind: "ended"; readonly code: number | null; readonly stdout: string; readonly stderr: string }
  /** There is no such program, or it can't be run. */
  | { readonly kind: "missing" }
  | { readonly kind: "timeout" }
  /** An earlier call has been killed and is still there: it hangs in the driver, and a second one would, too. */
  | { readonly kind: "stuck" };

/** Why there is no answer, behind the tool's name. */
export function describeFailure(outcome: Exclude<ToolOutcome, { kind: "ended" | "missing" }>): string {
  return outcome.kind === "timeout"
    ? "has not answered in time"
    : "hangs: an earlier call of it can't be ended, and no second one is made";
}

const OUTPUT_BYTES_MAX = 8 * 1024 * 1024;

/**
 * Runs one small program at a time.
 *
 * Invariants:
 *   R1. Never a second call beside one that has not ended, however it was told to.
 *   R2. A call ends within its time for its caller, in a process group of its own, so that all of it is killed.
 */
export class ToolRunner {
  readonly #clock: Clock;
  readonly #env: Readonly<Record<string, string>>;
  #running: ChildProcess | null = null;

  constructor(clock: Clock, env: Readonly<Record<string, string>>) {
    this.#clock = clock;
    this.#env = env;
  }

  run(program: string, args: readonly string[], timeoutMs: number): Promise<ToolOutcome> {
    if (this.#running !== null) return Promise.resolve({ kind: "stuck" });
    return new Promise((resolve) => {
      let child: ChildProcess;
      try {
        child = spawn(program, args, { env: this.#env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
      } catch {
        resolve({ kind: "missing" });
        return;
      }
      this.#running = child;
      const texts = { stdout: "", stderr: "" };
      for (const name of ["stdout", "stderr"] as const) {
        child[name]?.setEncoding("latin1").on("data", (text: string) => {
          if (texts[name].length < OUTPUT_BYTES_MAX) texts[name] += text;
        });
      }
      const timer = this.#clock.after(timeoutMs, () => {
        killGroup(child);
        resolve({ kind: "timeout" });
      });
      const over = (outcome: ToolOutcome): void => {
        timer.cancel();
        this.#running = null;
        resolve(outcome);
      };
      child.once("error", () => over({ kind: "missing" }));
      child.once("close", (code) => over({ kind: "ended", code, ...texts }));
    });
  }

  close(): void {
    if (this.#running !== null) killGroup(this.#running);
  }
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // It has just ended.
  }
}
