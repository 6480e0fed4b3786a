import type { Env } from "../contract/resolve-config.ts";
import type { Clock } from "../kernel/clock.ts";

/** Exit codes of every command. */
export const EXIT = { done: 0, failed: 1, usage: 2, unreachable: 3 } as const;

/** What a command may touch. `main.ts` hands over the real process, tests something they can read. */
export interface CliIo {
  /** Results: text for people, or JSON and nothing else. No line feed is added. */
  out(text: string): void;
  /** Errors and remarks. No line feed is added. */
  err(text: string): void;
  readonly env: Env;
  readonly clock: Clock;
  /** Of the terminal that shows the output; null: no terminal does. */
  readonly columns: number | null;
  /** Aborted by Ctrl-C, and when nobody reads the output any more. */
  readonly signal: AbortSignal;
}

/** How long the last output may take after everything else has ended. */
const FLUSH_MS = 1_000;

export interface Command {
  /** ["config", "check"]. */
  readonly words: readonly string[];
  readonly summary: string;
  /** The whole text of `--help`. */
  readonly help: string;
  /** Returns the exit code. A thrown YardmasterError with code USAGE becomes a line on stderr and exit code 2. */
  run(args: readonly string[], io: CliIo): Promise<number>;
}

interface OutputStream {
  write(text: string, done?: () => void): unknown;
  /** Of a terminal alone. */
  readonly columns?: number;
  on(event: "error", listener: (err: Error) => void): unknown;
}

export interface ProcessIo {
  readonly io: CliIo;
  /** The exit code once everything is written: what the command says, unless its output has gone or could not be written. */
  readonly exitCode: (code: number) => Promise<number>;
}

/**
 * The process's streams as a `CliIo`. A reader that has gone (`… | head -1`) is no error: output stops, the signal is
 * aborted, and the exit code is 0 whatever the command was in the middle of. Output that can't be written for another reason, such as
 * a full disk, is a failure: what was to be read is not there.
 */
export function processIo(
  streams: { readonly stdout: OutputStream; readonly stderr: OutputStream },
  env: Env,
  clock: Clock,
  interrupted: AbortSignal,
): ProcessIo {
  const closed = new AbortController();
  let broken: Error | null = null;
  let wrote = false;
  streams.stdout.on("error", (err) => {
    if (closed.signal.aborted) return;
    if (!("code" in err && err.code === "EPIPE")) broken = err;
    closed.abort(new Error("the output can't be written"));
  });
  streams.stderr.on("error", () => {});
  const io: CliIo = {
    out: (text) => {
      if (closed.signal.aborted) return;
      wrote = true;
      streams.stdout.write(text);
    },
    err: (text) => {
      streams.stderr.write(text);
    },
    env,
    clock,
    // Asked each time: a window may have another width by now.
    get columns() {
      return streams.stdout.columns ?? null;
    },
    signal: AbortSignal.any([interrupted, closed.signal]),
  };
  const exitCode = async (code: number): Promise<number> => {
    // A stream tells of a write that failed only later, and one that nobody takes from never tells.
    if (wrote && !closed.signal.aborted)
      await new Promise<void>((resolve) => {
        closed.signal.addEventListener("abort", () => resolve(), { once: true });
        streams.stdout.write("", () => resolve());
        clock.after(FLUSH_MS, resolve);
      });
    if (broken !== null) {
      io.err(`yardmaster: the output could not be written: ${broken.message}\n`);
      return code === EXIT.done ? EXIT.failed : code;
    }
    return closed.signal.aborted ? EXIT.done : code;
  };
  return { io, exitCode };
}
