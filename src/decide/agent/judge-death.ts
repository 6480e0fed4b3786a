import type { ShardFailure } from "../../contract/fleet.ts";

/** Why an engine that nobody stopped has ended. Any such end is a failure, whatever its code: vLLM ends with 0 after its core was killed. */
export interface Death {
  /** Null for an engine that was taken over from an earlier agent: only a parent is told. */
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly served: boolean;
  /** What the system tells of running out of memory since the engine's start. */
  readonly outOfMemory:
    | { readonly kind: "none" }
    /** A record that names a process, or the control group, of this engine. */
    | { readonly kind: "thisEngine"; readonly record: string }
    /** The machine's own count rose; whose process it was is not said. */
    | { readonly kind: "machine" };
  /** Oldest first. */
  readonly lastLines: readonly string[];
}

const GPU_OOM =
  /CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|cudaMalloc failed: out of memory|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED|less than desired GPU memory utilization|No available memory for the cache blocks|unable to allocate (?:CUDA|ROCm)\d* buffer/i;
const HOST_OOM =
  /MemoryError|std::bad_alloc|Cannot allocate memory|JavaScript heap out of memory|memory allocation of \d+ bytes failed/;
const PORT_TAKEN =
  /address already in use|EADDRINUSE|couldn't bind (?:to )?(?:HTTP )?(?:server )?socket|error binding/i;

/** Of the newest lines: an error of long ago has been survived. */
const TELLING_LINES = 200;

export function judgeDeath(death: Death): Omit<ShardFailure, "lastLines"> {
  const { exitCode, signal, outOfMemory } = death;
  const when = death.served ? "while it served" : "before it was ready";
  const told = { signal, exitCode };
  const lines = death.lastLines.slice(-TELLING_LINES);
  const line = (pattern: RegExp): string | undefined => lines.findLast((text) => pattern.test(text));

  if (outOfMemory.kind === "thisEngine")
    return { kind: "oom", message: `out of memory ${when}: ${outOfMemory.record}`, ...told };
  const onCard = line(GPU_OOM);
  if (onCard !== undefined) return { kind: "gpuOom", message: `out of GPU memory ${when}: ${clip(onCard)}`, ...told };
  if (outOfMemory.kind === "machine" && signal === "SIGKILL")
    return { kind: "oom", message: `SIGKILL ${when}, as the machine ran out of memory`, ...told };
  const onHost = line(HOST_OOM);
  if (onHost !== undefined) return { kind: "oom", message: `out of memory ${when}: ${clip(onHost)}`, ...told };
  const taken = line(PORT_TAKEN);
  if (taken !== undefined && !death.served)
    return { kind: "port", message: `its port is taken: ${clip(taken)}`, ...told };
  if (signal !== null) return { kind: "signal", message: `${describeSignal(signal)} ${when}`, ...told };
  const code = exitCode === null ? "it ended, with a code that is not known," : `it ended with code ${exitCode}`;
  return { kind: "exit", message: `${code} ${when}`, ...told };
}

/** Of a start that came to no process. */
export const refusedStart = (message: string): ShardFailure => ({
  kind: "refused",
  message,
  signal: null,
  exitCode: null,
  lastLines: [],
});

const clip = (text: string): string => text.slice(0, 300);

const MEANING: Readonly<Record<string, string>> = {
  SIGILL: "an instruction that this processor does not have",
  SIGSEGV: "a wrong memory access",
  SIGBUS: "a memory access that the system could not serve",
  SIGABRT: "it gave up by itself",
  SIGFPE: "a wrong calculation",
  SIGKILL: "killed from outside",
  SIGTERM: "told to end from outside",
};

function describeSignal(signal: string): string {
  const meaning = MEANING[signal];
  return meaning === undefined ? `it died of ${signal}` : `it died of ${signal} (${meaning})`;
}

/** From a line of the kernel's log: the process that was killed for want of memory. */
export function parseKernelKill(line: string): { readonly pid: number; readonly text: string } | null {
  const match = /(?:Memory cgroup out of memory|Out of memory)(?:[^:]*): Killed process (\d{1,10})\b.*/.exec(line);
  return match === null ? null : { pid: Number(match[1]), text: match[0].slice(0, 200) };
}

/** The number of kills for want of memory in /proc/vmstat, `memory.events` or `memory.oom_control`; null without one. */
export function parseOomKills(text: string): number | null {
  const match = /^oom_kill (\d{1,15})$/m.exec(text);
  return match === null ? null : Number(match[1]);
}
