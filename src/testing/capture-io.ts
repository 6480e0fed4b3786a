import type { Env } from "../contract/resolve-config.ts";
import { systemClock } from "../kernel/clock.ts";
import type { CliIo } from "../cli/cli-io.ts";

/** A `CliIo` whose output can be read, for tests of commands. */
export function captureIo(
  env: Env = {},
  signal: AbortSignal = new AbortController().signal,
  columns: number | null = null,
): { readonly io: CliIo; output(): { readonly out: string; readonly err: string } } {
  let out = "";
  let err = "";
  const io: CliIo = {
    out: (text) => void (out += text),
    err: (text) => void (err += text),
    env,
    clock: systemClock,
    columns,
    signal,
  };
  return { io, output: () => ({ out, err }) };
}
