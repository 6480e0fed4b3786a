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
  write(text: string): unknown;
  /** Of a terminal alone. */
  readonly columns?: number;
  on(event: "error", listener: (err: Error) => void): unknown;
}

/**
 * The process's streams as a `CliIo`. A reader that has gone (`… | head -1`) is no error: output stops, the signal is
 * aborted, and `outputClosed()` tells that the exit code is 0 whatever the command was in the middle of.
 */
export function processIo(
  streams: { readonly stdout: OutputStream; readonly stderr: OutputStream },
  env: Env,
  clock: Clock,
  interrupted: AbortSignal,
): { readonly io: CliIo; readonly outputClosed: () => boolean } {
  const closed = new AbortController();
  const onError = (err: Error): void => {
    if ("code" in err && err.code === "EPIPE") closed.abort(new Error("the reader of the output has gone"));
    else throw err;
  };
  streams.stdout.on("error", onError);
  streams.stderr.on("error", () => {});
  const io: CliIo = {
    out: (text) => {
      if (!closed.signal.aborted) streams.stdout.write(text);
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
  return { io, outputClosed: () => closed.signal.aborted };
}
