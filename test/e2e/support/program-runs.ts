import { type RunningProgram, runProgram } from "./program.ts";

/** One program that a test starts, freezes, kills and starts again; what its runs said is kept together. */
export class ProgramRuns {
  readonly #args: readonly string[];
  readonly #options: NonNullable<Parameters<typeof runProgram>[1]>;
  #program: RunningProgram | null = null;
  /** Of runs that have ended. */
  #said = "";

  constructor(args: readonly string[], options: NonNullable<Parameters<typeof runProgram>[1]> = {}) {
    this.#args = [...args, "--log-format", "json"];
    this.#options = options;
  }

  get log(): string {
    return this.#said + (this.#program?.err ?? "");
  }

  start(): RunningProgram {
    this.#program = runProgram(this.#args, this.#options);
    return this.#program;
  }

  signal(name: "SIGSTOP" | "SIGCONT"): void {
    this.#program?.kill(name);
  }

  async kill(): Promise<void> {
    const program = this.#program;
    if (program === null) return;
    this.#program = null;
    await program[Symbol.asyncDispose]();
    this.#said += program.err;
  }
}
